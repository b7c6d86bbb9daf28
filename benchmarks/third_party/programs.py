"""All third-party programs by name; those of `convolution_programs` are apart, made to show a change.

A builder returns ``(fn, args)``: ``fn`` is pure and jittable, ``args`` are concrete pytrees of
arrays made from fixed seeds. Every builder imports its library itself, so that a missing
library breaks only the programs that use it.
"""

from __future__ import annotations

from . import (
    agent_programs,
    inference_programs,
    model_programs,
    nn_programs,
    probability_programs,
    rl_programs,
    science_programs,
    simulator_programs,
    solver_programs,
)
from .common import Builder

WORKLOADS: dict[str, Builder] = {
    **nn_programs.WORKLOADS,
    **probability_programs.WORKLOADS,
    **science_programs.WORKLOADS,
    **rl_programs.WORKLOADS,
    **simulator_programs.WORKLOADS,
    **model_programs.WORKLOADS,
    **agent_programs.WORKLOADS,
    **inference_programs.WORKLOADS,
    **solver_programs.WORKLOADS,
}

CHAOTIC: frozenset[str] = frozenset()
"""Programs that amplify rounding, whose outputs are compared by a looser criterion."""
