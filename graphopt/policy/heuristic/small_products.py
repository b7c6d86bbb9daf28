"""Products outside native code whose matrices, or rows, are too small for a library.

The matrix library takes a batch of matrices one after the other, and a call for each takes longer than to
multiply it. A single product of many short rows is copied into an order that the library's kernels want, for
longer than it is multiplied, most of all where sums are no multiple of a vector. Written as a multiplication
and a reduction, either is one loop kernel; sums of up to three numbers the runtime computes by plain loops.
So is a matrix of very short rows by a vector, which XLA's own loop multiplies in scalar code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.costs.products import ProductCosts
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    margin: float = limit(
        1.5, "ratio", "how many times longer the library must take by the estimate"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Replaces such products where the program gains."""
    wanted = context.decisions.copy()
    runtime = unit_index(context.graph.units, UnitKind.RUNTIME)
    chosen = 0
    saved = 0.0
    for node, op in enumerate(context.graph.ops):
        if op.name != "dot" or wanted.unit[node] == context.native or wanted.restructure[node]:
            continue
        if context.is_inside_native(node):
            continue
        cost = context.model.product(node)
        by_loops, ns = _fastest(cost, bool(context.masks.unit[node, runtime]))
        if cost.library_ns <= LIMITS.margin * ns:
            continue
        if by_loops:
            wanted.unit[node] = runtime
        else:
            wanted.restructure[node] = CODE["dot-reduce"]
        chosen += 1
        saved += (cost.library_ns - ns) * context.executions(node)
    return context.edit(wanted, saved, f"{chosen} products of small matrices or rows in loops")


def _fastest(cost: ProductCosts, may_run: bool) -> tuple[bool, float]:
    """True if loops of the runtime are faster than a loop kernel, and the time of the faster."""
    inf = float("inf")
    naive = cost.naive_ns if may_run and cost.naive_ns is not None else inf
    kernel = cost.reduced_ns if cost.reduced_ns is not None else inf
    return naive < kernel, min(naive, kernel)


STEP: Final = Step(
    name="small products",
    summary="Products of many small matrices or short rows become loops instead of library calls.",
    apply=apply,
    after=("small runs",),
    min_saved_ns=500.0,
    min_saved_share=0.01,
    limits=LIMITS,
)
