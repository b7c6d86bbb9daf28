"""Computations whose kernels run one after the other, on one thread.

XLA's thunk executor runs a sequence of at most eight thunks in order. Longer ones it runs as a graph: it
allocates a state per execution, counts what each thunk still waits for, and hands half of what is ready to
a worker as soon as more than eight thunks are (``thunk_executor.cc``, ``SplitReadyQueue``). A called
computation is a sequence of its own, so a long one is cut into calls of at most eight kernels, these into
calls of calls, until none is longer. The schedule stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from graphopt.hlo.emit.protos import ModuleWriter
from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import DType, HloComputationProto, HloInstructionProto
from graphopt.hlo.module.schedule import IN_ORDER_THUNKS
from graphopt.hlo.module.small_calls import is_small_call_proto

_VIEWS: Final = frozenset({"bitcast", "get-tuple-element", "tuple", "after-all"})
"""Operations without a thunk that are repeated wherever they are read."""

_GIVEN: Final = frozenset({"parameter", "constant"})
"""Operations without a thunk whose values are passed on."""


def is_kernel(instruction: Any) -> bool:
    """True for an instruction that a thunk executes."""
    return instruction.opcode not in _VIEWS and instruction.opcode not in _GIVEN


def run_in_order(writer: ModuleWriter, computations: Collection[int]) -> int:
    """Cuts computations into calls of so few kernels that XLA runs them in order.

    Args:
        writer: holds the finished module; its computations are replaced.
        computations: ids. Those that are no sequences of thunks, but part of native code, stay.

    Returns:
        How many were cut.
    """
    module = writer.module
    chosen = _executed_by_thunks(module) & set(computations)
    long = {c.id for c in module.computations if c.id in chosen and _kernels(c) > IN_ORDER_THUNKS}
    if not long:
        return 0
    place = {c.id: (n, 0) for n, c in enumerate(module.computations)}
    for computation in list(module.computations):
        if computation.id in long:
            pieces = _cut(writer, computation)
            own = place[computation.id][0]
            place.update({piece.id: (own, n - len(pieces)) for n, piece in enumerate(pieces)})
            module.computations.extend(pieces)
    module.computations.sort(key=lambda c: place[c.id])
    return len(long)


def _executed_by_thunks(module: Any) -> set[int]:
    """Ids of the entry computation and of what its loops, conditionals and calls run, native code aside."""
    by_id = {c.id: c for c in module.computations}
    found, waiting = set[int](), [int(module.entry_computation_id)]
    while waiting:
        computation = by_id[waiting.pop()]
        if computation.id in found:
            continue
        found.add(int(computation.id))
        for instruction in computation.instructions:
            called = instruction.opcode in ("while", "conditional", "call")
            if called and not is_small_call_proto(instruction):
                waiting += instruction.called_computation_ids
    return found


def _kernels(computation: Any) -> int:
    return sum(is_kernel(i) for i in computation.instructions)


def _cut(writer: ModuleWriter, computation: Any) -> list[Any]:
    """Makes the computation one of calls; all that it calls now, callees first."""
    pieces: list[Any] = []
    while _kernels(computation) > IN_ORDER_THUNKS:
        cutter = _Cutter(writer, computation)
        pieces += cutter.pieces()
        computation.CopyFrom(cutter.outer.proto)
    return pieces


@dataclass
class _Target:
    """A computation being written.

    Attributes:
        proto: what is written so far.
        values: local id in the computation that is cut -> local id here.
    """

    proto: Any
    values: dict[int, int] = field(default_factory=dict)

    def add(self, instruction: Any, operands: list[int], name: str) -> Any:
        """A copy of an instruction on other operands, without control dependencies."""
        out = self.proto.instructions.add()
        out.CopyFrom(instruction)
        out.name, out.id = name, len(self.proto.instructions)
        del out.operand_ids[:]
        del out.control_predecessor_ids[:]
        out.operand_ids.extend(operands)
        return out

    def finish(self, root: int) -> None:
        """Makes an instruction the root."""
        self.proto.root_id = root
        shape = self.proto.instructions[root - 1].shape
        self.proto.program_shape.result.CopyFrom(shape)


class _Cutter:
    """Cuts one computation once: groups of kernels, in their order, become calls."""

    def __init__(self, writer: ModuleWriter, computation: Any) -> None:
        """Groups the kernels; nothing is written yet."""
        self.writer = writer
        self.computation = computation
        self.by_id = {int(i.id) & LOCAL_ID: i for i in computation.instructions}
        self.root = int(computation.root_id) & LOCAL_ID
        kernels = [local for local, i in self.by_id.items() if is_kernel(i)]
        self.groups = [
            kernels[k : k + IN_ORDER_THUNKS] for k in range(0, len(kernels), IN_ORDER_THUNKS)
        ]
        self.group_of = {local: n for n, group in enumerate(self.groups) for local in group}
        self._read: dict[int, frozenset[int]] = {}
        self.outer = _Target(HloComputationProto())
        self.calls: list[Any] = []

    def pieces(self) -> list[Any]:
        """Writes everything; the computations that are called now."""
        self._begin_outer()
        needed = self._needed()
        made = []
        for number, group in enumerate(self.groups):
            inner, arguments = self._inner(group)
            outputs = needed.get(number, [])
            self._finish_inner(inner, outputs)
            self._call(number, inner, arguments, outputs)
            made.append(inner.proto)
        self.outer.finish(self._value(self.outer, self.root))
        return made

    def _begin_outer(self) -> None:
        """The header, and what is given: parameters, and constants that are arrays."""
        computation, proto = self.computation, self.outer.proto
        proto.name, proto.id = computation.name, computation.id
        proto.execution_thread = computation.execution_thread
        proto.program_shape.CopyFrom(computation.program_shape)
        for local, instruction in self.by_id.items():
            if not is_kernel(instruction) and not self._is_repeated(instruction):
                added = self.outer.add(instruction, [], instruction.name)
                self.outer.values[local] = int(added.id)

    def _is_repeated(self, instruction: Any) -> bool:
        """True for what is written again wherever it is read: views, tuples and scalar constants."""
        scalar = instruction.opcode == "constant" and prod(instruction.shape.dimensions) == 1
        return scalar or instruction.opcode in _VIEWS

    def _operands(self, local: int) -> list[int]:
        return [o & LOCAL_ID for o in self.by_id[local].operand_ids]

    def _reads(self, local: int) -> frozenset[int]:
        """What an instruction reads, views looked through: kernels, given values, elements of either."""
        found = self._read.get(local)
        if found is None:
            direct = set[int]()
            for operand in self._operands(local):
                repeated = self._is_repeated(self.by_id[operand])
                element = repeated and self._source(operand) != operand
                direct |= self._reads(operand) if repeated and not element else {operand}
            found = self._read[local] = frozenset(direct)
        return found

    def _source(self, local: int) -> int:
        """The kernel or the given value of which something is an element, at any depth; else itself."""
        found = local
        while self.by_id[found].opcode == "get-tuple-element":
            (found,) = self._operands(found)
        return local if self._is_repeated(self.by_id[found]) else found

    def _group(self, local: int) -> int | None:
        """The group that computes a value; None for given ones."""
        return self.group_of.get(self._source(local))

    def _needed(self) -> dict[int, list[int]]:
        """Group -> its values that other groups, or the result, read."""
        root = self._source(self.root)
        whole = root == self.root and self._is_repeated(self.by_id[root])
        read = dict.fromkeys(sorted(self._reads(root)) if whole else [self.root])
        for local, group in self.group_of.items():
            read.update({r: None for r in sorted(self._reads(local)) if self._group(r) != group})
        needed: dict[int, list[int]] = {}
        for local in read:
            computed = self._group(local)
            if computed is not None:
                needed.setdefault(computed, []).append(local)
        return needed

    def _inner(self, group: list[int]) -> tuple[_Target, list[int]]:
        """The computation of a group, without its root, and the values that it takes."""
        writer = self.writer
        inner = _Target(writer.new_computation(f"sequence_{self.computation.name}"))
        inner.proto.execution_thread = self.computation.execution_thread
        members, own = set(group), self.group_of[group[0]]
        read = dict.fromkeys(r for local in group for r in sorted(self._reads(local)))
        arguments = [local for local in read if self._group(local) != own]
        for number, local in enumerate(arguments):
            self._add_parameter(inner, number, local)
        for local in group:
            instruction = self.by_id[local]
            operands = [self._value(inner, o) for o in self._operands(local)]
            added = inner.add(instruction, operands, instruction.name)
            inner.values[local] = int(added.id)
            before = (b & LOCAL_ID for b in instruction.control_predecessor_ids)
            added.control_predecessor_ids.extend(inner.values[b] for b in before if b in members)
        return inner, arguments

    def _add_parameter(self, inner: _Target, number: int, local: int) -> None:
        shape = self.by_id[local].shape
        new = HloInstructionProto(opcode="parameter", parameter_number=number)
        new.shape.CopyFrom(shape)
        added = inner.add(new, [], self.writer.unique_name(f"param_{number}"))
        inner.values[local] = int(added.id)
        inner.proto.program_shape.parameters.add().CopyFrom(shape)
        inner.proto.program_shape.parameter_names.append(added.name)

    def _value(self, target: _Target, local: int) -> int:
        """Local id of a value in a computation that is being written."""
        if local not in target.values:
            instruction = self.by_id[local]
            operands = [self._value(target, o) for o in self._operands(local)]
            name = self.writer.unique_name(instruction.name)
            target.values[local] = int(target.add(instruction, operands, name).id)
        return target.values[local]

    def _finish_inner(self, inner: _Target, outputs: list[int]) -> None:
        """Makes the values that are needed outside the result: one of them as it is, else a tuple."""
        if len(outputs) == 1:
            inner.finish(self._value(inner, outputs[0]))
            return
        new = HloInstructionProto(opcode="tuple")
        new.shape.element_type = DType.TUPLE
        for local in outputs:
            new.shape.tuple_shapes.add().CopyFrom(self.by_id[local].shape)
        parts = [self._value(inner, local) for local in outputs]
        inner.finish(int(inner.add(new, parts, self.writer.unique_name("tuple")).id))

    def _call(self, number: int, inner: _Target, arguments: list[int], outputs: list[int]) -> None:
        """Calls the computation of a group in its place."""
        last = self.by_id[self.groups[number][-1]]
        new = HloInstructionProto(opcode="call")
        if last.metadata:
            new.metadata = last.metadata
        new.called_computation_ids.append(inner.proto.id)
        new.shape.CopyFrom(inner.proto.program_shape.result)
        operands = [self._value(self.outer, local) for local in arguments]
        call = self.outer.add(new, operands, self.writer.unique_name("sequence"))
        self.calls.append(call)
        call.control_predecessor_ids.extend(sorted(set(self._calls_before(number))))
        if len(outputs) == 1:
            self.outer.values[outputs[0]] = int(call.id)
            return
        for position, local in enumerate(outputs):
            new = HloInstructionProto(opcode="get-tuple-element", tuple_index=position)
            new.shape.CopyFrom(self.by_id[local].shape)
            name = self.writer.unique_name("get-tuple-element")
            self.outer.values[local] = int(self.outer.add(new, [int(call.id)], name).id)

    def _calls_before(self, number: int) -> Iterator[int]:
        """Calls of the groups against which a group is ordered."""
        for local in self.groups[number]:
            for before in self.by_id[local].control_predecessor_ids:
                group = self.group_of.get(before & LOCAL_ID, number)
                if group != number:
                    yield int(self.calls[group].id)
