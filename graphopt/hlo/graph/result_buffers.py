"""Whose buffers the results of a computation take: what makes them overwrites parameters.

A loop's body leaves each carried value in the buffer of the last one, the entry its results in those of
donated parameters. A function or a branch may well do so for them: what it returns becomes that value, or
another branch hands on, in its place, what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from graphopt.hlo.graph.buffers import Buffers, Value
from graphopt.hlo.graph.targets import Path, donated_results, updated_parameters
from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex, Role, leaf_paths

Taken = Mapping[Path, set[Value]]
"""Path of a result -> values of the parameters whose buffer it takes."""


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
        self._histories: dict[tuple[int, Value], set[Value]] = {}

    def overwritten(
        self, computation: ComputationIndex, values: Iterable[Value]
    ) -> Iterator[tuple[Value, set[int]]]:
        """Values whose buffer a result takes, each with the instructions that make what takes it.

        Args:
            computation: of the results.
            values: those that instructions of it read; what became of a parameter by updates in place lies
                in its buffer too.
        """
        taken = self._taken(computation)
        if not taken:
            return
        histories = {value: self._history(computation, value) for value in values}
        for path, parameters in taken.items():
            made = self._result(computation, path)
            writers = {local for local, _ in made if computation.by_id[local].opcode != "parameter"}
            for value in parameters:
                yield value, writers
            for value, history in histories.items():
                if value not in made and value not in parameters and history & parameters:
                    yield value, writers

    def _result(self, computation: ComputationIndex, path: Path) -> set[Value]:
        """A result, and the values that were in its buffer before and became it by updates in place."""
        start = self._buffers.resolve(computation, computation.root, path)
        return self._history(computation, start)

    def _history(self, computation: ComputationIndex, value: Value) -> set[Value]:
        """A value, and those that were in its buffer before and became it by updates in place."""
        key = (computation.id, value)
        found = self._histories.get(key)
        if found is None:
            found, stack = {value}, [value]
            while stack:
                new = set(self._before(computation, *stack.pop())) - found
                found |= new
                stack += new
            self._histories[key] = found
        return found

    def _before(self, computation: ComputationIndex, local: int, path: Path) -> Iterator[Value]:
        """Values that an instruction updates in place to become its result at `path`."""
        instruction = computation.by_id[local]
        updated: list[tuple[int, Path]] = []
        if instruction.opcode in ("call", "conditional"):
            updated = self._through(instruction, path)
        elif instruction.opcode == "while":
            updated = [t for t in self._targets(computation, instruction) if t[1] == path]
        elif instruction.opcode == "fusion":
            updated = [(number, ()) for number in self._updated_by(instruction, path)]
        elif instruction.opcode == "dynamic-update-slice":
            updated = [(0, ())]
        elif instruction.opcode == "scatter":
            updated = [(path[0] if path else 0, ())]
        for operand, inner in updated:
            yield self._buffers.resolve(computation, instruction.operands[operand], inner)

    def _through(self, caller: Instruction, path: Path) -> list[tuple[int, Path]]:
        """(operand number, path) of what functions or branches hand on or update as a result."""
        begin = 0 if caller.opcode == "call" else 1
        found = []
        for number, callee in enumerate(caller.called):
            inner = self.module.computations[callee]
            for local, own in self._result(inner, path):
                source = inner.by_id[local]
                if source.opcode == "parameter":
                    operand = begin + number + int(source.proto.parameter_number)
                    found.append((operand, own))
        return found

    def _updated_by(self, fusion: Instruction, path: Path) -> list[int]:
        """The operands that a kernel updates in place as one of its results."""
        fused = self.module.computations[fusion.called[0]]
        root = fused.by_id[fused.root]
        output = root.operands[path[0]] if root.opcode == "tuple" else fused.root
        return updated_parameters(fused, output)

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
                for value in self._result(owner, path):
                    found.setdefault(value, set()).update(taken)
        return found

    def _entered(
        self,
        owner: ComputationIndex,
        caller: Instruction,
        computation: ComputationIndex,
        parameters: Mapping[int, Instruction],
    ) -> dict[Value, set[Value]]:
        """Value that a caller hands over, or that it became from -> values of the parameters that it is."""
        begin = 0 if caller.opcode == "call" else 1 + caller.called.index(computation.id)
        entered: dict[Value, set[Value]] = {}
        for number, parameter in parameters.items():
            for path in leaf_paths(parameter.shape):
                value = self._buffers.resolve(owner, caller.operands[begin + number], path)
                own = self._buffers.resolve(computation, parameter.local, path)
                for before in self._history(owner, value):
                    entered.setdefault(before, set()).add(own)
        return entered
