"""Orders a tuner's proposals by what the kernel bank and model say, so that few are measured in vain."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.hlo import DecisionBatch, Decisions
from graphopt.measure.bank.scorer import BankScorer
from graphopt.measure.children.runner import Runner
from graphopt.store import Store

MAX_PROFILES: Final = 12
"""Profiled vectors per search: each costs a compile."""


class BankRanker:
    """Ranks by predicted module time; profiles vectors that turn out good."""

    def __init__(self, runner: Runner, store: Store | None) -> None:
        """Prepares the scorer; XLA's default is profiled when first needed."""
        self.runner = runner
        self.scorer = BankScorer(runner.graph, store)
        self.profiles = 0

    def rank(self, candidates: list[Decisions]) -> list[Decisions]:
        """The candidates, fastest predicted first."""
        if not self.profiles:
            self.learn(self.runner.graph.default)
        seconds = self.scorer.score(DecisionBatch.stack(candidates)).seconds
        return [candidates[int(i)] for i in np.argsort(seconds, kind="stable")]

    def learn(self, decisions: Decisions) -> None:
        """Profiles a vector in place."""
        if self.profiles < MAX_PROFILES:
            self.profiles += 1
            self.scorer.profile(self.runner, decisions)
