"""A policy's proposals as starting points of a search."""

from __future__ import annotations

import contextlib
from typing import Final

from graphopt.hlo import Decisions, Graph
from graphopt.policy.network.gated import GuardedPolicy
from graphopt.policy.network.learned import LearnedPolicy
from graphopt.policy.registry import NamedPolicy

SAMPLES: Final = 4
"""Draws of a network, its likeliest decisions included."""

MAX_NODES: Final = 20_000
"""Larger graphs are searched from fewer starting points anyway: every one costs a long compile."""


def learned_part(policy: NamedPolicy) -> LearnedPolicy | None:
    """The network of a policy with its decision rule, without a gate around it; None if it has none."""
    decide = policy.decide
    if isinstance(decide, GuardedPolicy):
        return decide.learned
    return decide if isinstance(decide, LearnedPolicy) else None


def suggestions(
    policy: NamedPolicy | None, graph: Graph, seed: int = 0, samples: int = SAMPLES
) -> list[tuple[str, Decisions]]:
    """(name, decisions) of a policy: what it would decide, then draws of its network if it has one.

    A policy that fails suggests nothing: a search goes on without it.
    """
    found: list[tuple[str, Decisions]] = []
    if policy is None or len(graph) > MAX_NODES:
        return found
    with contextlib.suppress(Exception):
        decided = policy.decide(graph)
        if decided is not None:
            found.append(("policy", decided))
        learned = learned_part(policy)
        if learned is not None:
            drawn = learned.suggestions(graph, samples, seed)
            found += [(f"policy sample {index}", d) for index, d in enumerate(drawn)]
    return found
