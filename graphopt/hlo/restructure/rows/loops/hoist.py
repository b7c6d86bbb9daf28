"""What every iteration of a loop computes anew, computed for all of them in front of the loop.

Random numbers are the case that matters: drawn from one key per iteration, or from the counter, they
depend on nothing that earlier iterations left. Drawn together they fill vectors and cores; drawn in the
loop they are a hundred integer operations on a few elements, again and again. Inner loops (the rounds of
the generator) must have been written out: `unroll` comes first.

The loop then carries the arrays, reads one row per iteration, and computes only the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.hlo.restructure.rows.loops.unroll import forbids_loop
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.batched import Item, Known, Reader, depth_within
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.depths import Depth, reaches
from graphopt.hlo.restructure.writing.passing import (
    kept_places,
    parameter_of,
    predecessors,
    set_instructions,
    set_parameter,
)
from graphopt.hlo.restructure.writing.values import Value, is_row_major, tuple_shape

MAX_TRIPS: Final = 1 << 14
MIN_DEPTH: Final = 30.0
"""Additions per element below which a value is not worth an array, that is a store and a load; a power is."""

MAX_BYTES: Final = 1 << 24
"""Most bytes of all arrays that one loop reads its rows from."""

MAX_AGAIN: Final = 8.0
"""Additions per element that the loop computes again where that makes the array smaller."""

MAX_STEPS: Final = 16
"""Operations that are looked back at for smaller values."""

RULES: Final = {
    "hoist-trips": "the trip count is unknown or too large, or the counter does not count by one",
    "hoist-nothing": "no iteration computes much that is known before the loop",
    "hoist-memory": "the values of all iterations together are too large",
}


@dataclass(frozen=True)
class Loop:
    """A loop whose iterations are counted.

    Attributes:
        trips: iterations.
        counter: place of the counter in the carried tuple.
        first: its first value; it grows by one.
        constant: places that every iteration leaves as they are.
        body: ``HloComputationProto``.
    """

    trips: int
    counter: int
    first: int
    constant: frozenset[int]
    body: Any


def read_loop(instruction: Any, body: Any) -> Loop | None:
    """The loop of a ``while`` instruction; None if it is not counted, or its body is unusual."""
    trips = backend_config.trip_count(instruction.backend_config)
    counter = backend_config.counter(instruction.backend_config)
    if trips is None or not 2 <= trips <= MAX_TRIPS or counter is None or counter[2] != 1:
        return None
    by_id = {i.id & LOCAL_ID: i for i in body.instructions}
    if by_id[body.root_id & LOCAL_ID].opcode != "tuple":
        return None
    return Loop(trips, counter[0], counter[1], kept_places(body) - {counter[0]}, body)


@dataclass(frozen=True)
class Plan:
    """What of a loop is computed ahead.

    Attributes:
        rows: node of the body -> its item, of what the loop reads instead of computing it.
        loops: inner loops that must be written out for that.
        trips: iterations.
    """

    rows: dict[int, Item]
    loops: tuple[int, ...]
    trips: int

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.trips * sum(map(_bytes, self.rows.values()))

    @property
    def work(self) -> float:
        """About how many additions are computed ahead, in all iterations together."""
        return self.trips * sum(prod(row.dims) * row.depth for row in self.rows.values())


def forbids(candidate: Candidate) -> str | None:
    """Why nothing of a loop can be computed ahead of it."""
    plan = plan_of(candidate)
    if plan is None:
        return "hoist-trips"
    if not plan.rows:
        return "hoist-nothing"
    return "hoist-memory" if plan.nbytes > MAX_BYTES else None


def behind(candidate: Candidate) -> list[int]:
    """Nodes of the body that the loop will read instead of computing them; they are put in memory."""
    plan = plan_of(candidate)
    return [] if plan is None else list(plan.rows)


@per_graph
def _plans(graph: Graph) -> dict[int, Plan | None]:
    """Plans made for loops of a graph, by node."""
    return {}


def plan_of(candidate: Candidate) -> Plan | None:
    """What of a loop can be computed ahead; None if its iterations are not counted."""
    known = _plans(candidate.graph)
    if candidate.node not in known:
        known[candidate.node] = _make_plan(candidate)
    return known[candidate.node]


def _make_plan(candidate: Candidate) -> Plan | None:
    graph = candidate.graph
    loop = read_loop(candidate.instruction, candidate.applied)
    if loop is None:
        return None
    computations = candidate.computations
    known_before: list[Depth] = [None] * len(parameter_of(loop.body).shape.tuple_shapes)
    for place in (*loop.constant, loop.counter):
        known_before[place] = 0.0
    if not reaches(computations, loop.body.id, [known_before], MIN_DEPTH):
        return Plan({}, (), loop.trips)

    def inner(instruction: Any, operands: list[Known]) -> Known:
        called = computations[instruction.called_computation_ids[0]]
        if forbids_loop(instruction, called, computations) is not None:
            return None
        return _written_out(instruction, operands)

    reader = Reader(loop.trips, lambda c: computations[c].proto, inner)
    reader.body(loop.body, [_carried(loop, parameter_of(loop.body).shape, None)])
    known = {
        node: reader.seen.get(instances[0]) if instances else None
        for node, instances in enumerate(graph.source.instances)
    }
    read = _rows_read(graph, known)
    rows = {row for node in read for row in _cut(node, known, lambda n: graph.operand_lists[n])}
    loops = (n for n, k in known.items() if isinstance(k, list) and graph.ops[n].name == "while")
    items = {row: item for row in sorted(rows) if isinstance(item := known[row], Item)}
    return Plan(items, tuple(loops), loop.trips)


def _rows_read(graph: Graph, known: Mapping[int, Known]) -> list[int]:
    """Values worth an array that the loop needs, directly or for cheap values that it computes again."""
    waiting = [o for node, item in known.items() if item is None for o in graph.operand_lists[node]]
    seen: set[int] = set()
    rows = []
    while waiting:
        node = waiting.pop()
        item = known[node]
        if node in seen or not isinstance(item, Item) or not item.varying:
            continue
        seen.add(node)
        if _is_row(item):
            rows.append(node)
        else:
            waiting += graph.operand_lists[node]
    return rows


def _written_out(instruction: Any, operands: list[Known]) -> Known:
    """The result of an inner loop that will have been written out."""
    parts = operands[0]
    if not isinstance(parts, list):
        return None
    items = [p for p in parts if isinstance(p, Item)]
    if len(items) < len(parts):
        return None
    depth = MIN_DEPTH + max(i.depth for i in items)
    varying = any(i.varying for i in items)
    return [Item(i.shape, varying, depth) for i in items]


def _bytes(array: Item | Value) -> int:
    return prod(array.dims) * DTYPE_BYTES.get(array.shape.element_type, 1)


def _carried(loop: Loop, shape: Any, write: tuple[Block, Value] | None) -> list[Known]:
    """What is known of the carried tuple: what never changes, and the counter."""
    known: list[Known] = [None] * len(shape.tuple_shapes)
    for place in loop.constant:
        part = shape.tuple_shapes[place]
        if part.element_type not in (DType.TUPLE, DType.TOKEN) and is_row_major(part):
            value = None if write is None else write[0].part(write[1], place)
            known[place] = Item(part, False, value=value)
    part = shape.tuple_shapes[loop.counter]
    numbers = np.arange(loop.first, loop.first + loop.trips)
    value = None
    if write is not None:
        block = write[0]
        value = block.convert(block.iota([loop.trips], 0), part.element_type)
        if loop.first:
            first = block.constant(part.element_type, loop.first)
            value = block.op("add", value, block.broadcast(first, value.dims))
    known[loop.counter] = Item(part, True, sequence=numbers, value=value)
    return known


def _is_row(known: Known) -> bool:
    return isinstance(known, Item) and known.varying and known.depth >= MIN_DEPTH


def _cut(
    place: int, known: Mapping[int, Known], operands: Callable[[int], Sequence[int]]
) -> frozenset[int]:
    """Where to stop computing ahead: at the value, or at smaller ones that lead to it in a few operations."""

    def item(value: int) -> Item:
        found = known[value]
        assert isinstance(found, Item)
        return found

    def size(values: frozenset[int]) -> int:
        return sum(_bytes(item(value)) for value in values)

    best = values = frozenset([place])
    for _ in range(MAX_STEPS):
        last = max(values, key=lambda value: item(value).depth)
        before = frozenset(o for o in operands(last) if _is_row(known[o]))
        values = (values - {last}) | before
        if not before:
            break
        again = item(place).depth - min(depth_within(item(place).shape, item(v)) for v in values)
        if again > MAX_AGAIN:
            break
        if size(values) < size(best):
            best = values
    return best


def _live(body: Any, known: dict[int, Known]) -> tuple[set[int], set[int]]:
    """Local ids of what the body still computes, and of the values that it reads instead."""
    by_id = {i.id & LOCAL_ID: i for i in body.instructions}

    def operands(local: int) -> list[int]:
        return [o & LOCAL_ID for o in by_id[local].operand_ids]

    stack = [body.root_id & LOCAL_ID, *(local for local, k in known.items() if k is None)]
    kept: set[int] = set()
    rows: set[int] = set()
    while stack:
        local = stack.pop()
        if local in kept or local in rows:
            continue
        if _is_row(known[local]) and _cut(local, known, operands) == {local}:
            rows.add(local)
            continue
        kept.add(local)
        stack += operands(local)
    kept |= {local for local, i in by_id.items() if i.opcode == "parameter"}
    return kept, rows


def expand(site: Site) -> Value:
    """Writes the arrays, and the loop that reads them; its body is changed in place."""
    instruction, block = site.instruction, site.block
    body = site.applied
    loop = read_loop(instruction, body)
    assert loop is not None  # `forbids`
    carried = site.operands[0]
    reader = Reader(loop.trips, lambda c: site.computations[c], _never, block)
    known = reader.body(body, [_carried(loop, carried.shape, (block, carried))])
    kept, rows = _live(body, known)
    frontier = [i for i in body.instructions if i.id & LOCAL_ID in rows]
    arrays = [_array(block, loop, known[i.id & LOCAL_ID]) for i in frontier]
    if sum(_bytes(array) for array in arrays) > MAX_BYTES:
        arrays = []  # inner loops were left as they are, and what they leave to read is larger
    block.drop_unread(arrays)
    block.editor.chained.update((block.computation, proto.id) for proto in block.protos)
    old = [block.part(carried, i) for i in range(len(carried.shape.tuple_shapes))]
    initial = carried
    if arrays:
        initial = block.tuple([*old, *arrays])
        _edit_body(site, loop, frontier, kept | rows, initial.shape)
        condition = site.computations[site.instruction.called_computation_ids[1]]
        set_parameter(condition, initial.shape)
    again = block.clone(instruction, [initial], initial.shape)
    block.keep(again, site.node)
    return block.tuple([block.part(again, i) for i in range(len(old))])


def _never(instruction: Any, operands: list[Known]) -> Known:
    return None


def _array(block: Block, loop: Loop, known: Known) -> Value:
    """[trips, *dims] of an item."""
    assert isinstance(known, Item) and known.value is not None
    return block.bitcast(known.value, (loop.trips, *known.dims))


def _edit_body(site: Site, loop: Loop, frontier: list[Any], kept: set[int], shape: Any) -> None:
    """The body reads rows of the arrays, which come last in the carried tuple."""
    body = loop.body
    first = max(i.id & LOCAL_ID for i in body.instructions) + 1
    block = Block(site.block.editor, body.id, site.node, first)
    parameter = next(i for i in body.instructions if i.opcode == "parameter")
    parameter.shape.CopyFrom(shape)
    whole = Value(parameter.id & LOCAL_ID, parameter.shape)
    count = len(shape.tuple_shapes) - len(frontier)
    arrays = [block.part(whole, count + i) for i in range(len(frontier))]
    index = block.part(whole, loop.counter)
    if loop.first:
        index = block.op("subtract", index, block.constant(index.dtype, loop.first))
    rows = {}
    for instruction, array in zip(frontier, arrays, strict=True):
        zero = [block.constant(index.dtype, 0)] * (len(array.dims) - 1)
        row = block.dynamic_slice(array, [index, *zero], [1, *array.dims[1:]])
        rows[instruction.id & LOCAL_ID] = row
    _assemble(block, body, rows, kept, arrays)
    body.program_shape.parameters[0].CopyFrom(shape)
    body.program_shape.result.CopyFrom(shape)


def _assemble(
    block: Block, body: Any, rows: dict[int, Value], kept: set[int], arrays: list[Value]
) -> None:
    """New instructions behind the parameter; rows in the place of what computed them."""
    gone = {i.id & LOCAL_ID: i for i in body.instructions if i.id & LOCAL_ID not in kept}
    out: list[Any] = []
    for instruction in list(body.instructions):
        local = instruction.id & LOCAL_ID
        if local in gone:
            block.editor.fresh.pop((body.id, local), None)
            continue
        if local in rows:
            instruction = _row(block, instruction, rows[local])
        before = predecessors(instruction.control_predecessor_ids, gone)
        instruction.control_predecessor_ids[:] = before
        if local == body.root_id & LOCAL_ID:
            instruction.operand_ids.extend([a.id for a in arrays])
            shapes = [*instruction.shape.tuple_shapes, *(a.shape for a in arrays)]
            instruction.shape.CopyFrom(tuple_shape(shapes))
        out.append(instruction)
        if instruction.opcode == "parameter":
            out += block.protos
    set_instructions(body, out)


def _row(block: Block, replaced: Any, row: Value) -> Any:
    """The row under the id and shape of the value that it replaces."""
    made = type(replaced)(
        opcode="bitcast", id=replaced.id, name=block.editor.unique_name("bitcast")
    )
    made.shape.CopyFrom(replaced.shape)
    made.operand_ids.append(row.id)
    block.editor.fresh[block.computation, replaced.id & LOCAL_ID] = block.origin
    return made
