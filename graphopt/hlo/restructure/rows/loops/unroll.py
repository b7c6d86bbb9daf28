"""Short loops with a known trip count, written out: all iterations one after the other.

The body must only compute: no update in place, no inner loop, no call of the runtime. Then every value
of every iteration is a value of its own, nothing is overwritten, and XLA's copies between the
iterations, and the order that it gave them, are not needed. Clusters of the body stay clusters of
each iteration, unless all goes element by element: then the iterations are one kernel
(`graphopt.hlo.replace.chains`). What is known before the loop, such as its counter, is computed while
writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Final

from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import LOCAL_ID, ComputationIndex, leaves
from graphopt.hlo.module.opcodes import OP_BY_NAME, OpKind
from graphopt.hlo.module.proto import DType, HloComputationProto
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.folding import Folder, value_of, write_known
from graphopt.hlo.restructure.writing.values import Value

MAX_TRIPS: Final = 8
MAX_OPERATIONS: Final = 600
"""Operations of all iterations together."""

MIN_NESTED_ELEMENTS: Final = 16
"""Inside loops, which become native code, kernels of fewer elements had best be short."""

RULES: Final = {
    "unroll-trips": "the trip count is unknown or too large",
    "unroll-size": "the iterations together are too long",
    "unroll-body": "the body does more than compute new arrays",
}

_VIEWS: Final = frozenset({"broadcast", "bitcast", "copy", "reshape"})

_ALIKE: Final = (OpKind.STRUCTURE, OpKind.ELEMENTWISE)
"""Kinds of operations that read arrays at the place that they write, if they read any."""


def forbids(candidate: Candidate) -> str | None:
    """Why a loop cannot be written out."""
    body = candidate.graph.source.called[candidate.node][0]
    return forbids_loop(candidate.instruction, candidate.computations[body], candidate.computations)


def forbids_loop(
    loop: Any, body: ComputationIndex, computations: dict[int, ComputationIndex]
) -> str | None:
    """Why a loop with a certain body cannot be written out; `loop` is its ``HloInstructionProto``."""
    trips = backend_config.trip_count(loop.backend_config)
    if trips is None or not 1 <= trips <= MAX_TRIPS:
        return "unroll-trips"
    size = 0
    for instruction in body.instructions:
        inside = _inside(computations, instruction)
        if inside is None:
            return "unroll-body"
        size += inside
    return None if size * trips <= MAX_OPERATIONS else "unroll-size"


def _inside(computations: dict[int, ComputationIndex], instruction: Any) -> int | None:
    """Operations of an instruction, those of a fusion counted; None if it may not be repeated."""
    opcode = instruction.opcode
    if opcode == "fusion":
        if instruction.proto.fusion_kind != "kLoop":
            return None
        body = computations[instruction.called[0]]
        return len(body.instructions) if all(map(_computes, body.instructions)) else None
    return 1 if _computes(instruction) else None


def _computes(instruction: Any) -> bool:
    opcode = instruction.opcode
    if opcode == "get-tuple-element" or opcode in ("parameter", "tuple", "constant"):
        return all(leaf.element_type != DType.TOKEN for leaf in leaves(instruction.shape))
    op = OP_BY_NAME.get(opcode)
    pure = (OpKind.ELEMENTWISE, OpKind.INDEXED, OpKind.REDUCING)
    return op is not None and op.kind in pure and opcode != "dynamic-update-slice"


def expand(site: Site) -> Value:
    """Writes every iteration; returns the tuple of what the last one leaves."""
    trips = backend_config.trip_count(site.instruction.backend_config)
    assert trips is not None  # `forbids`
    block, body = site.block, site.applied
    shapes = site.operands[0].shape.tuple_shapes
    folder = Folder(block)
    carried = [_initial(site, folder, i) for i in range(len(shapes))]
    initial, first = carried, len(block.editor.written)
    for _ in range(trips):
        carried = _iteration(site, body, carried, folder)
    result = block.tuple([_written_last(site, i, x, initial) for i, x in enumerate(carried)])
    elements = chain_elements(body, site.computations.__getitem__)
    if elements is not None and (elements >= MIN_NESTED_ELEMENTS or not site.nested):
        _mark_chain(block, elements, first)
    return result


def chain_elements(body: Any, computations: Callable[[int], Any]) -> int | None:
    """Elements of the arrays that a body computes, all element by element; None for other bodies.

    Args:
        body: ``HloComputationProto`` of a loop that may be written out.
        computations: computation id -> proto, for the bodies of fusions.
    """
    most, by_id = 1, {i.id & LOCAL_ID: i for i in body.instructions}
    for instruction in body.instructions:
        if instruction.opcode == "fusion":
            inside = chain_elements(
                computations(instruction.called_computation_ids[0]), computations
            )
            if inside is None:
                return None
            most = max(most, inside)
        elif instruction.shape.element_type != DType.TUPLE:
            elements = prod(instruction.shape.dimensions)
            op = OP_BY_NAME[instruction.opcode]
            alike = op.kind in _ALIKE or op.name == "broadcast"
            if elements > 1 and not alike and not _keeps_order(instruction, by_id):
                return None
            if op.kind is OpKind.ELEMENTWISE and op.name != "copy":
                most = max(most, elements)
    return most


def _keeps_order(instruction: Any, by_id: dict[int, Any]) -> bool:
    """True for a view whose elements stand where they stood, dimensions of one element aside."""
    if instruction.opcode != "bitcast":
        return False
    operand = by_id[instruction.operand_ids[0] & LOCAL_ID]
    before, after = ([n for n in i.shape.dimensions if n != 1] for i in (operand, instruction))
    return before == after


def _mark_chain(block: Block, elements: int, first: int) -> None:
    """Makes operations on so many elements, those in bodies from `first` on among them, few kernels."""
    bodies = [(body.id, body.instructions) for body in block.editor.written[first:]]
    written = [*bodies, (block.computation, block.protos)]
    if not all(_shifts_by_constants(instructions) for _, instructions in written):
        return
    for computation, instructions in written:
        for instruction in instructions:
            array = instruction.shape.element_type != DType.TUPLE
            if array and prod(instruction.shape.dimensions) == elements:
                block.editor.chained.add((computation, instruction.id & LOCAL_ID))


def _shifts_by_constants(instructions: Iterable[Any]) -> bool:
    """True without shifts by amounts that are not known: LLVM does not end with long chains of such."""
    by_id = {i.id & LOCAL_ID: i for i in instructions}
    for instruction in by_id.values():
        if instruction.opcode.startswith("shift-"):
            amount = by_id.get(instruction.operand_ids[1] & LOCAL_ID)
            while amount is not None and amount.opcode in _VIEWS:
                amount = by_id.get(amount.operand_ids[0] & LOCAL_ID)
            if amount is None or amount.opcode != "constant":
                return False
    return True


def _initial(site: Site, folder: Folder, position: int) -> Value:
    """What a loop starts with; known where it is a small constant, or the copy of one."""
    value = site.block.part(site.operands[0], position)
    made = site.instructions.get(site.operands[0].id)
    if made is not None and made.opcode == "tuple":
        source = site.instructions[made.operand_ids[position] & LOCAL_ID]
        while source.opcode == "copy":
            source = site.instructions[source.operand_ids[0] & LOCAL_ID]
        known = value_of(source) if source.opcode == "constant" else None
        if known is not None:
            folder.known[value.id] = known
    return value


def _written_last(site: Site, position: int, result: Value, initial: list[Value]) -> Value:
    """The result, copied if an enclosing loop might carry it in the buffer of an initial value.

    Inside the body, values may change places, so that an initial value is still read after the
    result that takes its buffer was computed.
    """
    if result == initial[position]:
        return result
    made = site.instructions.get(site.operands[0].id)
    if made is not None and made.opcode == "tuple":
        source = site.instructions[made.operand_ids[position] & LOCAL_ID]
        if source.opcode == "copy" or _makes_a_buffer(site, source):
            return result
    return site.block.copy(result)


def _makes_a_buffer(site: Site, fusion: Any) -> bool:
    """True for a fusion that does not update an operand in place."""
    if fusion.opcode != "fusion":
        return False
    body = site.computations[fusion.called_computation_ids[0]]
    root = next(i for i in body.instructions if i.id == body.root_id)
    op = OP_BY_NAME.get(root.opcode)
    return op is not None and op.kind in (OpKind.ELEMENTWISE, OpKind.REDUCING)


def _iteration(site: Site, body: Any, carried: list[Value], folder: Folder) -> list[Value]:
    block = site.block
    values: dict[int, Value | list[Value]] = {}
    for instruction in body.instructions:
        local = instruction.id & LOCAL_ID
        operands = [values[o & LOCAL_ID] for o in instruction.operand_ids]
        if instruction.opcode == "parameter":
            values[local] = carried
        elif instruction.opcode == "tuple":
            values[local] = [_array(block, o) for o in operands]
        elif instruction.opcode == "get-tuple-element":
            source = operands[0]
            if isinstance(source, list):
                values[local] = source[instruction.tuple_index]
            else:
                values[local] = _part(block, folder, source, instruction)
        elif instruction.opcode == "copy" and _same_layout(instruction, operands[0]):
            values[local] = operands[0]
        else:
            found = folder.fold(instruction, operands)
            if found is None:
                arrays = [_array(block, o) for o in operands]
                found = _cloned(site, instruction, arrays, folder)
            values[local] = found
    result = values[body.root_id & LOCAL_ID]
    if isinstance(result, list):
        return result
    return [block.part(result, i) for i in range(len(result.shape.tuple_shapes))]


def _array(block: Block, value: Value | list[Value]) -> Value:
    return block.tuple(value) if isinstance(value, list) else value


def _same_layout(instruction: Any, operand: Value | list[Value]) -> bool:
    if isinstance(operand, list):
        return False
    return bool(instruction.shape.layout.minor_to_major == operand.shape.layout.minor_to_major)


def _part(block: Block, folder: Folder, source: Value, element: Any) -> Value:
    """An element of a tuple-shaped value, as a constant where it is known."""
    known = folder.parts.get(source.id, {}).get(element.tuple_index)
    if known is not None:
        return folder.constant(known, element.shape)
    return block.part(source, element.tuple_index)


def _cloned(site: Site, instruction: Any, operands: list[Value], folder: Folder) -> Value:
    """The instruction again; a fusion with a body of its own, in which known values are constants."""
    if instruction.opcode != "fusion":
        return site.block.clone(instruction, operands)
    given = site.computations[instruction.called_computation_ids[0]]
    known = folder.known_in(given, operands)
    whole = known.get(given.root_id & LOCAL_ID)
    if whole is not None:
        return folder.constant(whole, instruction.shape)
    body = _cloned_body(site.block, given)
    write_known(body, known)
    root = next(i for i in body.instructions if i.id == body.root_id)
    _register(site.block, body)
    value = site.block.clone(instruction, operands)
    site.block.protos[-1].called_computation_ids[:] = [body.id]
    if root.opcode == "tuple":
        folder.parts[value.id] = {
            position: known[o & LOCAL_ID]
            for position, o in enumerate(root.operand_ids)
            if o & LOCAL_ID in known
        }
    return value


def _cloned_body(block: Block, body: Any) -> Any:
    proto = HloComputationProto()
    proto.CopyFrom(body)
    proto.id = block.editor.new_computation_id()
    proto.name = f"{body.name}.{proto.id}"
    return proto


def _register(block: Block, body: Any) -> None:
    """Makes a cloned body a computation of the module, its instructions new ones."""
    for instruction in body.instructions:
        instruction.name = block.editor.unique_name(instruction.opcode)
        block.editor.fresh[body.id, instruction.id & LOCAL_ID] = block.origin
    block.editor.written.append(body)
