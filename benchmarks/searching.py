"""What benchmarks of searches share: programs, the tuner's search step by step, the last measurement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphopt.corpus.program import Program
from graphopt.corpus.workloads import load_programs, select_programs
from graphopt.hlo import Decisions
from graphopt.learn.tune.search import ModuleSearch
from graphopt.measure.measured import MeasuredScorer
from graphopt.policy import NamedPolicy
from graphopt.policy.starts import suggestions

SPLIT: Final = "held-out"
EVERY: Final = 4
"""Every so many programs of the split are searched, those far apart first: each takes some minutes."""

EVALUATIONS: Final = 40
LONG_S: Final = 3.0
"""Timing of what a search ended with."""


@dataclass(frozen=True)
class Best:
    """A new best vector of a search.

    Attributes:
        evaluations: vectors scored until then, itself included.
        seconds: elapsed until then.
        decisions: the vector.
    """

    evaluations: int
    seconds: float
    decisions: Decisions


def searched_programs(names: Sequence[str] = ()) -> list[Program]:
    """The programs, in the order in which they are searched.

    Args:
        names: of programs of the split; empty for every fourth.

    Raises:
        WorkloadError: no such program.
    """
    if names:
        return list(select_programs(SPLIT, names, "python -m benchmarks").values())
    programs = list(load_programs(SPLIT).values())
    return [*programs[:: 2 * EVERY], *programs[EVERY :: 2 * EVERY]]


def tuner_bests(
    scorer: MeasuredScorer, policy: NamedPolicy | None, evaluations: int, seed: int
) -> list[Best]:
    """Every best of the tuner's search, XLA's default first.

    Args:
        scorer: of the module; its child process has been started.
        policy: whose proposals the search starts from besides; None for none.
        evaluations: after which it ends.
        seed: of the search and of the proposals.
    """
    start = time.perf_counter()
    extra = suggestions(policy, scorer.graph, seed)
    search = ModuleSearch(scorer.runner, None, seed, None, extra)
    bests = [Best(0, 0.0, search.best.decisions)]
    for _ in search.steps():
        if search.best.decisions is not bests[-1].decisions:
            elapsed = time.perf_counter() - start
            bests.append(Best(search.evaluations, elapsed, search.best.decisions))
        if search.evaluations >= evaluations:
            break
    return bests


def measure_long(scorer: MeasuredScorer, decisions: Decisions) -> float:
    """Speed-up over XLA's default in `LONG_S` of timing; at most 1 without confidence, 0 for a failure."""
    if decisions.same_as(scorer.graph.default):
        return 1.0
    found = scorer.runner.measure(decisions, budget_s=LONG_S, method="search")
    if not found.ok:
        return 0.0
    return found.ratio if found.low > 1.0 else min(1.0, found.ratio)
