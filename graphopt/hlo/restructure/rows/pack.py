"""Functions of scalars and small arrays, computed together in one array.

XLA:CPU runs LLVM without its SLP vectorizer, and LLVM unrolls a loop of some dozens of elements in full
before its loop vectorizer sees it. So the exponentials of scalars and of small arrays are computed element by
element, in three to ten times what an element of a long array takes. Here equal functions that do not depend
on one another read their arguments from one array, long enough to stay a loop, and their results are slices
of it. Most functions are written out as arithmetic, of which fewer elements are enough (`vector_functions`).

A replaced operation is first written on a flat array and marked (`expand`); once the module is edited and
ordered, `gather` brings marked operations together. Those of one *level*, the number of marked operations on
the longest path to them, never depend on one another, and groups of one level each never form a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import DType, HloInstructionProto
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block, ModuleEditor
from graphopt.hlo.restructure.writing.ordering import sort_instructions
from graphopt.hlo.restructure.writing.values import Value
from graphopt.hlo.restructure.writing.vector_functions import LENGTHS, write_function

RULES: Final = {
    "pack-function": "the function has no vector code for this type",
    "pack-size": "the array is long enough for vector code, or empty",
}

FUNCTIONS: Final[dict[str, frozenset[int]]] = {
    "erf": frozenset({DType.F32}),
    "exponential": frozenset({DType.F32, DType.F64}),
    "exponential-minus-one": frozenset({DType.F32, DType.F64}),
    "log": frozenset({DType.F32, DType.F64}),
    "log-plus-one": frozenset({DType.F32, DType.F64}),
    "logistic": frozenset({DType.F32, DType.F64}),
    "tanh": frozenset({DType.F32, DType.F64}),
}
"""Functions, and the types for which an element in vector code takes at most half of one in scalar code."""

MAX_ROW: Final = 32
"""Longest rows that LLVM unrolls in full where little else is computed with an element."""

MAX_ELEMENTS: Final = 256
"""Largest array: of more, copying costs as much as it saves."""

MIN_PACKED: Final = 64
"""Elements of a packed array, unused ones included: LLVM leaves a loop of so many calls alone."""

VECTOR: Final = MappingProxyType({DType.F32: 8, DType.F64: 4})
"""Arithmetic is done for so many elements at once."""


def packed_length(name: str, dtype: int, sizes: Sequence[int]) -> int:
    """Elements of a packed array, unused ones included, by those of its members.

    One member is read where it is if it is long enough; its last elements then are scalar code, which takes
    less than a copy.
    """
    elements = sum(sizes)
    if name not in LENGTHS:
        return max(MIN_PACKED, elements)
    least, vector = LENGTHS[name][dtype], VECTOR[DType(dtype)]
    if len(sizes) == 1 and elements >= least:
        return elements
    return max(least, -(-elements // vector) * vector)


def forbids(candidate: Candidate) -> str | None:
    """Why a function is not computed together with others."""
    shape = candidate.shape
    name = candidate.graph.ops[candidate.node].name
    if shape.element_type not in FUNCTIONS.get(name, ()):
        return "pack-function"
    if not candidate.has_default_layouts():
        return "layout"
    dims = tuple(shape.dimensions)
    row = next((n for n in reversed(dims) if n > 1), 1)
    small = 1 <= prod(dims) <= MAX_ELEMENTS and row <= MAX_ROW
    return None if small else "pack-size"


def expand(site: Site) -> Value:
    """The same function of the flat array, marked in `ModuleEditor.packed`."""
    block, (operand,) = site.block, site.operands
    flat = block.bitcast(operand, (prod(operand.dims),))
    out = block.clone(site.instruction, [flat], flat.shape)
    block.editor.packed.add(block.protos[-1].name)
    return block.bitcast(out, operand.dims)


def gather(module: Any, editor: ModuleEditor) -> None:
    """Brings the marked operations of every computation together.

    Args:
        module: ``HloModuleProto`` whose dependencies, control dependencies included, guarantee its in-place
            promises, and whose instructions are in topological order; changed in place.
        editor: that wrote the marked operations; records the new ones.
    """
    for computation in module.computations:
        marked = [i.id & LOCAL_ID for i in computation.instructions if i.name in editor.packed]
        if marked:
            _Gathering(computation, editor, set(marked)).run()


class _Gathering:
    """Packs the marked operations of one computation."""

    def __init__(self, computation: Any, editor: ModuleEditor, marked: set[int]) -> None:
        self.computation = computation
        self.editor = editor
        self.marked = marked
        self.by_id = {i.id & LOCAL_ID: i for i in computation.instructions}
        self.slices: dict[int, tuple[int, int]] = {}
        """Marked operation, now a slice -> the packed operation, and where it begins there."""

    def run(self) -> None:
        """Rewrites the computation, its instructions in topological order again."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for local, level in self._levels().items():
            groups.setdefault((level, *_kind(self.by_id[local])), []).append(local)
        for _, members in sorted(groups.items(), key=lambda item: item[0][0]):
            self._pack(members)
        sort_instructions(self.computation)
        self._drop_unread_slices()

    def _levels(self) -> dict[int, int]:
        """Marked operation -> number of marked operations before it on the longest path to it."""
        level: dict[int, int] = {}
        for instruction in self.computation.instructions:
            before = (*instruction.operand_ids, *instruction.control_predecessor_ids)
            local = instruction.id & LOCAL_ID
            level[local] = max(
                (level[b & LOCAL_ID] + ((b & LOCAL_ID) in self.marked) for b in before), default=0
            )
        return {local: level[local] for local in level if local in self.marked}

    def _pack(self, members: list[int]) -> None:
        first = self.by_id[members[0]]
        origin = self.editor.fresh[self.computation.id, members[0]]
        block = Block(self.editor, self.computation.id, origin, max(self.by_id) + 1)
        members, argument = self._argument(block, members)
        own = len(block.protos)
        if first.opcode in LENGTHS:
            packed = write_function(block, first.opcode, argument)
        else:
            packed = block.clone(first, [argument], argument.shape)
        new = [(self.computation.id, proto.id) for proto in block.protos]
        self.editor.alone.update((*new[:own], new[-1]))
        self.editor.fused.update(new[own:-1])
        self.computation.instructions.extend(block.protos)
        self.by_id = {i.id & LOCAL_ID: i for i in self.computation.instructions}
        start = 0
        for local in members:
            self._become_slice(self.by_id[local], packed.id, start)
            start += self.by_id[local].shape.dimensions[0]

    def _argument(self, block: Block, members: list[int]) -> tuple[list[int], Value]:
        """The members in the order of their arguments, and these as one array."""
        operand = {m: self.by_id[m].operand_ids[0] & LOCAL_ID for m in members}
        sources = {self.slices.get(self._same_memory(operand[m]), (-1, 0))[0] for m in members}
        if len(sources) == 1 and -1 not in sources:
            (source,) = sources
            begin = {m: self.slices[self._same_memory(operand[m])][1] for m in members}
            ordered = sorted(members, key=begin.__getitem__)
            if self._are_all(ordered, begin):
                return ordered, Value(source, self.by_id[source].shape)
        parts = [Value(operand[m], self.by_id[m].shape) for m in members]
        sizes = [part.dims[0] for part in parts]
        name = self.by_id[members[0]].opcode
        missing = packed_length(name, parts[0].dtype, sizes) - sum(sizes)
        if missing > 0:
            parts.append(block.zeros(parts[0].dtype, missing))
        return members, block.concatenate(parts, 0)

    def _same_memory(self, local: int) -> int:
        """The value that bitcasts give other dimensions."""
        while self.by_id[local].opcode == "bitcast":
            local = self.by_id[local].operand_ids[0] & LOCAL_ID
        return local

    def _are_all(self, ordered: list[int], begin: dict[int, int]) -> bool:
        """True if slices follow one another without a gap from the start of a packed array."""
        expected = 0
        for local in ordered:
            if begin[local] != expected:
                return False
            expected += self.by_id[local].shape.dimensions[0]
        return True

    def _become_slice(self, member: Any, packed: int, start: int) -> None:
        (size,) = member.shape.dimensions
        # A slice of all is no operation that XLA leaves, and in native code its result is never written.
        whole = self.by_id[packed].shape.dimensions[0] == size
        opcode = "bitcast" if whole else "slice"
        out = HloInstructionProto(name=member.name, opcode=opcode, id=member.id)
        out.shape.CopyFrom(member.shape)
        out.operand_ids.append(packed)
        out.control_predecessor_ids.extend(member.control_predecessor_ids)
        if not whole:
            out.slice_dimensions.add(start=start, limit=start + size, stride=1)
        if member.metadata:
            out.metadata = member.metadata
        local = member.id & LOCAL_ID
        self.slices[local] = (packed, start)
        self.editor.fused.add((self.computation.id, local))
        member.CopyFrom(out)

    def _drop_unread_slices(self) -> None:
        """Removes slices, and views of them, that only a packed operation read."""
        instructions = self.computation.instructions
        read = {self.computation.root_id & LOCAL_ID}
        for position in range(len(instructions) - 1, -1, -1):
            instruction = instructions[position]
            local = instruction.id & LOCAL_ID
            new = (self.computation.id, local) in self.editor.fresh
            if local not in read and new and instruction.opcode in ("slice", "bitcast"):
                del instructions[position]
                continue
            before = (*instruction.operand_ids, *instruction.control_predecessor_ids)
            read.update(b & LOCAL_ID for b in before)


def _kind(instruction: Any) -> tuple[Any, ...]:
    """What operations must have in common to be computed as one."""
    same = HloInstructionProto()
    same.CopyFrom(instruction)
    for field in ("name", "id", "operand_ids", "control_predecessor_ids", "metadata", "shape"):
        same.ClearField(field)
    return instruction.opcode, instruction.shape.element_type, same.SerializeToString()
