"""Loops of a few elementwise iterations become one kernel each: their values then stay in registers.

Such as the rounds of the random number generator. XLA writes the arrays of every iteration to memory, and
dispatches its kernels and copies.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.policy.heuristic.support.chains import UNROLL, chain_at
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step


def apply(context: Context) -> Edit | None:
    """Writes out the loops whose iterations go element by element."""
    wanted = context.decisions.copy()
    saved = 0.0
    for loop in np.flatnonzero(context.masks.restructure[:, UNROLL]).tolist():
        chain = chain_at(context, loop)
        if chain is not None and chain.saved_ns > 0.0:
            wanted.restructure[loop] = UNROLL
            saved += chain.saved_ns * context.executions(loop)
    return context.edit(wanted, saved, "short loops as one kernel each")


STEP: Final = Step(
    name="short loops",
    summary="Loops of a few elementwise iterations, such as the rounds of random numbers, become one kernel.",
    apply=apply,
    min_saved_ns=1000.0,
    min_saved_share=0.01,
)
