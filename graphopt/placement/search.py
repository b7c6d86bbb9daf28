"""Annealing and a genetic search over placements, at a fixed number of evaluations.

Both work on *blocks*: groups that a coarse partition holds together, so that large graphs have few
hundred decisions. Axis letters: B placements, G groups, K blocks, D devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.baselines import Placement, Problem
from graphopt.placement.coarsen import coarsen
from graphopt.placement.partition import partition

OUT_OF_MEMORY: Final = 10.0
"""A placement that does not fit counts as so many times its step time."""


COARSE_PER_BLOCK: Final = 16
"""Vertices per block that a large graph is shrunk to before it is partitioned."""


@dataclass(frozen=True, eq=False)
class Found:
    """Result of a search.

    Attributes:
        placement: int16 [G]; the best one.
        seconds: its step time; inf if nothing fitted.
        evaluations: placements scored.
        history: float64 [evaluations]; best step time so far after each evaluation.
    """

    placement: Placement
    seconds: float
    evaluations: int
    history: NDArray[np.float64]


class Evaluator:
    """Scores batches of placements, counts them and remembers the best."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.best: Placement = np.zeros(problem.groups, np.int16)
        self.seconds = np.inf
        self.latest = np.inf
        """Best step time of the last batch; inf if nothing in it fitted."""
        self._history: list[NDArray[np.float64]] = []

    def __call__(self, placements: NDArray[np.int16]) -> NDArray[np.float64]:
        """float64 [B]: step times of placements [B, G], those that do not fit made dearer."""
        scores = self.problem.simulator.score(placements)
        legal = np.where(np.isnan(scores.seconds), np.inf, scores.seconds)
        index = int(legal.argmin())
        self.latest = float(legal[index])
        so_far = np.minimum.accumulate(np.minimum(legal, self.seconds))
        self._history.append(so_far)
        if legal[index] < self.seconds:
            self.seconds, self.best = float(legal[index]), placements[index].copy()
        return np.where(np.isinf(legal), OUT_OF_MEMORY * scores.unlimited_s, legal)

    def found(self) -> Found:
        """What was found so far."""
        history = np.concatenate(self._history) if self._history else np.zeros(0)
        return Found(self.best, self.seconds, len(history), history)


def blocks_of(problem: Problem, count: int) -> NDArray[np.int64]:
    """int64 [G]: a block per group, at most `count`; little traffic between blocks, equal work."""
    if problem.groups <= count:
        return np.arange(problem.groups)
    tasks = problem.simulator.tasks
    weight = problem.group_seconds.mean(axis=1)
    source, target = tasks.group[tasks.operands], tasks.group[tasks.consumer]
    moving = ~tasks.is_input[tasks.operands]
    cost = 1.0 + tasks.nbytes[tasks.operands][moving] / max(1.0, float(tasks.nbytes.mean()))
    mapping, coarse, left, right, price = coarsen(
        weight, source[moving], target[moving], cost, COARSE_PER_BLOCK * count,
        2.0 * float(weight.sum()) / (COARSE_PER_BLOCK * count),
    )  # fmt: skip
    return partition(coarse, left, right, price, count)[mapping]


def to_blocks(placement: Placement, blocks: NDArray[np.int64], weight: NDArray[np.float64],
              devices: int) -> NDArray[np.int16]:  # fmt: skip
    """int16 [K]: for each block the device that holds most of its work."""
    votes = np.zeros((int(blocks.max()) + 1, devices))
    np.add.at(votes, (blocks, placement), weight + 1e-12)
    chosen: NDArray[np.int16] = votes.argmax(axis=1).astype(np.int16)
    return chosen


class _BlockSearch:
    """What both searches share: random numbers, the judge, starting points and their scores, blocks."""

    def __init__(
        self, problem: Problem, start: list[Placement], blocks: NDArray[np.int64], seed: int
    ) -> None:
        """Scores every starting point first."""
        self.rng = np.random.default_rng(seed)
        self.judge = Evaluator(problem)
        self.repair = problem.masks.repair
        self.blocks = blocks
        self.count = int(blocks.max()) + 1
        self.begun = self.judge(np.stack([self.repair(p) for p in start]))
        weight, devices = problem.group_seconds.mean(axis=1), problem.devices
        self.starts = [to_blocks(p, blocks, weight, devices) for p in start]

    def score(self, states: NDArray[np.int16]) -> NDArray[np.float64]:
        """float64 [B]; step times of placements of blocks [B, K]."""
        return self.judge(self.repair(states[:, self.blocks]))


def anneal(
    problem: Problem,
    evaluations: int,
    *,
    start: list[Placement],
    blocks: NDArray[np.int64],
    chains: int = 16,
    seed: int = 0,
) -> Found:
    """Parallel simulated annealing; every chain starts from one of `start` (or its block form)."""
    search = _BlockSearch(problem, start, blocks, seed)
    rng = search.rng
    good = np.argsort(search.begun)
    state = np.stack([search.starts[good[c % min(4, len(good))]] for c in range(chains)])
    value = search.score(state)
    rounds = max(1, (evaluations - len(start) - chains) // chains)
    for step in range(rounds):
        left = 1.0 - step / rounds
        heat = 0.01 * left**2 + 1e-5
        moved = state.copy()
        flips = 1 + rng.poisson(1.5 * left, chains)
        for chain in range(chains):
            chosen = rng.integers(0, search.count, flips[chain])
            moved[chain, chosen] = rng.integers(0, problem.devices, flips[chain])
        new = search.score(moved)
        worse = (new - value) / np.maximum(value, 1e-30)
        accept = rng.random(chains) < np.exp(-np.maximum(worse, 0.0) / heat)
        state[accept], value[accept] = moved[accept], new[accept]
    return search.judge.found()


def evolve(
    problem: Problem,
    evaluations: int,
    *,
    start: list[Placement],
    blocks: NDArray[np.int64],
    population: int = 32,
    seed: int = 0,
) -> Found:
    """A genetic search: elite of a quarter, uniform crossover, mutation."""
    search = _BlockSearch(problem, start, blocks, seed)
    rng, count = search.rng, search.count
    pool = np.stack(search.starts)
    random = rng.integers(0, problem.devices, (max(0, population - len(pool)), count))
    pool = np.concatenate([pool, random.astype(np.int16)])
    value = search.score(pool)
    while search.judge.found().evaluations + population <= evaluations:
        elite = np.argsort(value)[: max(2, population // 4)]
        mothers, fathers = rng.choice(elite, (2, population))
        mix = rng.random((population, count)) < 0.5
        young = np.where(mix, pool[mothers], pool[fathers])
        change = rng.random((population, count)) < 1.5 / count
        young[change] = rng.integers(0, problem.devices, int(change.sum()))
        scores = search.score(young)
        pool = np.concatenate([pool[elite], young])
        value = np.concatenate([value[elite], scores])
    return search.judge.found()
