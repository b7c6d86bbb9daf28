"""Whose buffers the results of a computation take: what makes them overwrites parameters.

A loop's body leaves each carried value in the buffer of the last one, the entry its results in those of
donated parameters. A function or a branch may well do so for them: what it returns becomes that value, or
another branch hands on, in its place, what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from graphopt.hlo.graph.buffers import Buffers, Value
from graphopt.hlo.graph.targets import Path, donated_results
from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex, Role, leaf_paths

Taken = Mapping[Path, set[Value]]
"""Path of a result -> values of the parameters whose buffer it takes."""

_UPDATES = frozenset({"while", "dynamic-update-slice", "fusion"})
"""Operations whose result may lie in the buffer of the value that they update in place."""


class ResultBuffers:
    """The results of one module's computations."""

    def __init__(
        self,
        module: ModuleIndex,
        buffers: Buffers,
        targets: Callable[[ComputationIndex, Instruction], list[tuple[int, Path]]],
    ) -> None:
        """Nothing is looked up yet.

        Args:
            module: of the computations.
            buffers: names of its values.
            targets: (operand number, path) pairs whose buffers an instruction overwrites.
        """
        self.module = module
        self._buffers = buffers
        self._targets = targets
        self._known: dict[int, Taken] = {}
        self._becoming: dict[int, dict[Value, set[Value]]] = {}

    def overwritten(self, computation: ComputationIndex) -> Iterator[tuple[Value, set[int]]]:
        """Values of parameters, each with the instructions that make what takes its buffer."""
        for path, values in self._taken(computation).items():
            made = self._in_buffer(computation, path)
            writers = {v for v, _ in made if computation.by_id[v].opcode != "parameter"}
            for value in values:
                yield value, writers

    def _in_buffer(self, computation: ComputationIndex, path: Path) -> set[Value]:
        """A result, and the values that were in its buffer before and became it by updates in place."""
        start = self._buffers.resolve(computation, computation.root, path)
        found, stack = {start}, [start]
        while stack:
            local, inner = stack.pop()
            instruction = computation.by_id[local]
            before: list[Value | None] = []
            if instruction.opcode == "conditional":
                before = self._buffers.handed_on(computation, instruction, inner)
            elif instruction.opcode in _UPDATES:
                before = [
                    self._buffers.resolve(computation, instruction.operands[operand], target)
                    for operand, target in self._targets(computation, instruction)
                    if target == inner
                ]
            new = {value for value in before if value is not None} - found
            found |= new
            stack += new
        return found

    def _taken(self, computation: ComputationIndex) -> Taken:
        """Whose buffers the results of a computation take; paths that take none are left out."""
        found = self._known.get(computation.id)
        if found is None:
            found = self._known[computation.id] = self._find(computation)
        return found

    def _find(self, computation: ComputationIndex) -> Taken:
        parameters = {
            int(i.proto.parameter_number): i
            for i in computation.instructions
            if i.opcode == "parameter"
        }
        if computation.role is Role.LOOP_BODY:
            kept = self._buffers.kept_in(computation)
            (carried,) = parameters.values()
            paths = leaf_paths(carried.shape)
            return {path: {(carried.local, path)} for path in paths if path not in kept}
        if computation.role is Role.ENTRY:
            found: dict[Path, set[Value]] = {}
            for number, path, result in donated_results(self.module):
                found.setdefault(result, set()).add((parameters[number].local, path))
            return found
        if computation.role not in (Role.BRANCH, Role.CALLED) or computation.caller is None:
            return {}
        return self._by_caller(computation, computation.caller, parameters)

    def _by_caller(
        self,
        computation: ComputationIndex,
        place: tuple[int, int],
        parameters: Mapping[int, Instruction],
    ) -> Taken:
        """The same of a function or branch, called by the instruction `place` (local id, computation id)."""
        owner = self.module.computations[place[1]]
        caller = owner.by_id[place[0]]
        becoming = self._becoming_results(owner)
        wanted: dict[Path, set[Value]] = {}
        for path in leaf_paths(caller.shape):
            values = set(becoming.get((caller.local, path), ()))
            if caller.opcode == "conditional":
                handed_on = self._buffers.handed_on(owner, caller, path)
                values |= {value for value in handed_on if value is not None}
            if values:
                wanted[path] = values
        if not wanted:
            return {}
        own = self._entered(owner, caller, computation, parameters)
        found = {
            path: {v for o in values for v in own.get(o, ())} for path, values in wanted.items()
        }
        return {path: values for path, values in found.items() if values}

    def _becoming_results(self, owner: ComputationIndex) -> dict[Value, set[Value]]:
        """Value of a computation that becomes a result -> values of parameters whose buffer that takes."""
        found = self._becoming.get(owner.id)
        if found is None:
            found = self._becoming[owner.id] = {}
            for path, taken in self._taken(owner).items():
                for value in self._in_buffer(owner, path):
                    found.setdefault(value, set()).update(taken)
        return found

    def _entered(
        self,
        owner: ComputationIndex,
        caller: Instruction,
        computation: ComputationIndex,
        parameters: Mapping[int, Instruction],
    ) -> dict[Value, set[Value]]:
        """Value that a caller hands over -> values of the parameters that it is."""
        begin = 0 if caller.opcode == "call" else 1 + caller.called.index(computation.id)
        entered: dict[Value, set[Value]] = {}
        for number, parameter in parameters.items():
            for path in leaf_paths(parameter.shape):
                value = self._buffers.resolve(owner, caller.operands[begin + number], path)
                own = self._buffers.resolve(computation, parameter.local, path)
                entered.setdefault(value, set()).add(own)
        return entered
