"""How good the likeliest decisions are on graphs that were not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.training.advantages import rewards
from graphopt.learn.training.rollout import score_once
from graphopt.policy.network.learned import most_likely, proposal
from graphopt.policy.network.numpy_network import NumpyPolicy

FAILED_LOG_SPEEDUP: Final = -3.0
_LIMIT: Final = 20.0

MARGINS: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Values that the least promised gain may take."""

_LOSS_WEIGHT: Final = 3.0
"""A slow-down weighs this much more than an equal speed-up when the margin is chosen."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results on G graphs.

    Attributes:
        names: names of the graphs.
        log_speedup: float64 [G]; log(default time / time) of the likeliest decisions.
        base: float64 [G]; the same of the decisions that the policy starts from.
        gain: float64 [G]; what the gain head expected over the start.
        low_gain: float64 [G]; its low quantile.
        changes: int64 [G]; decisions that differ from the start.
    """

    names: tuple[str, ...]
    log_speedup: NDArray[np.float64]
    base: NDArray[np.float64]
    gain: NDArray[np.float64]
    low_gain: NDArray[np.float64]
    changes: NDArray[np.int64]

    def decided(self, margin: float) -> NDArray[np.bool_]:
        """bool [G]; graphs where the policy would leave its start with this margin."""
        return (self.changes > 0) & (self.low_gain > margin)

    def metrics(self, margin: float) -> dict[str, float]:
        """The metrics of `graphopt.learn.training.metrics` under ``validation/``."""
        decided = self.decided(margin)
        speedup = np.exp(self.log_speedup)
        chosen = speedup[decided]
        out = {
            "validation/geomean": float(np.exp(self.log_speedup.mean())),
            "validation/gated": float(
                np.exp(np.where(decided, self.log_speedup, self.base).mean())
            ),
            "validation/kept": float(1.0 - decided.mean()),
            "validation/worst_gated": float(chosen.min()) if len(chosen) else 1.0,
            "validation/gain_error": float(
                np.abs(self.gain - (self.log_speedup - self.base)).mean()
            ),
        }
        for percent in (5, 25, 50, 75, 95):
            out[f"validation/p{percent}"] = float(np.percentile(speedup, percent))
        return out


def evaluate(network: NumpyPolicy, problems: Sequence[Problem], kind: str) -> Evaluation:
    """Scores the likeliest decisions of every problem."""
    rows = []
    for problem in problems:
        encoded = network.encode(problem.features)
        proposed = proposal(problem.graph, encoded, network.decode(encoded, most_likely))
        scorer = problem.scorer(kind)
        seconds, _ = score_once(
            scorer, DecisionBatch.stack([proposed.decisions, problem.features.start])
        )
        speedup, base = rewards(seconds, scorer.default_s, _LIMIT, FAILED_LOG_SPEEDUP).tolist()
        rows.append((speedup, base, proposed.gain, proposed.low_gain, proposed.changes))
    columns = np.array(rows, np.float64).T
    return Evaluation(
        names=tuple(problem.name for problem in problems),
        log_speedup=columns[0],
        base=columns[1],
        gain=columns[2],
        low_gain=columns[3],
        changes=columns[4].astype(np.int64),
    )


def choose_margin(evaluation: Evaluation) -> float:
    """The least gain the policy should ask for: best total on the graphs given, slow-downs weighing more."""

    def worth(margin: float) -> float:
        change = evaluation.log_speedup - evaluation.base
        gained = np.where(evaluation.decided(margin), change, 0.0)
        return float(np.where(gained < 0, _LOSS_WEIGHT * gained, gained).sum())

    # Of equal ones the largest: it keeps the start more often.
    return max(reversed(MARGINS), key=worth)
