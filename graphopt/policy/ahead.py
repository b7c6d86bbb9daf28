"""Loops that compute the same things in every iteration from their counter: what is worth computing ahead."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.hoist import plan_of
from graphopt.hlo.restructure.sites import Candidate

MIN_WORK: Final = 300_000.0
"""Additions of all iterations together from which some twenty more kernels in front of the loop are worth it.

With less (a few random numbers per step, a hundred steps) programs lost up to a tenth of their time."""


def compute_ahead(graph: Graph, decisions: Decisions) -> None:
    """Computes ahead of each loop what its iterations need not wait for; changes `decisions`.

    The inner loops that this is computed by, such as the rounds of the random number generator, are written
    out for it.
    """
    code = CODE["hoist"]
    for node in np.flatnonzero(graph.masks.restructure[:, code]).tolist():
        if decisions.restructure[node]:
            continue
        plan = plan_of(Candidate(graph, node))
        if plan is not None and plan.work >= MIN_WORK:
            decisions.restructure[node] = code
            decisions.restructure[list(plan.loops)] = CODE["unroll"]
