"""Rewards: where times come from, and how a time becomes a number."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from graphopt.corpus.program import Program
from graphopt.errors import ConfigError
from graphopt.hlo import Graph
from graphopt.measure.scoring import Scorer, Scores


class ScorerFactory(Protocol):
    """Makes the scorer of one graph."""

    def __call__(self, graph: Graph, program: Program | None) -> Scorer:
        """A scorer of `graph`; `program` is what it belongs to, None if that is unknown."""
        ...


@dataclass(frozen=True)
class RewardSource:
    """A source of times.

    Attributes:
        name: what ``reward=`` says.
        factory: makes the scorer of one graph: a function, or ``module:attribute`` naming one,
            which is imported when it is needed.
        deterministic: equal decisions always get equal rewards, in every process that finds the
            same store.
        cost: what scoring one vector costs, in words.
        failure: reward of a vector that has no time (it failed to compile, or timed out).
        needs_program: it runs the program, so a graph alone is not enough.
    """

    name: str
    factory: ScorerFactory | str
    deterministic: bool
    cost: str
    failure: float = -2.0
    needs_program: bool = False

    def scorer(self, graph: Graph, program: Program | None) -> Scorer:
        """The scorer of one graph.

        Raises:
            ConfigError: the source needs a program and there is none, or its factory is missing.
        """
        if self.needs_program and program is None:
            raise ConfigError(
                what=f"reward source {self.name} runs programs, and {graph.name} is only a graph",
                where="reward",
                fix="Pass programs instead of graphs, or use another reward source.",
            )
        return self._resolve()(graph, program)

    def _resolve(self) -> ScorerFactory:
        if not isinstance(self.factory, str):
            return self.factory
        module, _, attribute = self.factory.partition(":")
        try:
            found: ScorerFactory = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                what=f"reward source {self.name} is not installed: {error}",
                where="reward",
                fix=f"Use one of {', '.join(SOURCES)}.",
            ) from error
        return found


def _analytic(graph: Graph, program: Program | None) -> Scorer:
    from graphopt.measure.analytic import AnalyticScorer

    return AnalyticScorer(graph)


def _bank(graph: Graph, program: Program | None) -> Scorer:
    from graphopt.measure.bank.scorer import BankScorer
    from graphopt.store import Store

    scorer = BankScorer(graph, Store())
    scorer.recall(graph.default)
    return scorer


def _model(graph: Graph, program: Program | None) -> Scorer:
    from graphopt.measure.bank.predictor import model_of
    from graphopt.measure.bank.scorer import BankScorer
    from graphopt.store import Store

    return BankScorer(graph, None, model_of(Store()))


def _measured(graph: Graph, program: Program | None) -> Scorer:
    from graphopt.corpus.workloads import build_program
    from graphopt.measure.measured import MeasuredScorer

    if program is None:  # on made-up inputs
        return MeasuredScorer(graph)
    return MeasuredScorer.of_program(graph, *build_program(program, program.name))


SOURCES: Final[dict[str, RewardSource]] = {
    source.name: source
    for source in (
        RewardSource(
            "analytic", _analytic, deterministic=True,
            cost="about 6 microseconds per node; measures nothing",
        ),
        RewardSource(
            "bank", _bank, deterministic=True,
            cost="microseconds per vector in batches; predicts what the user's store does not know",
        ),
        RewardSource(
            "model", _model, deterministic=True,
            cost="as bank, with every kernel predicted by a model of those in the user's store",
        ),
        RewardSource(
            "measured", _measured, deterministic=False,
            cost="a compile and a third of a second of timing per vector, in a child process",
        ),
    )
}  # fmt: skip
"""Reward sources by name; `register_source` adds one."""

DEFAULT_SOURCE: Final = "analytic"


def register_source(source: RewardSource) -> None:
    """Adds a reward source, or replaces the one of the same name."""
    SOURCES[source.name] = source


def find_source(source: str | RewardSource) -> RewardSource:
    """A reward source by name, or the one given.

    Raises:
        ConfigError: there is none of this name.
    """
    if isinstance(source, RewardSource):
        return source
    if source not in SOURCES:
        raise ConfigError(
            what=f"no reward source is named {source!r}",
            where="reward",
            fix=f"Use one of {', '.join(SOURCES)}, or pass a RewardSource.",
        )
    return SOURCES[source]


def _log_ratio(default_s: float, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(default_s / seconds)


def _saved_share(default_s: float, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - seconds / default_s


REWARD_SCALES: Final[dict[str, Callable[[float, NDArray[np.float64]], NDArray[np.float64]]]] = {
    "log_ratio": _log_ratio,
    "saved_share": _saved_share,
}
"""Scale name -> function of the default's seconds and seconds [B] to rewards [B].

``log_ratio`` is log(default / new): 0 at XLA's default, log 2 when twice as fast. ``saved_share``
is the share of the default's time that is saved: at most 1, unbounded below.
"""


def find_scale(name: str) -> Callable[[float, NDArray[np.float64]], NDArray[np.float64]]:
    """A reward scale by name.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in REWARD_SCALES:
        raise ConfigError(
            what=f"no reward scale is named {name!r}",
            where="scale",
            fix=f"Use one of {', '.join(REWARD_SCALES)}.",
        )
    return REWARD_SCALES[name]


def rewards_of(scores: Scores, default_s: float, scale: Any, failure: float) -> NDArray[np.float64]:
    """float64 [B]; rewards of scored vectors, `failure` where a vector has no time."""
    failed = np.isnan(scores.seconds)
    seconds = np.where(failed, default_s, scores.seconds)
    rewards: NDArray[np.float64] = scale(default_s, seconds)
    rewards[failed] = failure
    return rewards
