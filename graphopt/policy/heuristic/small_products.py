"""Products outside native code whose matrices, or rows, are too small for a library.

The matrix library takes a batch of matrices one after the other, and a call for each takes longer than to
multiply it. A single product of many short rows is copied into an order that the library's kernels want, for
longer than it is multiplied, most of all where sums are no multiple of a vector. Written as a multiplication
and a reduction, either is one loop kernel; sums of up to three numbers the runtime computes by plain loops.
So is a matrix of very short rows by a vector, which XLA's own loop multiplies in scalar code. A product of
many rows and few columns by the runtime is faster with its operands in the other order. And some products
that are not small the runtime shares between cores, where the library uses one.
"""

from __future__ import annotations

import math
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

RUNTIME: Final = "runtime"
"""The runtime, which chooses itself between plain loops and a library that shares work between cores."""


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
        form, ns = _fastest(cost, may_move=bool(context.masks.unit[node, runtime]))
        if cost.library_ns <= LIMITS.margin * ns:
            continue
        if form == RUNTIME:
            wanted.unit[node] = runtime
        else:
            wanted.restructure[node] = CODE[form]
        chosen += 1
        saved += (cost.library_ns - ns) * context.executions(node)
    return context.edit(
        wanted, saved, f"{chosen} products of small matrices or rows in another form"
    )


def _fastest(cost: ProductCosts, *, may_move: bool) -> tuple[str, float]:
    """The fastest other form of a product, a restructure or the runtime, and its time.

    Args:
        cost: of the product.
        may_move: the runtime may compute it.
    """
    forms = {
        "dot-reduce": cost.reduced_ns,
        "dot-swap": cost.swapped_ns,
        RUNTIME: cost.runtime_ns if may_move else None,
    }
    return min(
        ((form, math.inf if ns is None else ns) for form, ns in forms.items()), key=lambda x: x[1]
    )


STEP: Final = Step(
    name="small products",
    summary="Products of short rows, few columns or one core go to loops, to the runtime, or swap operands.",
    apply=apply,
    after=("small runs",),
    min_saved_ns=500.0,
    min_saved_share=0.01,
    limits=LIMITS,
)
