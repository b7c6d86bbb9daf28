"""Learning from decisions that were measured before: no sampling, no scorer.

The gain head learns to tell good from bad vectors; the heads imitate the best vector of each graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.config import TrainConfig
from graphopt.learn.training.batch import Batch, imitation_weights
from graphopt.learn.training.elites import RECORDED, START, Elite, default_elite, start_elite
from graphopt.measure.plans import vector_key
from graphopt.policy.network.padding import pad, pad_rows
from graphopt.policy.proposals.vectors import candidates
from graphopt.store.encoding import decode_known
from graphopt.store.winners import outcomes, outcomes_elsewhere


@dataclass(frozen=True, eq=False)
class Records:
    """Measured vectors of one graph; the first few are those that a policy chooses between.

    Attributes:
        vectors: R decision vectors.
        log_speedup: float64 [R]; log(default time / time), NaN where the vector failed.
        usual: vectors that `graphopt.policy.network.gated.judge` chooses between.
        base: log(default time / time) of the decisions that a policy starts from.
    """

    vectors: tuple[Decisions, ...]
    log_speedup: NDArray[np.float64]
    usual: int
    base: float

    def elite(self, problem: Problem) -> Elite:
        """The best vector; XLA's own if none is faster."""
        known = np.where(np.isnan(self.log_speedup), -math.inf, self.log_speedup)
        best = int(known.argmax())
        if known[best] <= 0:
            return default_elite(problem.graph, RECORDED)
        return Elite(self.vectors[best], float(known[best]), "stored", RECORDED)


Outcomes = list[tuple[Decisions, float]]
"""Vectors and their log(default time / time), NaN where they failed, as one machine measured them."""


def load_records(problem: Problem, other_machines: bool = False) -> Records | None:
    """What the store knows about a problem's vectors; None if nothing, or not what the start is worth.

    Args:
        problem: the problem.
        other_machines: what other machines measured counts as well.
    """
    if problem.bench is None or not problem.bench.store.exists():
        return None
    store, graph = problem.bench.store, problem.graph
    stored = [outcomes(store, graph.fingerprint)]
    if other_machines:
        stored += outcomes_elsewhere(store, graph.fingerprint)
    start = problem.features.start
    made = [decisions for _, decisions in candidates(graph, start)]
    usual: Outcomes = []
    if not start.same_as(graph.default):
        usual.append((graph.default, 0.0))
    other: Outcomes = []
    rows, base = pooled([_decoded(graph, known) for known in stored], graph.default, start)
    for vector, gain in rows:
        place = usual if any(vector.same_as(m) for m in made) else other
        place.append((vector, gain))
    rows = [*usual, *other]
    if not rows or math.isnan(base):
        return None
    gains = np.array([gain for _, gain in rows])
    return Records(tuple(vector for vector, _ in rows), gains, len(usual), base)


def _decoded(graph: Graph, stored: list[tuple[str, float | None]]) -> Outcomes:
    known = decode_known(graph, stored)
    return [(vector, math.log(ratio) if ratio else math.nan) for vector, ratio in known]


def pooled(
    machines: Sequence[Outcomes], default: Decisions, start: Decisions
) -> tuple[Outcomes, float]:
    """Vectors of all machines that know what the start is worth, each once, and what the start is worth.

    Machines differ less in what decisions gain over the start than in what the start gains over XLA's
    default. So a vector's gain is the start's on the first machine that knows it, plus the mean of
    what the vector gained over the start wherever it worked; NaN where it worked nowhere.

    Args:
        machines: what each measured.
        default: XLA's own decisions, which gain nothing everywhere.
        start: the decisions that a policy starts from.

    Returns:
        Vectors with their log(default time / time), and the start's; NaN if no machine knows that.
    """
    first = math.nan
    vectors: dict[bytes, Decisions] = {}
    over_start: dict[bytes, list[float]] = {}
    for known in machines:
        base = next((gain for vector, gain in known if vector.same_as(start)), math.nan)
        if start.same_as(default):
            base = 0.0
        if math.isnan(base):
            continue
        first = base if math.isnan(first) else first
        for vector, gain in known:
            key = vector_key(vector)
            vectors[key] = vector
            over_start.setdefault(key, []).extend([] if math.isnan(gain) else [gain - base])
    means = {key: float(np.mean(gains)) if gains else math.nan for key, gains in over_start.items()}
    return [(vector, first + means[key]) for key, vector in vectors.items()], first


def replay_batch(
    problem: Problem, records: Records, rng: np.random.Generator, config: TrainConfig
) -> Batch:
    """Measured vectors as a batch of the size that rollouts have; the last one is the label.

    Half of the rows, where there are as many, are vectors that a policy chooses between.
    """
    size = config.rollout.samples
    chosen = _draw(records, rng, size)
    label = records.elite(problem)
    if label.log_speedup < records.base + config.imitation.min_gain:
        label = start_elite(problem, records.base)
    vectors = [*(records.vectors[index] for index in chosen), label.decisions]
    limit = config.rollout.reward_clip
    gains = np.append(records.log_speedup[chosen], label.log_speedup)
    gains = np.clip(np.where(np.isnan(gains), config.rollout.failure, gains), -limit, limit)
    return _batch(problem, vectors, gains, records.base, label, config)


def _draw(records: Records, rng: np.random.Generator, size: int) -> NDArray[np.intp]:
    count = len(records.vectors)
    usual = rng.permutation(records.usual)[: size // 2]
    rest = rng.permutation(np.setdiff1d(np.arange(count), usual))
    order = np.concatenate([usual, rest]).astype(np.intp)
    return np.resize(order, size)


def _batch(
    problem: Problem,
    vectors: Sequence[Decisions],
    gains: NDArray[np.float64],
    base: float,
    label: Elite,
    config: TrainConfig,
) -> Batch:
    features = problem.features
    graph = pad(features, config.model.segment)
    size = len(graph.nodes["real"])
    weights = imitation_weights(features, label.decisions, config.imitation.deviation_weight)
    rows = len(vectors)
    nothing = np.zeros((rows, len(features)), np.float32)
    batch = Batch(
        graph,
        {},
        {},
        {},
        {},
        np.zeros(rows, np.float32),
        (gains - base).astype(np.float32),
        np.append(np.ones(rows - 1), float(label.origin != START)).astype(np.float32),
        np.float32(gains[:-1].mean()),
    )
    for field in features.fields:
        name = field.name
        imitate = nothing.copy()
        imitate[-1] = weights[name]
        actions = np.stack([getattr(v, name) for v in vectors]).astype(np.int32)
        batch.actions[name] = pad_rows(actions, size)
        batch.old[name] = batch.drawn[name] = pad_rows(nothing, size)
        batch.imitate[name] = pad_rows(imitate, size)
    return batch
