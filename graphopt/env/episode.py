"""Episodes: what has happened since `reset`, and how to get there again."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import ConfigError
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.measure.scoring import Scores


@dataclass(frozen=True)
class Episode:
    """An episode under way.

    Attributes:
        graph: index of the graph in the environment.
        history: decisions of every step so far.
        score: value on the reward scale of the last decisions; 0 before the first step.
        over: no further step is possible.
    """

    graph: int
    history: tuple[Decisions, ...] = ()
    score: float = 0.0
    over: bool = False


@dataclass(frozen=True)
class Statistics:
    """What an environment's scoring has come to so far.

    Attributes:
        scored: decision vectors scored, in steps and batches.
        failed: those without a time.
        measured: vectors (or kernels, as the reward source counts) that were compiled and timed.
        known: those answered from memory.
    """

    scored: int = 0
    failed: int = 0
    measured: int = 0
    known: int = 0

    def after(self, scores: Scores) -> Statistics:
        """The statistics with one more batch."""
        return Statistics(
            self.scored + len(scores.seconds),
            self.failed + int(np.isnan(scores.seconds).sum()),
            self.measured + scores.measured,
            self.known + scores.known,
        )


@dataclass(frozen=True, eq=False)
class EnvState:
    """A point in an episode, by value: enough to get there again in another process.

    States are equal if graph and decisions are; times do not count.

    Attributes:
        graph: name of the graph in the environment.
        fingerprint: the graph's fingerprint.
        history: decisions of every step so far.
        score: value on the reward scale of the last decisions.
    """

    graph: str
    fingerprint: str
    history: tuple[Decisions, ...]
    score: float = 0.0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, EnvState)
            and (self.graph, self.fingerprint) == (other.graph, other.fingerprint)
            and len(self.history) == len(other.history)
            and all(a.same_as(b) for a, b in zip(self.history, other.history, strict=True))
        )

    def __hash__(self) -> int:
        return hash((self.graph, self.fingerprint, len(self.history)))

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        history = [
            {
                name: {
                    "dtype": getattr(d, name).dtype.name,
                    "values": base64.b64encode(getattr(d, name).tobytes()).decode(),
                }
                for name in FIELDS
            }
            for d in self.history
        ]
        return json.dumps(
            {
                "graph": self.graph,
                "fingerprint": self.fingerprint,
                "history": history,
                "score": self.score,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> EnvState:
        """The state that `to_json` wrote.

        Raises:
            ConfigError: the text is no such state.
        """
        try:
            data = json.loads(text)
            history = tuple(_decisions(row) for row in data["history"])
            return cls(str(data["graph"]), str(data["fingerprint"]), history, float(data["score"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                what=f"not an environment state: {error}",
                where="EnvState.from_json",
                fix="Pass what EnvState.to_json returned.",
            ) from error

    def check(self, graph: Graph) -> None:
        """Checks that the state belongs to a graph.

        Raises:
            ConfigError: the graph is another one.
        """
        if graph.fingerprint != self.fingerprint:
            raise ConfigError(
                what=f"the state belongs to another version of graph {self.graph}",
                where="apply",
                fix="Apply it in an environment made from the same program, jax and machine.",
            )

    def check_horizon(self, horizon: int) -> None:
        """Checks that the history fits an episode of `horizon` steps.

        Raises:
            ConfigError: it is longer.
        """
        if len(self.history) > horizon:
            raise ConfigError(
                what=f"{len(self.history)} steps do not fit a horizon of {horizon}",
                where="apply",
                fix="Make the environment with a longer horizon.",
            )


def _decisions(row: dict[str, Any]) -> Decisions:
    fields = {
        name: np.frombuffer(base64.b64decode(row[name]["values"]), row[name]["dtype"])
        for name in FIELDS
    }
    return Decisions(**fields)
