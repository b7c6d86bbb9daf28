"""The sites of a graph with their alternatives, one generator per kind of site.

Edits hold whatever else was decided: they are read off XLA's own decisions and the masks, so that one list
serves every decision vector of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure import CODE, IN_ORDER
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.alternatives.alternative import Alternative, Edit, difference
from graphopt.policy.heuristic.loops.native_loops import MAX_NATIVE_CODE
from graphopt.policy.heuristic.memory.keep_in_memory import NEVER_WRITTEN
from graphopt.policy.heuristic.packed_functions import STEP as PACKED
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import is_root, make_native

SHORT_KERNEL_NS: Final = 20_000.0
"""Kernels of a run that are offered as native code beside all of them: longer ones lose the other cores."""

PROGRAM_ROWS: Final = frozenset(row.name for row in RESTRUCTURES if row.on_caller)
"""Restructures that are about the whole program."""

_TOGETHER: Final = frozenset({"pack"})
"""Restructures that do nothing for one operation alone."""

_UNIT_KINDS: Final = {
    UnitKind.LIBRARY: "kernel library",
    UnitKind.RUNTIME: "kernel runtime",
    UnitKind.NATIVE: "kernel native",
}


@dataclass(frozen=True, eq=False)
class Sites:
    """One graph, as the generators see it.

    Attributes:
        graph: of the program or task.
        model: its costs.
    """

    graph: Graph
    model: CostModel

    @cached_property
    def context(self) -> Context:
        """The graph under XLA's own decisions."""
        return Context(self.graph, self.model, self.graph.default)

    @cached_property
    def executions(self) -> list[float]:
        """Times that each node runs per run of the program."""
        found: list[float] = self.graph.executions.tolist()
        return found

    def operation_ns(self, node: int) -> float:
        """Estimated nanoseconds of one operation per run of the program, as XLA computes it."""
        graph, model = self.graph, self.model
        if node in model.callees:
            once = model.control(node).default_ns(model.cores)
        elif is_wall(graph, node):
            once = wall_costs(graph, node, model.costs)[0]
        elif graph.ops[node].name == "dot":
            once = model.product(node).library_ns
        else:
            once = model.evaluated_ns(node)
        return once * self.executions[node]

    def sequence_ns(self, parameter: int) -> float:
        """The same of all kernels of the computation that a parameter stands for."""
        index = int(self.graph.computation[parameter])
        once = self.model.computations[index].default_ns(self.model.cores)
        return once * self.executions[parameter]

    def kernel_ns(self, root: int) -> float:
        """The same of the kernel rooted at a node, or of the node where XLA computes it in its users."""
        graph = self.graph
        if graph.default.fuse[root] or graph.ops[root].kind is OpKind.RUNTIME:
            return self.operation_ns(root)
        once = self.model.cluster_ns(graph.default.fuse, root) + self.model.costs.thunk_ns
        return once * self.executions[root]


def loops(sites: Sites) -> Iterator[Alternative]:
    """Loops as one native function, walls in them replaced, and loops as XLA runs them."""
    graph, model, context = sites.graph, sites.model, sites.context
    runtime = unit_index(graph.units, UnitKind.RUNTIME)
    for node in model.callees:
        if graph.ops[node].name != "while":
            continue
        weight = sites.operation_ns(node)
        legal = graph.masks.unit[node]
        if legal[context.native] and model.control(node).code <= MAX_NATIVE_CODE:
            wanted = graph.default.copy()
            make_native(context, wanted, node)
            entailed = difference(graph.default, wanted)
            yield Alternative(
                "loop native", node, _with(entailed, ("unit", node, context.native)), weight
            )
        else:
            entailed = ()
        if legal[runtime]:
            back = [(f, n, int(getattr(graph.default, f)[n])) for f, n, _ in entailed if n != node]
            yield Alternative("loop not native", node, (("unit", node, runtime), *back), weight)


def runs(sites: Sites) -> Iterator[Alternative]:
    """Kernels that follow one another in the schedule, together as native code, and as XLA runs them."""
    graph, native = sites.graph, sites.context.native
    default: Decisions = graph.default
    for members in _runs(sites):
        times = [sites.kernel_ns(node) for node in members]
        short = [
            n for n, ns in zip(members, times, strict=True)
            if ns < SHORT_KERNEL_NS * sites.executions[n]
        ]  # fmt: skip
        first, weight = members[0], sum(times)
        yield Alternative("run native", first, _units(members, native), weight)
        if 1 < len(short) < len(members):
            part = sum(sites.kernel_ns(node) for node in short)
            yield Alternative("short run native", first, _units(short, native), part)
        back = tuple(("unit", node, int(default.unit[node])) for node in members)
        yield Alternative("run not native", first, back, weight)


def _runs(sites: Sites) -> Iterator[list[int]]:
    """Roots of kernels that may be native, between others, at least two."""
    graph, context = sites.graph, sites.context
    allowed = graph.masks.unit[:, context.native]
    for computation in graph.computations:
        nodes = range(computation.first, computation.end)
        roots = [n for n in nodes if is_root(context, n)]
        roots += [n for n in nodes if graph.ops[n].kind is OpKind.CONTROL]
        run: list[int] = []
        for node in sorted(roots, key=lambda n: graph.source.position[n]):
            if allowed[node] and graph.ops[node].kind is not OpKind.CONTROL:
                run.append(node)
                continue
            if len(run) > 1:
                yield run
            run = []
        if len(run) > 1:
            yield run


def kernels(sites: Sites) -> Iterator[Alternative]:
    """The execution units of every kernel that there is or may be."""
    graph = sites.graph
    legal = graph.masks.unit
    choices = [(index, unit) for index, unit in enumerate(graph.units)]
    for node in np.flatnonzero(legal.sum(axis=1) > 1).tolist():
        op = graph.ops[node]
        if op.kind in (OpKind.STRUCTURE, OpKind.CONTROL) or op.name in NEVER_WRITTEN:
            continue
        weight = sites.kernel_ns(node)
        for index, unit in choices:
            if legal[node, index]:
                split = "kernel split" if unit.threads > 1 else "kernel on one core"
                yield Alternative(
                    _UNIT_KINDS.get(unit.kind, split), node, (("unit", node, index),), weight
                )


def values(sites: Sites) -> Iterator[Alternative]:
    """Values written to memory or computed inside their users, and outputs of one kernel together."""
    graph, costs = sites.graph, sites.model.costs
    fuse, join = graph.masks.fuse, graph.masks.join
    partnered = _with_partner(graph)
    for node, users in enumerate(graph.user_lists):
        if not users or graph.ops[node].name in NEVER_WRITTEN:
            continue
        times = sites.executions[node]
        moved = costs.thunk_ns + float(graph.nbytes[node]) * (1 + len(users)) / costs.bytes_per_ns
        if fuse[node].all():
            computed = sites.model.evaluated_ns(node) * times
            yield Alternative("value in memory", node, (("fuse", node, 0),), computed)
            yield Alternative("value fused", node, (("fuse", node, 1),), moved * times)
        if join[node].all() and node in partnered:
            yield Alternative("join", node, (("join", node, 1),), moved * times)
            yield Alternative("no join", node, (("join", node, 0),), moved * times)


def _with_partner(graph: Graph) -> set[int]:
    """Nodes that a kernel of an earlier value of the same shape could have as a further output."""
    seen: set[tuple[int, ...]] = set()
    found = set()
    for node, dims in enumerate(graph.dim_lists):
        shape = (int(graph.computation[node]), *dims)
        if shape in seen:
            found.add(node)
        if graph.masks.fuse[node, 0] and graph.ops[node].kind is not OpKind.STRUCTURE:
            seen.add(shape)
    return found


def operations(sites: Sites) -> Iterator[Alternative]:
    """Operations in every other form that is legal, and as they are."""
    graph = sites.graph
    legal = graph.masks.restructure
    for node in np.flatnonzero(legal[:, 1:].any(axis=1)).tolist():
        codes = [c for c in np.flatnonzero(legal[node]).tolist() if _is_single(c)]
        if codes == [0]:
            continue
        program = RESTRUCTURES[codes[-1]].name in PROGRAM_ROWS
        weight = sites.sequence_ns(node) if IN_ORDER[codes[-1]] else sites.operation_ns(node)
        weight = sites.context.program_ns if program else weight
        for code in codes:
            name = RESTRUCTURES[code].name if code else "as it is"
            site = -1 if program else node
            yield Alternative(name, site, (("restructure", node, code),), weight)
    yield from _packed(sites)


def _is_single(code: int) -> bool:
    return RESTRUCTURES[code].name not in _TOGETHER


def _packed(sites: Sites) -> Iterator[Alternative]:
    """Functions of small arrays computed together, as far as the heuristic would, if all code were native."""
    graph, context = sites.graph, sites.context
    code = CODE["pack"]
    if not graph.masks.restructure[:, code].any():
        return
    wanted = graph.default.copy()
    wanted.unit[graph.masks.unit[:, context.native]] = context.native
    before = context.after(wanted)
    edit = PACKED.apply(before)
    if edit is None:
        return
    edits = difference(wanted, edit.applied_to(wanted))
    for index in sorted({int(graph.computation[node]) for _, node, _ in edits}):
        here = tuple(e for e in edits if graph.computation[e[1]] == index)
        packed = [node for field, node, _ in here if field == "restructure"]
        if packed:
            weight = sum(sites.operation_ns(node) for node in packed)
            yield Alternative("pack", packed[0], here, weight)
            back = tuple(("restructure", node, 0) for node in packed)
            yield Alternative("as it is", packed[0], back, weight)


def _units(nodes: list[int], unit: int) -> tuple[Edit, ...]:
    return tuple(("unit", node, unit) for node in nodes)


def _with(edits: tuple[Edit, ...], more: Edit) -> tuple[Edit, ...]:
    return edits if more in edits else (more, *edits)


SITES: Final[tuple[Callable[[Sites], Iterator[Alternative]], ...]] = (
    loops, runs, kernels, values, operations,
)  # fmt: skip
"""All kinds of sites."""
