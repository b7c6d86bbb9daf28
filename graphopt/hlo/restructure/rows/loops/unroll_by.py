"""Loops of a known trip count, unrolled by a factor: a quarter of the iterations, each four old ones.

Each of the four is the body as it stands, with its copies and updates in place. What one leaves is what the
next begins with, so that buffers are shared inside each as they were in the body. That whoever reads a
carried value runs before a later iteration overwrites it is seen to afterwards
(`graphopt.hlo.restructure.writing.ordering`), and is always possible, because no iteration needs a later one.
Operations keep the decisions that those of the body have, in all four.
"""

from __future__ import annotations

import json
from typing import Any, Final

from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import LOCAL_ID, ComputationIndex, leaves
from graphopt.hlo.module.opcodes import COLLECTIVES
from graphopt.hlo.module.proto import DType, HloComputationProto
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block, ModuleEditor
from graphopt.hlo.restructure.writing.values import Value

FACTOR: Final = 4
MAX_OPERATIONS: Final = 1200
"""Operations of the new body."""

RULES: Final = {
    "unroll-by-trips": "the trip count is unknown, below eight or no multiple of four",
    "unroll-by-size": "four iterations together are too long",
    "unroll-by-body": "the body holds an operation whose repetitions must keep their order, or no tuple",
}

_ORDERED: Final = COLLECTIVES | frozenset(
    "infeed outfeed rng rng-get-and-update-state send recv after-all add-dependency custom-call".split()
)
"""Operations with effects beyond their results, or that may have some."""

_BODIES: Final = frozenset({"fusion", "while", "conditional", "call"})
"""Operations whose computations XLA wants for themselves; applied functions may be shared."""


def forbids(candidate: Candidate) -> str | None:
    """Why a loop is not unrolled by a factor."""
    trips = backend_config.trip_count(candidate.instruction.backend_config)
    if trips is None or trips < 2 * FACTOR or trips % FACTOR:
        return "unroll-by-trips"
    body = candidate.computations[candidate.graph.source.called[candidate.node][0]]
    if not _passes_a_tuple(body) or not _may_repeat(candidate.computations, body):
        return "unroll-by-body"
    size = _operations(candidate.computations, body)
    return None if size * FACTOR <= MAX_OPERATIONS else "unroll-by-size"


def _passes_a_tuple(body: ComputationIndex) -> bool:
    """True if a body takes its parameter apart and makes its result as a tuple."""
    (parameter,) = (i.local for i in body.instructions if i.opcode == "parameter")
    readers = {i.opcode for i in body.instructions if parameter in i.operands}
    return body.by_id[body.root].opcode == "tuple" and readers <= {"get-tuple-element"}


def _may_repeat(computations: dict[int, ComputationIndex], body: ComputationIndex) -> bool:
    """True if nothing in a computation has effects that other repetitions could come between."""
    for instruction in body.instructions:
        if instruction.opcode in _ORDERED:
            return False
        shape = instruction.shape
        kind = shape.element_type
        if kind == DType.TOKEN:
            return False
        if kind == DType.TUPLE and any(x.element_type == DType.TOKEN for x in leaves(shape)):
            return False
        for callee in instruction.called:
            if not _may_repeat(computations, computations[callee]):
                return False
    return True


def _operations(computations: dict[int, ComputationIndex], body: ComputationIndex) -> int:
    called = [c for instruction in body.instructions for c in instruction.called]
    return len(body.instructions) + sum(_operations(computations, computations[c]) for c in called)


def expand(site: Site) -> Value:
    """The loop with four iterations in its body."""
    block, (initial,) = site.block, site.operands
    condition = site.instruction.called_computation_ids[1]
    inner = Block(block.editor, block.editor.new_computation_id(), block.origin, 1)
    parameter = inner.add("parameter", initial.shape)
    carried = [inner.part(parameter, i) for i in range(len(initial.shape.tuple_shapes))]
    for _ in range(FACTOR):
        carried = _iteration(inner, site.applied, carried)
    inner.finish("unrolled_body", inner.tuple(carried), initial.shape)
    loop = block.clone(site.instruction, [initial])
    block.protos[-1].called_computation_ids[:] = [inner.computation, condition]
    block.protos[-1].backend_config = _fewer_trips(site.instruction.backend_config)
    return loop


def _fewer_trips(data: bytes) -> bytes:
    """The config of the loop, its trip count and step those of the new body."""
    known = json.loads(data)
    known["known_trip_count"]["n"] = str(int(known["known_trip_count"]["n"]) // FACTOR)
    if "known_init_step" in known:
        known["known_init_step"]["step"] = str(int(known["known_init_step"]["step"]) * FACTOR)
    return json.dumps(known, separators=(",", ":")).encode()


def _iteration(block: Block, body: Any, carried: list[Value]) -> list[Value]:
    """The body once more, on other carried values; returns what it leaves."""
    values: dict[int, Value] = {}
    left: list[Value] = []
    parameter = next(i.id & LOCAL_ID for i in body.instructions if i.opcode == "parameter")
    for instruction in body.instructions:
        local = instruction.id & LOCAL_ID
        operands = [o & LOCAL_ID for o in instruction.operand_ids]
        if local == parameter:
            continue
        if operands == [parameter]:
            values[local] = carried[instruction.tuple_index]
        elif instruction.id == body.root_id:
            left = [values[operand] for operand in operands]
        else:
            values[local] = block.clone(instruction, [values[operand] for operand in operands])
            _finish(block, body.id, instruction, values)
    return left


def _finish(block: Block, body: int, instruction: Any, values: dict[int, Value]) -> None:
    """Gives a repeated instruction its order, computations of its own and the node that it is."""
    editor, proto = block.editor, block.protos[-1]
    before = [b & LOCAL_ID for b in instruction.control_predecessor_ids]
    proto.control_predecessor_ids.extend(values[b].id for b in before if b in values)
    proto.metadata = instruction.metadata
    if instruction.opcode in _BODIES:
        proto.called_computation_ids[:] = [
            _cloned(editor, block.origin, c) for c in instruction.called_computation_ids
        ]
    place = (block.computation, proto.id)
    editor.stands_for(place, (body, instruction.id & LOCAL_ID), block.origin)


def _cloned(editor: ModuleEditor, origin: int, computation: int) -> int:
    """A computation again, and what it calls."""
    source = editor.computations[computation]
    out = HloComputationProto()
    out.CopyFrom(source)
    out.id = editor.new_computation_id()
    out.name = f"{source.name}.{out.id}"
    for instruction in out.instructions:
        local = instruction.id & LOCAL_ID
        instruction.name = editor.unique_name(instruction.opcode)
        if instruction.opcode in _BODIES:
            called = [_cloned(editor, origin, c) for c in instruction.called_computation_ids]
            instruction.called_computation_ids[:] = called
        editor.stands_for((out.id, local), (computation, local), origin)
    editor.written.append(out)
    return int(out.id)
