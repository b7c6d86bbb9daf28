"""Loops that compute the same things in every iteration from their counter: what is worth computing ahead."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.hoist import plan_of
from graphopt.hlo.restructure.sites import Candidate

MIN_WORK: Final = 300_000.0
"""Additions of all iterations together from which twenty more kernels in front of a loop are worth it."""


def compute_ahead(graph: Graph, decisions: Decisions) -> None:
    """Computes ahead of each loop what its iterations need not wait for; changes `decisions`.

    The inner loops that this is computed by, such as the rounds of the random number generator, are written
    out for it.
    """
    code, unroll = CODE["hoist"], CODE["unroll"]
    for node in np.flatnonzero(graph.masks.restructure[:, code]).tolist():
        if decisions.restructure[node]:
            continue
        plan = plan_of(Candidate(graph, node))
        if plan is None or plan.work < MIN_WORK:
            continue
        inner = list(plan.loops)
        if graph.masks.restructure[inner, unroll].all():
            decisions.restructure[node] = code
            decisions.restructure[inner] = unroll
