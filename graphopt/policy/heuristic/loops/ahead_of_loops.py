"""What a loop's iterations compute from its counter and constants is computed for all of them ahead of it.

Such as random numbers from keys that are known before. The inner loops that this is computed by, such as the
rounds of the random number generator, are written out for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.loops.hoist import plan_of
from graphopt.hlo.restructure.sites import Candidate
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    min_work: float = limit(
        300_000.0,
        "additions",
        "all iterations together, from which twenty more kernels in front of a loop are worth it",
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Computes ahead of each loop what its iterations need not wait for."""
    code, unroll = CODE["hoist"], CODE["unroll"]
    allowed = context.masks.restructure
    wanted = context.decisions.copy()
    work = 0.0
    for node in np.flatnonzero(allowed[:, code]).tolist():
        if wanted.restructure[node]:
            continue
        plan = plan_of(Candidate(context.graph, node))
        if plan is None or plan.work < LIMITS.min_work:
            continue
        inner = list(plan.loops)
        if allowed[inner, unroll].all():
            wanted.restructure[node] = code
            wanted.restructure[inner] = unroll
            work += plan.work
    saved = work / context.costs.operations_per_ns
    return context.edit(wanted, saved, "what iterations share is computed once")


STEP: Final = Step(
    name="ahead of loops",
    summary="What iterations compute from the counter and constants is computed for all ahead of the loop.",
    apply=apply,
    after=("native loops",),
    limits=LIMITS,
)
