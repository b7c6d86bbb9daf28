"""The scoring seam: what a decision vector costs, whoever says so.

Search, environment and training know only `Scorer`. The sources behind it are the kernel bank, a learned
kernel model, and whole-module measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ConfigError
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.measure.plans import vector_key


@dataclass(frozen=True)
class Scores:
    """Times of B decision vectors of one graph.

    Attributes:
        seconds: float64 [B]; seconds per run of the module; NaN where the vector failed.
        reasons: B entries; why it failed, None where it did not.
        measured: vectors (or kernels) that were compiled and timed to answer.
        known: vectors (or kernels) answered from memory.
    """

    seconds: NDArray[np.float64]
    reasons: tuple[str | None, ...]
    measured: int = 0
    known: int = 0

    def __post_init__(self) -> None:
        """Checks that a reason stands exactly where there is no time.

        Raises:
            ConfigError: lengths differ, or a failure has no reason.
        """
        failed = np.isnan(self.seconds)
        if len(self.reasons) != len(failed) or any(
            bool(f) == (r is None) for f, r in zip(failed, self.reasons, strict=True)
        ):
            raise ConfigError(
                what="every failed score needs a reason, and only those",
                where="Scores",
                fix="give NaN seconds and a reason together",
            )


class Scorer(Protocol):
    """Scores decision vectors of one graph.

    Attributes:
        name: for reports: ``bank``, ``model``, ``measured`` ...
        graph: the graph whose vectors it scores.
        deterministic: the same vector always gets the same score.
        default_s: seconds of XLA's own decisions, by the same scale.
    """

    name: str
    graph: Graph
    deterministic: bool

    @property
    def default_s(self) -> float:
        """Seconds of XLA's own decisions, by the same scale."""
        ...

    def score(self, batch: DecisionBatch) -> Scores:
        """Times of B vectors, which must lie inside the graph's masks."""
        ...


Measure = Callable[[Decisions], tuple[float, str | None]]
"""Seconds of a decision vector, NaN where it fails, and then why."""


class VectorMemory:
    """Times of decision vectors that are measured once.

    Attributes:
        known: key of a vector -> seconds (NaN where it failed) and why it failed.
    """

    def __init__(self, key: Callable[[Decisions], Hashable] = vector_key) -> None:
        """Knows nothing; vectors are told apart by `key`."""
        self.key = key
        self.known: dict[Hashable, tuple[float, str | None]] = {}

    def score(self, batch: DecisionBatch, measure: Measure) -> Scores:
        """Times of B vectors; `measure` is asked for those that are new."""
        answers, known = [], 0
        for index in range(len(batch)):
            decisions = batch[index]
            key = self.key(decisions)
            known += key in self.known
            if key not in self.known:
                self.known[key] = measure(decisions)
            answers.append(self.known[key])
        return Scores(
            np.array([seconds for seconds, _ in answers]),
            tuple(reason for _, reason in answers),
            measured=len(answers) - known,
            known=known,
        )
