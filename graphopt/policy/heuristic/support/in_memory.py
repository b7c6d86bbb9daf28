"""Values that are written to memory instead of being computed inside of their readers."""

from __future__ import annotations

from typing import Final

from graphopt.hlo import Decisions
from graphopt.machine import CpuCosts, UnitKind
from graphopt.policy.heuristic.support.context import Context

GENERATED: Final = (UnitKind.LOOP, UnitKind.NATIVE)
"""Units whose code is generated, a loop over the dimensions of a kernel's result."""


def memory_ns(costs: CpuCosts, nbytes: int, readers: int, across: float = 0.0) -> float:
    """Nanoseconds of a value's trip through memory to `readers` kernels, `across` of its elements read in
    another order, beside beginning the kernel that writes it.

    A kernel that reads a value at several places (the neighbours of a stencil) fetches it once.
    """
    large = nbytes > costs.cached_bytes
    rate = costs.bytes_per_ns if large else costs.cached_bytes_per_ns
    return nbytes * (1 + readers) / rate + across * costs.across_ns


def set_parts(context: Context, decisions: Decisions, node: int, ns: float) -> None:
    """Splits a new loop over the cores that is large, or takes `ns` long per element."""
    graph, costs = context.graph, context.costs
    loops = [i for i, unit in enumerate(graph.units) if unit.kind is UnitKind.LOOP]
    work = float(graph.elements[node]) * ns / costs.part_ns
    wanted = max(float(graph.nbytes[node]) / costs.part_bytes, work)
    for index in reversed(loops):
        if graph.units[index].threads <= round(wanted) and graph.masks.unit[node, index]:
            decisions.unit[node] = index
            return
