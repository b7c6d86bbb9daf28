"""Programs that were measured as they came, by name; single precision.

A builder returns ``(fn, args)``: ``fn`` is pure and jittable, ``args`` are concrete pytrees of arrays made
from fixed seeds. Every builder imports its library itself, so that a missing library breaks only its own
programs.
"""

from __future__ import annotations

from benchmarks.third_party.common import Builder

from . import (
    actor_critic_programs,
    inference_programs,
    modelling_programs,
    planning_programs,
    policy_gradient_programs,
    probability_programs,
    q_learning_programs,
    training_programs,
)

WORKLOADS: dict[str, Builder] = {
    **actor_critic_programs.WORKLOADS,
    **inference_programs.WORKLOADS,
    **modelling_programs.WORKLOADS,
    **planning_programs.WORKLOADS,
    **policy_gradient_programs.WORKLOADS,
    **probability_programs.WORKLOADS,
    **q_learning_programs.WORKLOADS,
    **training_programs.WORKLOADS,
}
"""All programs."""
