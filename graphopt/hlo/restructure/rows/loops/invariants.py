"""Loops whose iterations compute the same again: it is computed once, and carried.

What counts is found by `graphopt.hlo.restructure.rows.loops.shared`: kernels of what a loop keeps, such as
copies of a matrix into another layout, operands that other forms of products bring into another order, and
tall matrices that are multiplied by vectors, which are carried turned. All may stand in loops inside the
loop, their calls and conditionals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.index import LOCAL_ID, ComputationIndex, Role
from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.hlo.restructure.rows.loops.rearranged import Rearranged, rearranged
from graphopt.hlo.restructure.rows.loops.shared import (
    KERNELS,
    Kept,
    Key,
    Made,
    Search,
    Turned,
    Use,
)
from graphopt.hlo.restructure.rows.loops.tall import tall_operand, turned_operand
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.passing import Given, Passing
from graphopt.hlo.restructure.writing.values import Value

MAX_BYTES: Final = 1 << 24
"""Most bytes of all arrays that one loop carries beside its own."""

RULES: Final = {
    "no-invariants": "iterations share no kernel, no tall matrix and no operand to bring into another order",
    "invariants-memory": "what the iterations share is too large together",
}


@dataclass(frozen=True)
class Plan:
    """What of a loop is computed once.

    Attributes:
        kernels: last nodes of the kernels that run ahead of it.
        dots: nodes of the products whose matrix is turned, with the number of the operand.
        fused: those of `dots` that are part of a kernel.
        nbytes: of all arrays that the loop carries for it.
        turned: elements of the matrices to turn.
        rearranged: operands that the loop keeps, of products whose other forms bring them into another order.
    """

    kernels: tuple[int, ...] = ()
    dots: Mapping[int, int] = field(default_factory=dict)
    fused: tuple[int, ...] = ()
    nbytes: int = 0
    turned: int = 0
    rearranged: tuple[Rearranged, ...] = ()


def forbids(candidate: Candidate) -> str | None:
    """Why nothing of a loop is computed once."""
    plan = plan_of(candidate)
    if not plan.kernels and not plan.dots and not plan.rearranged:
        return "no-invariants"
    return "invariants-memory" if plan.nbytes > MAX_BYTES else None


def behind(candidate: Candidate) -> list[int]:
    """Products that must stand outside of kernels."""
    return list(plan_of(candidate).fused)


@per_graph
def _plans(graph: Graph) -> dict[int, Plan]:
    """Plans made for loops of a graph, by node."""
    return {}


def plan_of(candidate: Candidate) -> Plan:
    """What of a loop would be computed once."""
    graph = candidate.graph
    if graph.source.called[candidate.node][0] not in _promising(graph):
        return _NOTHING
    known = _plans(graph)
    if candidate.node not in known:
        known[candidate.node] = _make_plan(candidate)
    return known[candidate.node]


_NOTHING: Final = Plan()


@per_graph
def _tall_products(graph: Graph) -> dict[tuple[int, int], int]:
    """(computation id, local id) -> node, of all products of tall matrices and vectors."""
    found = {}
    source = graph.source
    for node, op in enumerate(graph.ops):
        operand = None
        if op.name == "dot":
            shapes = [source.shapes[operand] for operand in graph.operand_lists[node]]
            operand = tall_operand(source.protos[node], shapes)
        elif op.name == "fusion":
            operand = turned_operand(source.module.computations[source.called[node][0]].proto)
        if operand is not None:
            found.update(dict.fromkeys(source.instances[node], node))
    return found


@per_graph
def _promising(graph: Graph) -> frozenset[int]:
    """Ids of loop bodies in which, at any depth, something may be found."""
    computations = graph.source.module.computations
    found = {c for c, _ in (*_tall_products(graph), *rearranged(graph))}
    inside = (Role.LOOP_BODY, Role.BRANCH, Role.CALLED)
    for computation in computations.values():
        if computation.role in inside and _has_shared_kernel(computation):
            found.add(computation.id)
    around = set()
    for start in found:
        computation = computations[start]
        while computation.id not in around and computation.caller is not None:
            around.add(computation.id)
            computation = computations[computation.caller[1]]
    return frozenset(around)


def _has_shared_kernel(computation: ComputationIndex) -> bool:
    """True if a computation has a kernel of nothing but constants and what it might keep."""
    root, by_id = computation.by_id[computation.root], computation.by_id
    kept = set(root.operands) if computation.role is Role.LOOP_BODY else set(by_id)
    kept = {o for o in kept if by_id[o].opcode in ("get-tuple-element", "copy")}
    for instruction in computation.instructions:
        if instruction.opcode in KERNELS and instruction.operands:
            others = [o for o in instruction.operands if o not in kept]
            constant = all(by_id[o].opcode == "constant" for o in others)
            if constant and len(others) < len(instruction.operands):
                return True
    return False


def _make_plan(candidate: Candidate) -> Plan:
    graph, computations = candidate.graph, candidate.computations
    search = Search(lambda c: computations[c].proto, kernels=True)
    search.loop(candidate.applied)
    nodes, values = _tall_products(graph), graph.source.values
    products = ((nodes.get((use.computation, use.dot)), use.operand) for use in search.uses)
    dots = {node: operand for node, operand in products if node is not None}
    matrices = {graph.operand_lists[node][operand] for node, operand in dots.items()}
    kernels = [
        values[made.computation, made.local]
        for made in search.operands
        if (made.computation, made.local) in values
    ]
    again = [
        operand
        for (computation, local), operands in rearranged(graph).items()
        for operand in operands
        if (computation, computations[computation].by_id[local].operands[operand.operand])
        in search.kept
    ]
    arrays = {graph.operand_lists[operand.node][operand.operand] for operand in again}
    carried = [*matrices, *kernels]
    if sum(graph.nbytes[node] for node in {*carried, *arrays}) > MAX_BYTES:
        again, arrays = [], set()
    carried += arrays
    return Plan(
        kernels=tuple(sorted(set(kernels))),
        dots=dots,
        fused=tuple(sorted(node for node in dots if graph.default.fuse[node])),
        nbytes=int(sum(graph.nbytes[node] for node in carried)),
        turned=int(sum(graph.elements[node] for node in matrices)),
        rearranged=tuple(dict.fromkeys(again)),
    )


def expand(site: Site) -> Value:
    """Writes what is shared, and the loop that reads it; what it calls is changed in place."""
    block, (carried,) = site.block, site.operands
    search, keys = _search(site)
    ahead = _Ahead(site, search)
    values = [ahead.value(key) for key in keys]
    old = [block.part(carried, i) for i in range(len(carried.shape.tuple_shapes))]
    initial = block.tuple([*old, *values]) if values else carried
    Passing(
        editor=block.editor,
        origin=site.node,
        shapes={key: value.shape for key, value in zip(keys, values, strict=True)},
        needs=search.needs,
        moved={(m.computation, m.local): key for m, key in search.moved.items()},
        gone=frozenset((m.computation, m.local) for m in search.operands),
        read=_Reading({(use.computation, use.dot): use for use in search.uses}),
    ).into_loop(site.instruction, keys)
    again = block.clone(site.instruction, [initial], initial.shape)
    block.keep(again, site.node)
    return block.tuple([block.part(again, i) for i in range(len(old))])


def _search(site: Site) -> tuple[Search, list[Key]]:
    """What the iterations share, and what of it the loop carries.

    Operands that other replacements bring into another order stay where all together is too large.
    """
    editor = site.block.editor
    for stays in (editor.fresh.keys() - editor.arranged, editor.fresh.keys()):
        search = Search(site.computations.__getitem__, kernels=False, stays=stays)
        keys = search.loop(site.applied)
        if sum(_nbytes(site, key) for key in keys) <= MAX_BYTES:
            break
    return search, keys


def _nbytes(site: Site, key: Kept | Key) -> int:
    """Bytes of a value of the loop, or of a turned one."""
    if isinstance(key, Turned):
        return _nbytes(site, key.matrix)
    if isinstance(key, int):
        shape = site.instruction.shape.tuple_shapes[key]
    else:
        body = site.computations[key.computation]
        shape = next(i.shape for i in body.instructions if i.id & LOCAL_ID == key.local)
    return int(prod(shape.dimensions)) * DTYPE_BYTES[DType(shape.element_type)]


class _Ahead:
    """Writes values in front of the loop, each once."""

    def __init__(self, site: Site, search: Search) -> None:
        self.site = site
        self.search = search
        self.known: dict[Kept | Key, Value] = {}

    def value(self, key: Kept | Key) -> Value:
        """A value of the loop, or a turned one."""
        if key not in self.known:
            self.known[key] = self._write(key)
        return self.known[key]

    def _write(self, key: Kept | Key) -> Value:
        block = self.site.block
        if isinstance(key, int):
            return block.part(self.site.operands[0], key)
        if isinstance(key, Turned):
            return block.transpose(self.value(key.matrix), (1, 0))
        source, by_id = self._instruction(key.computation, key.local)
        kept = self.search.operands[key]
        operands = []
        for operand in source.operand_ids:
            local = operand & LOCAL_ID
            if local in kept:
                value = kept[local]
                moved = self.search.moved[value] if isinstance(value, Made) else value
                operands.append(self.value(moved))
            else:
                operands.append(self._clone(key.computation, by_id[local], []))
        return self._clone(key.computation, source, operands)

    def _instruction(self, computation: int, local: int) -> tuple[Any, dict[int, Any]]:
        body = self.site.computations[computation]
        by_id = {i.id & LOCAL_ID: i for i in body.instructions}
        return by_id[local], by_id

    def _clone(self, computation: int, source: Any, operands: list[Value]) -> Value:
        block = self.site.block
        out = block.clone(source, operands)
        place = (block.computation, out.id)
        block.editor.stands_for(place, (computation, source.id & LOCAL_ID), self.site.node)
        return out


@dataclass
class _Reading:
    """Lets products read turned matrices."""

    uses: Mapping[tuple[int, int], Use]
    constants: dict[tuple[int, int], Value] = field(default_factory=dict)
    """(computation id, local id) of a constant -> the turned one."""

    def __call__(self, instruction: Any, given: Given) -> None:
        use = self.uses.get((given.computation.id, instruction.id & LOCAL_ID))
        if use is None:
            return
        if use.matrix is None:
            turned = self._constant(given, instruction.operand_ids[use.operand])
        else:
            turned = given.values[Turned(use.matrix)]
        instruction.operand_ids[use.operand] = turned.id
        if instruction.opcode == "fusion":
            self._open(instruction, given.block)
            return
        numbers = instruction.dot_dimension_numbers
        summed = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
        summed[use.operand][0] = 1 - summed[use.operand][0]

    def _open(self, kernel: Any, block: Block) -> None:
        """Makes a kernel that turns a matrix and multiplies it the product alone."""
        inner = block.editor.computations[kernel.called_computation_ids[0]]
        by_id = {i.id & LOCAL_ID: i for i in inner.instructions}
        operands = []
        dot = by_id[inner.root_id & LOCAL_ID]
        for operand in dot.operand_ids:
            source = by_id[operand & LOCAL_ID]
            while source.opcode != "parameter":
                source = by_id[source.operand_ids[0] & LOCAL_ID]
            operands.append(kernel.operand_ids[source.parameter_number])
        name, number, control = kernel.name, kernel.id, list(kernel.control_predecessor_ids)
        kernel.CopyFrom(dot)
        kernel.name, kernel.id = name, number
        kernel.operand_ids[:] = operands
        kernel.control_predecessor_ids[:] = control
        block.editor.fresh[block.computation, number & LOCAL_ID] = block.origin

    def _constant(self, given: Given, source: int) -> Value:
        key = (given.computation.id, source & LOCAL_ID)
        if key not in self.constants:
            body = given.computation.instructions
            proto = next(i for i in body if i.id & LOCAL_ID == key[1])
            self.constants[key] = given.block.turned_constant(proto)
        return self.constants[key]
