"""Batches of products for which the kernel library wakes its threads in vain.

The library shares the matrices of a batch between threads, which takes tens of microseconds where those
sleep. The runtime multiplies one matrix after the other on the thread that it is on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo.module.proto import DType
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    margin: float = limit(
        1.2, "ratio", "how many times longer the library must take by the estimate"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Gives the runtime the batches that it multiplies sooner."""
    graph, wanted = context.graph, context.decisions.copy()
    library, runtime = (unit_index(graph.units, k) for k in (UnitKind.LIBRARY, UnitKind.RUNTIME))
    saved, moved = 0.0, 0
    for node, op in enumerate(graph.ops):
        called = op.name == "dot" and wanted.unit[node] == library and not wanted.fuse[node]
        if not called or wanted.restructure[node] or graph.dtype[node] != DType.F32:
            continue
        sharing = context.model.product(node).sharing
        if sharing.library_ns is None or sharing.runtime_ns is None:
            continue
        gain = sharing.library_ns - sharing.runtime_ns
        faster = sharing.library_ns > LIMITS.margin * sharing.runtime_ns
        if faster and context.masks.unit[node, runtime] and not context.is_inside_native(node):
            wanted.unit[node] = runtime
            saved += gain * context.executions(node)
            moved += 1
    return context.edit(wanted, saved, f"{moved} batches on one core")


STEP: Final = Step(
    name="batched products",
    summary="Short batches of products go to the runtime, which wakes no thread for them.",
    apply=apply,
    after=("small products", "library normalisations"),
    min_saved_ns=500.0,
    min_saved_share=0.01,
    limits=LIMITS,
)
