"""Products of many small matrices outside native code, which the matrix library takes one after the other.

A call of the library for each matrix takes longer than to multiply it. Written as a multiplication and a
reduction, the whole batch is one loop kernel. So is a matrix of very short rows by a vector, which XLA's own
loop multiplies in scalar code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo.restructure import CODE
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
    chosen = []
    saved = 0.0
    for node, op in enumerate(context.graph.ops):
        if op.name != "dot" or wanted.unit[node] == context.native or wanted.restructure[node]:
            continue
        cost = context.model.product(node)
        if context.is_inside_native(node) or cost.reduced_ns is None:
            continue
        if cost.library_ns > LIMITS.margin * cost.reduced_ns:
            chosen.append(node)
            saved += (cost.library_ns - cost.reduced_ns) * context.executions(node)
    wanted.restructure[chosen] = CODE["dot-reduce"]
    return context.edit(wanted, saved, f"{len(chosen)} batches of small matrices in one loop each")


STEP: Final = Step(
    name="batched products",
    summary="Products of many small matrices become one loop instead of a library call each.",
    apply=apply,
    after=("small runs",),
    min_saved_ns=500.0,
    min_saved_share=0.01,
    limits=LIMITS,
)
