"""Turns ordered drafts into the columns of a `Graph`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from graphopt.hlo.graph.buffers import Value
from graphopt.hlo.graph.decisions import FIELDS, Decisions
from graphopt.hlo.graph.drafts import Draft, Drafts
from graphopt.hlo.graph.graph import Computation, Graph, InPlace, Source
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import Role, leaves
from graphopt.hlo.module.opcodes import OP_BY_NAME
from graphopt.hlo.module.proto import DTYPE_BYTES, DType, ShapeProto
from graphopt.hlo.module.schedule import read_schedule
from graphopt.machine import Unit, UnitKind


def make_graph(made: Drafts, units: tuple[Unit, ...]) -> Graph:
    """The graph of finished drafts, over the given execution units."""
    order = [node for nodes in made.order for node in nodes]
    drafts = [made.drafts[node] for node in order]
    new = {old: i for i, old in enumerate(order)}
    operands = [[new[o] for o in draft.operands] for draft in drafts]
    computations = _computations(made, new)
    columns, layouts = _shape_columns([draft.instruction.shape_key for draft in drafts])
    control = [(new[b], i) for i, draft in enumerate(drafts) for b in draft.control]
    return Graph(
        name=made.module.proto.name,
        units=units,
        opcode=np.array([OP_BY_NAME[d.opcode].code for d in drafts], np.int16),
        **columns,
        operand_start=_starts(operands),
        operands=np.array([o for row in operands for o in row], np.int32),
        control=np.array(control, np.int32).reshape(-1, 2),
        computation=np.array([d.computation for d in drafts], np.int32),
        computations=computations,
        default=_default_decisions(drafts, units),
        in_place=_in_place(made, drafts, operands, new, computations),
        source=_source(made, drafts, order, layouts, new),
    )


def _starts(rows: Sequence[Sequence[int]]) -> Any:
    return np.cumsum([0, *map(len, rows)], dtype=np.int32)


@lru_cache(maxsize=16_384)
def _facts_of(key: bytes) -> tuple[int, int, int, tuple[int, ...], tuple[int, ...]]:
    """Element type, elements, bytes, dimensions and layout (none for a tuple) of a serialised shape."""
    shape = ShapeProto.FromString(key)
    count = size = 0
    for part in leaves(shape):
        product = prod(part.dimensions)
        count += product
        size += product * DTYPE_BYTES.get(part.element_type, 0)
    kind = int(shape.element_type)
    if kind == DType.TUPLE:
        return kind, count, size, (), ()
    return kind, count, size, tuple(shape.dimensions), tuple(shape.layout.minor_to_major)


def _shape_columns(shapes: list[bytes]) -> tuple[dict[str, Any], list[tuple[int, ...]]]:
    """Columns, and the layout of every node, from serialised shapes."""
    rows = [_facts_of(shape) for shape in shapes]
    dtype, elements, nbytes, dims, layouts = zip(*rows, strict=True) if rows else ((),) * 5
    columns = {
        "dtype": np.array(dtype, np.int8),
        "elements": np.array(elements, np.int64),
        "nbytes": np.array(nbytes, np.int64),
        "dim_start": _starts(dims),
        "dims": np.array([d for row in dims for d in row], np.int64),
    }
    return columns, list(layouts)


def _computations(made: Drafts, new: dict[int, int]) -> tuple[Computation, ...]:
    index_of = {owner.id: i for i, owner in enumerate(made.owners)}
    out = []
    first = 0
    for owner, nodes in zip(made.owners, made.order, strict=True):
        caller = parent = trips = None
        if owner.caller is not None:
            local, caller_id = _outer_caller(made, owner.caller)
            caller = new[made.values[caller_id, local]]
            parent = index_of[caller_id]
            trips = 1
            if owner.role in (Role.LOOP_BODY, Role.LOOP_CONDITION):
                loop = made.module.computations[owner.caller[1]].by_id[owner.caller[0]]
                trips = backend_config.trip_count(loop.proto.backend_config)
        out.append(
            Computation(
                name=owner.proto.name,
                id=owner.id,
                role=owner.role,
                first=first,
                end=first + len(nodes),
                root=new[made.values[owner.id, owner.root]],
                caller=caller,
                parent=parent,
                trip_count=trips,
            )
        )
        first += len(nodes)
    return tuple(out)


def _outer_caller(made: Drafts, caller: tuple[int, int]) -> tuple[int, int]:
    """The caller, or the small call around it where that call was dissolved."""
    local, owner_id = caller
    if (owner_id, local) in made.values:
        return caller
    outer = made.module.computations[owner_id].caller
    assert outer is not None  # only the body of a dissolved call has no nodes of its own
    return outer


def _default_decisions(drafts: list[Draft], units: tuple[Unit, ...]) -> Decisions:
    unit_of = {(u.kind, u.threads): i for i, u in reversed(list(enumerate(units)))}
    by_kind = {u.kind: i for i, u in reversed(list(enumerate(units)))}
    cores = max(u.threads for u in units if u.kind is UnitKind.LOOP)
    chosen = [
        unit_of.get((UnitKind.LOOP, min(d.threads, cores)), by_kind[d.kind])
        if d.kind is UnitKind.LOOP
        else by_kind[d.kind]
        for d in drafts
    ]
    decisions = Decisions(
        fuse=np.array([d.fused for d in drafts], np.bool_),
        join=np.zeros(len(drafts), np.bool_),
        unit=np.array(chosen, np.int16),
    )
    for field in FIELDS:  # the reference for size limits and reports: a policy edits a copy
        getattr(decisions, field).flags.writeable = False
    return decisions


def _source(
    made: Drafts,
    drafts: list[Draft],
    order: list[int],
    layouts: list[tuple[int, ...]],
    new: dict[int, int],
) -> Source:
    return Source(
        module=made.module,
        instructions=[d.instruction for d in drafts],
        keep_config=[d.keep_config for d in drafts],
        layouts=layouts,
        called=[d.called for d in drafts],
        config=[d.config for d in drafts],
        bare=[d.bare for d in drafts],
        position=_positions(made, drafts, order),
        frozen=[d.frozen for d in drafts],
        instances=[tuple(d.instances) for d in drafts],
        values={key: new[draft] for key, draft in made.values.items() if draft in new},
    )


def _positions(made: Drafts, drafts: list[Draft], order: list[int]) -> list[int]:
    """Rank of every node by schedule; nodes of one fusion follow each other in the order of `order`."""
    module, schedule = made.module, read_schedule(made.module)
    keys = []
    for draft, number in zip(drafts, order, strict=True):
        owner, local = draft.instances[0]
        while (owner, local) not in made.values:  # inside a fusion, or a dissolved call
            caller = module.computations[owner].caller
            assert caller is not None
            local, owner = caller
        keys.append((draft.computation, schedule[owner][local], number))
    positions = [0] * len(drafts)
    for rank, node in enumerate(sorted(range(len(drafts)), key=keys.__getitem__)):
        positions[node] = rank
    return positions


def _in_place(
    made: Drafts,
    drafts: list[Draft],
    operands: list[list[int]],
    new: dict[int, int],
    computations: tuple[Computation, ...],
) -> InPlace:
    count = len(drafts)
    reads, zone, before = [0] * count, [0] * count, [0] * count
    writers: list[tuple[int, ...]] = []
    for owner, computation in zip(made.owners, computations, strict=True):
        bit_of_source: dict[Value, int] = {}
        here: list[int] = []
        for hazard in made.analysis.hazards[owner.id]:
            writer = new.get(made.values[owner.id, hazard.writer])
            if writer is None:
                continue
            bit = 1 << len(here)
            here.append(writer)
            bit_of_source[hazard.source] = bit_of_source.get(hazard.source, 0) | bit
            _mark_cluster(drafts, operands, writer, bit, zone)
            before[writer] |= bit
        writers.append(tuple(here))
        if not here:
            continue
        for node in range(computation.end - 1, computation.first - 1, -1):
            draft = drafts[node]
            for value in draft.reads:
                reads[node] |= bit_of_source.get(value, 0)
            if before[node]:
                for earlier in operands[node]:
                    before[earlier] |= before[node]
                for earlier in draft.control:
                    before[new[earlier]] |= before[node]
    return InPlace(tuple(writers), reads, zone, before)


def _mark_cluster(
    drafts: list[Draft], operands: list[list[int]], root: int, bit: int, zone: list[int]
) -> None:
    """Sets `bit` on the nodes of the default cluster rooted at `root`."""
    stack = [root]
    while stack:
        node = stack.pop()
        if zone[node] & bit:
            continue
        zone[node] |= bit
        stack.extend(o for o in operands[node] if drafts[o].fused)
