"""Sampling decisions and scoring them. Axis letters: N nodes, B decision vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.config import RolloutConfig
from graphopt.learn.training.advantages import rewards
from graphopt.measure import Scorer
from graphopt.policy.network.learned import Samples, sample
from graphopt.policy.network.numpy_network import NumpyPolicy


@dataclass(frozen=True, eq=False)
class Rollout:
    """B decision vectors of one graph with their rewards; the first is the likeliest one.

    Attributes:
        problem: the graph.
        samples: the vectors.
        rewards: float64 [B]; log(default time / time), or the failure reward.
        base: the same of the decisions that the policy starts from.
        failed: bool [B]; True where scoring failed.
        value: reward that the value head expected.
        measured: vectors or kernels that were compiled and timed.
    """

    problem: Problem
    samples: Samples
    rewards: NDArray[np.float64]
    base: float
    failed: NDArray[np.bool_]
    value: float
    measured: int


def collect(
    network: NumpyPolicy,
    problem: Problem,
    kind: str,
    rng: np.random.Generator,
    config: RolloutConfig,
) -> Rollout:
    """Draws and scores the decision vectors of one step for one graph."""
    encoded = network.encode(problem.features)
    free = free_nodes(rng, len(problem.graph), config.samples, config.min_free)
    samples = sample(network, encoded, rng, free, config.temperature)
    scorer = problem.scorer(kind)
    start = problem.features.start
    drawn = samples.decisions(problem.graph).fields
    rows = {k: np.concatenate([v, getattr(start, k)[None]]) for k, v in drawn.items()}
    seconds, measured = score_once(scorer, DecisionBatch(rows))
    reward = rewards(seconds, scorer.default_s, config.reward_clip, config.failure)
    failed = np.isnan(seconds[:-1])
    base = float(reward[-1])
    return Rollout(problem, samples, reward[:-1], base, failed, network.value(encoded), measured)


def free_nodes(
    rng: np.random.Generator, nodes: int, count: int, smallest: int
) -> NDArray[np.bool_]:
    """Which nodes explore in each vector, bool [count, nodes]: none in the first, a run in the others.

    The nodes outside take their likeliest values. A short run makes clear which choices a reward is owed
    to, a long one tries choices together; lengths are log-uniform from `smallest` to all nodes.
    """
    free = np.zeros((count, nodes), np.bool_)
    shortest = min(smallest, nodes)
    for row in free[1:]:
        length = round(shortest * (nodes / shortest) ** float(rng.random()))
        start = int(rng.integers(nodes - length + 1))
        row[start : start + length] = True
    return free


def score_once(scorer: Scorer, batch: DecisionBatch) -> tuple[NDArray[np.float64], int]:
    """Seconds of every vector, and how many were measured; equal vectors are scored once."""
    rows: dict[bytes, int] = {}
    place = []
    for index in range(len(batch)):
        key = b"".join(values[index].tobytes() for values in batch.fields.values())
        place.append(rows.setdefault(key, len(rows)))
    first = [place.index(k) for k in range(len(rows))]
    scores = scorer.score(DecisionBatch({k: v[first] for k, v in batch.fields.items()}))
    return scores.seconds[place], scores.measured


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Means over the rollouts of one step."""
    drawn = changed = 0
    for rollout in rollouts:
        for field in rollout.problem.features.fields:
            free = rollout.samples.drawn[field.name]
            drawn += int(free.sum())
            changed += int((free & (rollout.samples.actions[field.name] != field.start)).sum())
    return {
        "rollout/reward": float(np.mean([r.rewards[1:].mean() for r in rollouts])),
        "rollout/best": float(np.mean([r.rewards.max() for r in rollouts])),
        "rollout/greedy": float(np.mean([r.rewards[0] for r in rollouts])),
        "rollout/failed": float(np.mean([r.failed.mean() for r in rollouts])),
        "rollout/changes": changed / max(drawn, 1),
        "rollout/measured": float(sum(r.measured for r in rollouts)),
        "rollout/value_error": float(
            np.mean([abs(r.value - r.rewards[1:].mean()) for r in rollouts])
        ),
    }
