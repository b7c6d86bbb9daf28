"""Arrays that loops carry and update in place: without the copies that XLA's fusion has made necessary.

``x.at[i].set(f(x[j]))`` in a loop copies all of `x`, once or twice in every iteration, as soon as the read is
part of the kernel that updates `x`. Read before, it leaves nothing to copy. The array may be long, and
what is read and written a few elements.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from graphopt.hlo.restructure import CODE, RESTRUCTURES
from graphopt.hlo.restructure.sites import Candidate
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.in_memory import memory_ns
from graphopt.policy.heuristic.support.step import Step

_ROW: Final = RESTRUCTURES[CODE["no-copy"]]


def apply(context: Context) -> Edit | None:
    """Leaves out the copies of arrays whose parts, read before, are shorter."""
    wanted = context.decisions.copy()
    saved = 0.0
    for node in np.flatnonzero(context.masks.restructure[:, CODE["no-copy"]]).tolist():
        ns = _saved_ns(context, Candidate(context.graph, node))
        if ns > 0.0:
            wanted.restructure[node] = CODE["no-copy"]
            saved += ns * context.executions(node)
    return context.edit(wanted, saved, "arrays that loops carry, without copies")


def _saved_ns(context: Context, candidate: Candidate) -> float:
    """Nanoseconds of an iteration that a chain without its copies saves."""
    copies = {candidate.node, *_ROW.along(candidate)}
    return _written_ns(context, copies) - _written_ns(context, _ROW.behind(candidate))


def _written_ns(context: Context, nodes: Collection[int]) -> float:
    """Nanoseconds to write values to memory and to read them again, each by a kernel of its own."""
    graph, costs = context.graph, context.costs
    kernels_ns = sum(
        costs.native_kernel_ns if context.is_inside_native(node) else costs.thunk_ns
        for node in nodes
    )
    return kernels_ns + sum(memory_ns(costs, int(graph.nbytes[node]), 1) for node in nodes)


STEP: Final = Step(
    name="carried copies",
    summary="Arrays that loops carry and update in place are not copied for what reads parts of them.",
    apply=apply,
    after=("native loops", "ahead of loops"),
    min_saved_ns=500.0,
    min_saved_share=0.005,
)
