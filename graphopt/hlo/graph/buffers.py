"""Which buffer a value lies in: names of values, looked up through all that only hands a buffer on.

Tuples, bitcasts and the like name a buffer without computing anything. A loop keeps each carried value in the
buffer in which it starts, a conditional that returns the same value in every branch is another name for it,
and a function or branch has its parameters in the buffers of what its caller hands over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphopt.hlo.graph.targets import Path
from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex, Role, leaf_paths

Value = tuple[int, Path]
"""A buffer: (local id of the defining instruction, tuple index path in its result)."""


class Buffers:
    """Names of the values of one module, each looked up once."""

    def __init__(self, module: ModuleIndex) -> None:
        """Nothing is looked up yet."""
        self.module = module
        self._resolved: dict[tuple[int, int, Path], Value] = {}
        self._names: dict[tuple[int, int, Path], Value] = {}
        self._untouched: dict[int, dict[Path, Path]] = {}
        self._entered: dict[int, dict[Value, Value]] = {}

    def resolve(self, computation: ComputationIndex, local: int, path: Path = ()) -> Value:
        """The value whose buffer instruction `local` denotes at `path`, through all aliases."""
        key = (computation.id, local, path)
        found = self._resolved.get(key)
        if found is None:
            named = self._resolve(computation, local, path, self.resolve)
            named = self._handed_over(computation).get(named, named)
            found = self._resolved[key] = self._first_of_equals(computation, named)
        return found

    def _named(self, computation: ComputationIndex, local: int, path: Path = ()) -> Value:
        """The same, but values that a loop carries in one buffer are told apart."""
        key = (computation.id, local, path)
        found = self._names.get(key)
        if found is None:
            named = self._resolve(computation, local, path, self._named)
            found = self._names[key] = self._handed_over(computation).get(named, named)
        return found

    def _resolve(
        self, computation: ComputationIndex, local: int, path: Path, resolve: Callable[..., Value]
    ) -> Value:
        by_id = computation.by_id
        while True:
            instruction = by_id[local]
            opcode = instruction.opcode
            if opcode == "bitcast":
                local = instruction.operands[0]
            elif opcode == "get-tuple-element":
                path = (instruction.proto.tuple_index, *path)
                local = instruction.operands[0]
            elif opcode == "tuple" and path:
                local, path = instruction.operands[path[0]], path[1:]
            elif opcode == "while" and path in self.kept(computation, instruction):
                local = instruction.operands[0]
            elif opcode == "call":
                forwarded = self._forwarded_parameter(instruction, path)
                if forwarded is None:
                    return local, path
                local, path = instruction.operands[forwarded[0]], forwarded[1]
            elif opcode == "conditional":
                handed_on = self._handed_on(computation, instruction, path, resolve)
                first = handed_on[0]
                if first is None or any(value != first for value in handed_on):
                    return local, path
                return first
            else:
                return local, path

    def _handed_over(self, computation: ComputationIndex) -> dict[Value, Value]:
        """In a function or branch: each value of its parameters -> the first of them in the same buffer."""
        found = self._entered.get(computation.id)
        if found is None:
            found = self._entered[computation.id] = dict(self._equal_parameters(computation))
        return found

    def _equal_parameters(self, computation: ComputationIndex) -> Iterator[tuple[Value, Value]]:
        if computation.role not in (Role.CALLED, Role.BRANCH) or computation.caller is None:
            return
        local, around = computation.caller
        owner = self.module.computations[around]
        caller, first = owner.by_id[local], dict[Value, Value]()
        begin = 0 if caller.opcode == "call" else 1 + caller.called.index(computation.id)
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                operand = caller.operands[begin + instruction.proto.parameter_number]
                for path in leaf_paths(instruction.shape):
                    value = instruction.local, path
                    yield value, first.setdefault(self._named(owner, operand, path), value)

    def _first_of_equals(self, computation: ComputationIndex, value: Value) -> Value:
        """The first of the values that a loop keeps in one buffer; any other value as it is."""
        local, path = value
        if computation.role is not Role.LOOP_BODY:
            return value
        if computation.by_id[local].opcode != "parameter":
            return value
        return local, self.kept_in(computation).get(path, path)

    def kept_in(self, body: ComputationIndex) -> dict[Path, Path]:
        """`kept` of the loop whose body it is; empty without one."""
        if body.caller is None:
            return {}
        loop, around = body.caller
        owner = self.module.computations[around]
        return self.kept(owner, owner.by_id[loop])

    def kept(self, computation: ComputationIndex, loop: Instruction) -> dict[Path, Path]:
        """Where a loop carries values that it leaves untouched -> the first such place of that buffer.

        A carried value stays in the buffer in which it starts. Where it becomes, in whatever branch, only
        what else is kept in that buffer, nothing is written.
        """
        body = self.module.computations[loop.called[0]]
        found = self._untouched.get(body.id)
        if found is not None:
            return found
        starts = {
            path: self._named(computation, loop.operands[0], path)
            for path in leaf_paths(loop.shape)
        }
        sources = {path: self._sources(body, body.root, path) for path in starts}
        kept = set(starts)
        while True:
            lost = {
                path
                for path in kept
                if not sources[path]
                or any(s not in kept or starts[s] != starts[path] for s in sources[path])
            }
            if not lost:
                break
            kept -= lost
        first: dict[Value, Path] = {}
        out = {path: first.setdefault(starts[path], path) for path in starts if path in kept}
        self._untouched[body.id] = out
        return out

    def _sources(self, body: ComputationIndex, local: int, path: Path) -> set[Path]:
        """Places of a loop body's parameter that a value may be handed on from; none if it is computed."""
        local, path = self._named(body, local, path)
        instruction = body.by_id[local]
        if instruction.opcode == "parameter":
            return {path}
        if instruction.opcode != "conditional":
            return set()
        out: set[Path] = set()
        for value in self._handed_on(body, instruction, path, self._named):
            found = self._sources(body, *value) if value is not None else set()
            if not found:
                return set()
            out |= found
        return out

    def _forwarded_parameter(self, call: Instruction, path: Path) -> tuple[int, Path] | None:
        callee = self.module.computations[call.called[0]]
        local, inner = self.resolve(callee, callee.root, path)
        instruction = callee.by_id[local]
        if instruction.opcode != "parameter":
            return None
        return int(instruction.proto.parameter_number), inner

    def handed_on(
        self, computation: ComputationIndex, conditional: Instruction, path: Path
    ) -> list[Value | None]:
        """Per branch, the caller's value that it hands on unchanged as result `path`, or None."""
        return self._handed_on(computation, conditional, path, self.resolve)

    def _handed_on(
        self,
        computation: ComputationIndex,
        conditional: Instruction,
        path: Path,
        resolve: Callable[..., Value],
    ) -> list[Value | None]:
        out: list[Value | None] = []
        for number, branch_id in enumerate(conditional.called):
            branch = self.module.computations[branch_id]
            local, inner = self.resolve(branch, branch.root, path)
            if branch.by_id[local].opcode == "parameter":
                out.append(resolve(computation, conditional.operands[number + 1], inner))
            else:
                out.append(None)
        return out
