"""Choosing the gate of a policy on graphs that it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import GraphOptError
from graphopt.hlo import DecisionBatch
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.training.advantages import rewards
from graphopt.learn.training.evaluation import FAILED_LOG_SPEEDUP
from graphopt.policy.network.gated import NEVER, Gate, judge, own_index
from graphopt.policy.network.numpy_network import NumpyPolicy

SWITCHES: Final = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, NEVER)
OWN_SWITCHES: Final = (-0.5, -0.3, -0.2, -0.1, -0.05, -0.02, 0.0, 0.05)
"""The same for the network's own proposals, which it makes only where it expects them to be better."""

CLOSED: Final = Gate(NEVER)
"""The heuristic alone."""

LOSS_WEIGHT: Final = 3.0
"""A slow-down weighs this much more than an equal speed-up."""

CONVINCING: Final = 0.02
"""Mean weighted log speed-up that opening the gate must bring, for the noise of the measurements."""

_LIMIT: Final = 20.0


@dataclass(frozen=True, eq=False)
class Trial:
    """One graph with all candidates, the heuristic's first.

    Attributes:
        name: of the graph.
        low: float64 [K]; low quantiles of the predicted log speed-ups over the first.
        log_speedup: float64 [K]; log speed-ups over XLA's default, measured.
        own: index of the network's own proposal; 0 if that is the heuristic's.
    """

    name: str
    low: NDArray[np.float64]
    log_speedup: NDArray[np.float64]
    own: int = 0

    def outcome(self, gate: Gate) -> float:
        """Log speed-up with a gate."""
        return float(self.log_speedup[gate.choose(self.low.tolist(), self.own)])


def try_candidates(
    network: NumpyPolicy, problems: Sequence[Problem], kind: str
) -> tuple[Trial, ...]:
    """Judges and scores every candidate of every graph; graphs that cannot be scored are left out."""
    trials = []
    for problem in problems:
        found = judge(network, problem.graph, network.encode(problem.features))
        low = np.array([j.low_gain for j in found], np.float64)
        try:
            scorer = problem.scorer(kind)
            seconds = scorer.score(DecisionBatch.stack([j.decisions for j in found])).seconds
            gains = rewards(seconds, scorer.default_s, _LIMIT, FAILED_LOG_SPEEDUP)
        except GraphOptError:
            continue
        if not np.isnan(seconds).all():  # else the module, not a candidate, cannot be measured
            trials.append(Trial(problem.name, low, np.asarray(gains), own_index(found)))
    return tuple(trials)


def worth(trials: Sequence[Trial], gate: Gate) -> float:
    """Mean log speed-up over graphs, slow-downs weighing more."""
    gained = np.array([trial.outcome(gate) for trial in trials])
    return float(np.where(gained < 0, LOSS_WEIGHT * gained, gained).mean()) if len(gained) else 0.0


def choose_gate(trials: Sequence[Trial]) -> Gate:
    """The gate with the most worth; closed unless opening it clearly brings something."""
    gates = [Gate(switch) for switch in SWITCHES[::-1]]
    gates += [Gate(switch, own=True) for switch in OWN_SWITCHES[::-1]]
    best = max(gates, key=lambda gate: worth(trials, gate))  # of equal ones the most closed
    return best if worth(trials, best) > worth(trials, CLOSED) + CONVINCING else CLOSED


def gate_metrics(trials: Sequence[Trial], gate: Gate) -> dict[str, float]:
    """Metrics of the policy behind its gate, and of the heuristic on the same graphs."""
    ours = np.array([trial.outcome(gate) for trial in trials] or [0.0])
    hand = np.array([trial.outcome(CLOSED) for trial in trials] or [0.0])
    return {
        "validation/guarded": float(np.exp(ours.mean())),
        "validation/guarded_worst": float(np.exp(ours.min())),
        "validation/heuristic": float(np.exp(hand.mean())),
        "validation/worth": worth(trials, gate),
    }
