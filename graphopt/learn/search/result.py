"""What searches spend and return."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ConfigError
from graphopt.hlo import DecisionBatch, Decisions
from graphopt.measure.scoring import Scorer


@dataclass(frozen=True)
class Budget:
    """When a search ends: at whichever limit comes first.

    Attributes:
        evaluations: most decision vectors to score.
        seconds: longest time; infinite by default, so that a run with a seed is reproducible.
    """

    evaluations: int
    seconds: float = float("inf")

    def __post_init__(self) -> None:
        """Checks the limits.

        Raises:
            ConfigError: a limit is not positive.
        """
        if self.evaluations < 1 or not self.seconds > 0:
            raise ConfigError(
                what=f"a budget of {self.evaluations} evaluations and {self.seconds} s",
                where="Budget",
                fix="Give at least one evaluation and a positive time.",
            )


@dataclass(frozen=True)
class SearchResult:
    """The best vector a search found.

    Attributes:
        decisions: the vector; XLA's default where nothing was better.
        seconds: its score.
        default_s: score of XLA's default.
        history: (evaluations so far, elapsed seconds, best score) whenever the best improved.
        evaluations: vectors scored.
        failures: vectors without a score.
    """

    decisions: Decisions
    seconds: float
    default_s: float
    history: tuple[tuple[int, float, float], ...]
    evaluations: int
    failures: int

    @property
    def speedup(self) -> float:
        """Default score over best score."""
        return self.default_s / self.seconds


@dataclass
class Ledger:
    """Scores vectors within a budget and remembers the best."""

    scorer: Scorer
    budget: Budget
    best: Decisions = field(init=False)
    best_s: float = field(init=False)
    evaluations: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        """Starts from XLA's default."""
        self.best, self.best_s = self.scorer.graph.default, self.scorer.default_s
        self._start = time.perf_counter()
        self._history: list[tuple[int, float, float]] = [(0, 0.0, self.best_s)]

    @property
    def left(self) -> int:
        """Evaluations left; 0 when the time is up."""
        if time.perf_counter() - self._start > self.budget.seconds:
            return 0
        return max(0, self.budget.evaluations - self.evaluations)

    def score(self, vectors: list[Decisions]) -> NDArray[np.float64]:
        """float64 [B]; seconds, infinite where a vector failed.

        Cuts the list at the number of evaluations, not at the time: callers count on the scores of
        what they had room for when they looked.
        """
        vectors = vectors[: max(1, self.budget.evaluations - self.evaluations)]
        scores = self.scorer.score(DecisionBatch.stack(vectors))
        seconds = np.where(np.isnan(scores.seconds), np.inf, scores.seconds)
        self.evaluations += len(vectors)
        self.failures += int(np.isinf(seconds).sum())
        index = int(seconds.argmin())
        if seconds[index] < self.best_s:
            self.best, self.best_s = vectors[index].copy(), float(seconds[index])
            elapsed = time.perf_counter() - self._start
            self._history.append((self.evaluations, elapsed, self.best_s))
        return np.asarray(seconds)

    def result(self) -> SearchResult:
        """What was found."""
        return SearchResult(
            self.best,
            self.best_s,
            self.scorer.default_s,
            tuple(self._history),
            self.evaluations,
            self.failures,
        )
