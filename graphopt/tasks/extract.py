"""Cuts some instructions of one computation out of a module: a module of its own, a parameter per input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphopt.errors import UnsupportedModuleError
from graphopt.hlo.emit.release import release
from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.module.index import (
    LOCAL_ID,
    ComputationIndex,
    Instruction,
    ModuleIndex,
    index,
    leaf_paths,
)
from graphopt.hlo.module.proto import DType, HloComputationProto, HloModuleProto

MAX_CONSTANT: Final = 1024
"""Larger constants become inputs: a task is kept on disk, and its values do not matter."""

_SOURCES: Final = frozenset({"constant", "iota", "partition-id", "replica-id"})
"""Operations without operands, which are repeated in a task that reads them."""

Place = tuple[int, int, tuple[int, ...]]
"""Computation id, local instruction id, and tuple index of a value of a module."""


@dataclass(frozen=True)
class Extract:
    """A part of a module, as a module.

    Attributes:
        data: serialised ``HloModuleProto``; ids of computations and instructions are those of the module
            that it was cut from, new ones are larger.
        inputs: which value of that module each parameter is.
    """

    data: bytes
    inputs: tuple[Place, ...]


def extract(
    module: ModuleIndex,
    computation: int,
    members: Sequence[int],
    results: Sequence[tuple[int, tuple[int, ...]]] | None = None,
) -> Extract:
    """Cuts instructions out.

    Args:
        module: scheduled, as the hook receives it.
        computation: id of the computation that they stand in.
        members: local ids in their order in the schedule, nothing between two of them left out.
        results: (local id, tuple index) of the arrays that the module returns; what is read outside by
            default.

    Raises:
        UnsupportedModuleError: nothing is computed, or a value at the border is no array.
    """
    return _Cutter(module, module.computations[computation], members, results).run()


class _Cutter:
    """One extraction."""

    def __init__(
        self,
        module: ModuleIndex,
        source: ComputationIndex,
        members: Sequence[int],
        wanted: Sequence[tuple[int, tuple[int, ...]]] | None,
    ) -> None:
        self.module = module
        self.source = source
        self.wanted = wanted
        self.users: dict[int, list[Instruction]] = {}
        for instruction in source.instructions:
            for operand in set(instruction.operands):
                self.users.setdefault(operand, []).append(instruction)
        self.order = self._with_views(members)
        self.inside = set(self.order)
        self.high = source.instructions[0].proto.id & ~LOCAL_ID
        self.free = max(source.by_id) + 1
        self.extra: list[Any] = []
        """Instructions behind the members: parts of tuples that they make."""
        self.entry = HloComputationProto(name=source.proto.name, id=source.id)
        self.parameters: list[Any] = []
        self.inputs: list[Place] = []
        self.before: list[Any] = []
        """Instructions in front of the members: tuples of inputs."""
        self.replaced: dict[int, int] = {}
        """Local id of a value from outside -> local id of what stands for it."""

    def _with_views(self, members: Sequence[int]) -> list[int]:
        """The members, tuples and small constants that they read, and parts of tuples that they make."""
        by_id = self.source.by_id
        chosen = [m for m in members if not self._is_input(by_id[m], set(members))]
        wanted = [local for local, _ in self.wanted or ()]
        inside = {*chosen, *wanted}
        stack = list(inside)
        while stack:
            for operand in by_id[stack.pop()].operands:
                if operand not in inside and _is_repeated(by_id[operand]):
                    inside.add(operand)
                    stack.append(operand)
        for local in chosen:
            if by_id[local].shape.element_type == DType.TUPLE and by_id[local].opcode != "tuple":
                inside.update(u.local for u in self.users.get(local, ()) if u.opcode == _PART)
        return self._ordered(chosen, inside)

    def _ordered(self, chosen: list[int], inside: set[int]) -> list[int]:
        """All that is inside: members in their order, the rest where it is first needed."""
        done: dict[int, None] = {}
        for first in [*chosen, *sorted(inside)]:
            stack = [first]
            while stack:
                local = stack[-1]
                needs = self.source.by_id[local].operands
                missing = [o for o in needs if o in inside and o not in done]
                if missing:
                    stack += missing
                else:
                    done[stack.pop()] = None
        return list(done)

    def _is_input(self, instruction: Instruction, members: set[int]) -> bool:
        if instruction.opcode == "parameter" or _is_repeated(instruction):
            return True
        return instruction.opcode == _PART and instruction.operands[0] not in members

    def run(self) -> Extract:
        """The module."""
        body = [self._copied(self.source.by_id[local]) for local in self.order]
        results = self._results() if self.wanted is None else self._wanted(self.wanted, body)
        if not results:
            raise _unsupported("nothing that is computed there is used", self.source)
        instructions = [*self.parameters, *self.before, *body, *self.extra]
        if len(results) == 1:
            ((local, shape),) = results
            self.entry.root_id = self.high | local
        else:
            root = self._tuple([shape for _, shape in results], [local for local, _ in results])
            instructions.append(root)
            self.entry.root_id, shape = root.id, root.shape
        self.entry.instructions.extend(instructions)
        self.entry.program_shape.result.CopyFrom(shape)
        for number, parameter in enumerate(self.parameters):
            self.entry.program_shape.parameters.add().CopyFrom(parameter.shape)
            self.entry.program_shape.parameter_names.append(f"p{number}")
        return Extract(release(_apart(self._module())).data, tuple(self.inputs))

    def _copied(self, instruction: Instruction) -> Any:
        """An instruction that reads what stands in the task for its operands."""
        out = type(instruction.proto)()
        out.CopyFrom(instruction.proto)
        for name in ("metadata", "original_value", "operand_ids", "control_predecessor_ids"):
            out.ClearField(name)
        for operand in instruction.operands:
            if operand not in self.inside and operand not in self.replaced:
                value = self.source.by_id[operand]
                self.replaced[operand] = self._input(operand, value.shape, ())
            out.operand_ids.append(self.high | self.replaced.get(operand, operand))
        kept = [c for c in instruction.control if c in self.inside]
        out.control_predecessor_ids.extend(self.high | c for c in kept)
        return out

    def _input(self, local: int, shape: Any, path: tuple[int, ...]) -> int:
        """Parameters for a value from outside; the local id of what stands for it."""
        if shape.element_type == DType.TUPLE:
            parts = [self._input(local, s, (*path, i)) for i, s in enumerate(shape.tuple_shapes)]
            made = self._tuple(shape.tuple_shapes, parts)
            self.before.append(made)
            return int(made.id & LOCAL_ID)
        if shape.element_type in (DType.TOKEN, DType.OPAQUE, DType.BUFFER):
            raise _unsupported("a value at its border is no array", self.source)
        parameter = self._new("parameter", shape)
        parameter.parameter_number = len(self.parameters)
        self.parameters.append(parameter)
        self.inputs.append((self.source.id, local, path))
        return int(parameter.id & LOCAL_ID)

    def _results(self) -> list[tuple[int, Any]]:
        """(local id, shape) of the arrays that something outside reads, each once."""
        found: dict[int, Any] = {}
        for local in self.order:
            instruction = self.source.by_id[local]
            if _is_repeated(instruction) or not self._is_read_outside(local):
                continue
            self._add_results(instruction.local, instruction.shape, instruction.opcode, found)
        return list(found.items())

    def _wanted(
        self, places: Sequence[tuple[int, tuple[int, ...]]], body: list[Any]
    ) -> list[tuple[int, Any]]:
        """(local id, shape) of copies of what is asked for, made before anything overwrites it."""
        found = []
        behind: dict[int, list[Any]] = {}
        for origin, path in places:
            local, shape = origin, self.source.by_id[origin].shape
            for place in path:
                local, shape = (
                    self._part(local, place, shape.tuple_shapes[place]),
                    (shape.tuple_shapes[place]),
                )
            copy = self._new("copy", shape)
            copy.operand_ids.append(self.high | local)
            behind.setdefault(origin, []).extend([*self.extra, copy])
            self.extra.clear()
            found.append((int(copy.id & LOCAL_ID), shape))
        body[:] = [
            i for instruction in body
            for i in (instruction, *behind.get(int(instruction.id & LOCAL_ID), ()))
        ]  # fmt: skip
        return found

    def _part(self, local: int, place: int, shape: Any) -> int:
        """An instruction that takes one element out of a tuple; its local id."""
        made = self._new(_PART, shape)
        made.tuple_index = place
        made.operand_ids.append(self.high | local)
        self.extra.append(made)
        return int(made.id & LOCAL_ID)

    def _add_results(self, local: int, shape: Any, opcode: str, found: dict[int, Any]) -> None:
        if shape.element_type != DType.TUPLE:
            if shape.element_type == DType.TOKEN:
                raise _unsupported("a value at its border is no array", self.source)
            found[local] = shape
            return
        if opcode == "tuple":
            return  # what it gathers is read outside (see _is_read_outside)
        for place, part in enumerate(shape.tuple_shapes):
            self._add_results(self._part(local, place, part), part, _PART, found)

    def _is_read_outside(self, local: int) -> bool:
        if local == self.source.root:
            return True
        for user in self.users.get(local, ()):
            if user.local not in self.inside:
                return True
            if user.opcode == "tuple" and self._is_read_outside(user.local):
                return True
        return False

    def _tuple(self, shapes: Iterable[Any], parts: Sequence[int]) -> Any:
        made = self._new("tuple", None)
        made.shape.element_type = DType.TUPLE
        for shape in shapes:
            made.shape.tuple_shapes.add().CopyFrom(shape)
        made.operand_ids.extend(self.high | part for part in parts)
        return made

    def _new(self, opcode: str, shape: Any) -> Any:
        made = type(self.source.instructions[0].proto)()
        made.opcode, made.id = opcode, self.high | self.free
        made.name = f"task.{opcode}.{self.free}"
        self.free += 1
        if shape is not None:
            made.shape.CopyFrom(shape)
        return made

    def _module(self) -> Any:
        """The module around the new entry computation, with all that it calls."""
        source = self.module.proto
        called = self._called()
        out = HloModuleProto(name="task", id=source.id, is_dynamic=source.is_dynamic)
        out.device_assignment.CopyFrom(source.device_assignment)
        out.entry_computation_name, out.entry_computation_id = self.entry.name, self.entry.id
        for computation in self.module.computations.values():
            if computation.id in called:
                _add_bare(out, computation)
        out.computations.add().CopyFrom(self.entry)
        out.host_program_shape.CopyFrom(self.entry.program_shape)
        for given in source.schedule.sequences:
            if given.key in called:
                out.schedule.sequences.add().CopyFrom(given)
        if len(source.schedule.sequences):
            mine = out.schedule.sequences.add()
            mine.key = self.entry.id
            mine.value.instruction_ids.extend(i.id for i in self.entry.instructions)
        return out

    def _called(self) -> set[int]:
        found: set[int] = set()
        stack = [c for local in self.order for c in self.source.by_id[local].called]
        while stack:
            callee = stack.pop()
            if callee not in found:
                found.add(callee)
                inner = self.module.computations[callee]
                stack += [c for instruction in inner.instructions for c in instruction.called]
        return found


_PART: Final = "get-tuple-element"


def _apart(proto: Any) -> bytes:
    """The module with copies of results that would share one buffer, which XLA's client refuses."""
    module = index(proto)
    entry = module.computations[proto.entry_computation_id]
    analysis = InPlaceAnalysis(module)
    seen: set[Any] = set()
    shared = []
    for place, path in enumerate(leaf_paths(entry.by_id[entry.root].shape)):
        buffer = analysis.resolve(entry, entry.root, path)
        if path and buffer in seen:
            shared.append(place)
        seen.add(buffer)
    if shared:
        _copy_results(proto, shared)
    return bytes(proto.SerializeToString())


def _copy_results(proto: Any, places: list[int]) -> None:
    """Copies some of the arrays that the entry computation returns in a tuple."""
    entry = next(c for c in proto.computations if c.id == proto.entry_computation_id)
    root = type(entry.instructions[0])()
    root.CopyFrom(entry.instructions[-1])
    del entry.instructions[-1]
    for number, place in enumerate(places, start=1):
        copy = entry.instructions.add()
        copy.opcode, copy.name, copy.id = "copy", f"task.copy.{number}", root.id + number
        copy.shape.CopyFrom(root.shape.tuple_shapes[place])
        copy.operand_ids.append(root.operand_ids[place])
        root.operand_ids[place] = copy.id
    entry.instructions.add().CopyFrom(root)
    for given in proto.schedule.sequences:
        if given.key == entry.id:
            del given.value.instruction_ids[:]
            given.value.instruction_ids.extend(i.id for i in entry.instructions)


def _is_repeated(instruction: Instruction) -> bool:
    """True for tuples of values, and for operations without operands whose values are small."""
    if instruction.opcode == "tuple":
        return True
    size = 1
    for dimension in instruction.shape.dimensions:
        size *= dimension
    small = instruction.opcode != "constant" or size <= MAX_CONSTANT
    return instruction.opcode in _SOURCES and small


def _add_bare(out: Any, computation: ComputationIndex) -> None:
    """Adds a computation without what says where it came from."""
    added = out.computations.add()
    added.CopyFrom(computation.proto)
    for instruction in added.instructions:
        instruction.ClearField("metadata")
        instruction.ClearField("original_value")


def _unsupported(what: str, source: ComputationIndex) -> UnsupportedModuleError:
    return UnsupportedModuleError(
        what=what,
        where=str(source.proto.name),
        fix="nothing to do: this part of the program is no task",
        rule="no-task",
    )
