"""The genetic part of the policy's search: crossover, and moves that know the block graph.

Which crossover and which move a child gets is drawn in proportion to how often each has improved on a
parent so far. Axis letters: K blocks, D devices, P population.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.baselines import Problem
from graphopt.placement.search import Evaluator
from graphopt.policy.placement.blocks import BlockGraph

Row = NDArray[np.int32]

ELITE: Final = 16
"""Placements that may be parents."""

_FORGET: Final = 0.8
"""Share of its credit that an operator keeps from one generation to the next."""


class Operators:
    """Crossovers and moves on placements [K] of one graph, with their credits."""

    def __init__(self, graph: BlockGraph, devices: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._devices = devices
        self._count = len(graph)
        self._share = graph.share.mean(axis=1)
        self._busy = np.flatnonzero(self._share > 0)
        near = graph.traffic.astype(np.float64)
        self._near = near / np.maximum(near.sum(axis=1, keepdims=True), 1e-12)
        self.crossovers: Sequence[Callable[[Row, Row], Row]] = (
            self._first, self._uniform, self._run_of_second,
        )  # fmt: skip
        self.moves: Sequence[Callable[[Row], None]] = (
            self._few, self._run, self._swap, self._to_neighbour, self._relieve, self._shift_border,
        )  # fmt: skip
        self.credit = np.ones((len(self.crossovers), len(self.moves)))

    def child(self, mother: Row, father: Row) -> tuple[Row, int]:
        """A new placement [K], and the number of the pair of operators that made it."""
        flat = self.credit.ravel()
        drawn = int(self._rng.choice(flat.size, p=flat / flat.sum()))
        cross, move = divmod(drawn, len(self.moves))
        row = self.crossovers[cross](mother, father).copy()
        self.moves[move](row)
        return row, drawn

    def learn(self, drawn: Sequence[int], improved: NDArray[np.bool_]) -> None:
        """Credits operators for children that are better than their mother."""
        gained = np.bincount(drawn, improved.astype(np.float64), self.credit.size)
        self.credit = 1.0 + _FORGET * (self.credit - 1.0) + 2.0 * gained.reshape(self.credit.shape)

    def _block(self) -> int:
        return int(self._rng.choice(self._busy)) if len(self._busy) else 0

    def _first(self, mother: Row, father: Row) -> Row:
        return mother

    def _uniform(self, mother: Row, father: Row) -> Row:
        return np.where(self._rng.random(self._count) < 0.5, mother, father)

    def _run_of_second(self, mother: Row, father: Row) -> Row:
        low, high = np.sort(self._rng.integers(0, self._count + 1, 2))
        place = np.arange(self._count)
        return np.where((place >= low) & (place < high), father, mother)

    def _few(self, row: Row) -> None:
        for _ in range(1 + int(self._rng.poisson(0.7))):
            row[self._block()] = self._rng.integers(0, self._devices)

    def _run(self, row: Row) -> None:
        start = self._block()
        row[start : start + 1 + int(self._rng.geometric(0.3))] = self._rng.integers(
            0, self._devices
        )

    def _swap(self, row: Row) -> None:
        a, b = self._block(), self._block()
        row[a], row[b] = row[b], row[a]

    def _to_neighbour(self, row: Row) -> None:
        """A block goes where one is that it exchanges much with."""
        for _ in range(1 + int(self._rng.poisson(0.7))):
            block = self._block()
            if self._near[block].sum() > 0:
                chances = self._near[block] / self._near[block].sum()
                row[block] = row[int(self._rng.choice(self._count, p=chances))]

    def _relieve(self, row: Row) -> None:
        """A block leaves the device that has most to do for the one that has least."""
        load = np.bincount(row, self._share, self._devices)
        there = self._busy[row[self._busy] == load.argmax()]
        if len(there):
            row[int(self._rng.choice(there))] = load.argmin()

    def _shift_border(self, row: Row) -> None:
        """Where neighbours in time are on two devices, the border between them moves."""
        borders = np.flatnonzero(row[1:] != row[:-1])
        if len(borders):
            left = int(self._rng.choice(borders))
            length = 1 + int(self._rng.geometric(0.5))
            if self._rng.random() < 0.5:
                row[left + 1 : left + 1 + length] = row[left]
            else:
                row[max(0, left + 1 - length) : left + 1] = row[left + 1]


def evolve_pool(
    problem: Problem,
    graph: BlockGraph,
    judge: Evaluator,
    evaluations: int,
    pool: NDArray[np.int32],
    values: NDArray[np.float64],
    rng: np.random.Generator,
    population: int = 32,
) -> None:
    """Improves placements [P, K] of step times [P] until `judge` has scored `evaluations`."""
    operators = Operators(graph, problem.devices, rng)
    while judge.found().evaluations + population <= evaluations:
        elite = _distinct(pool, values, ELITE)
        pool, values = pool[elite], values[elite]
        # Tournaments of two: the better of two random rows of a sorted pool.
        mothers, fathers = rng.integers(0, len(pool), (2, 2, population)).min(axis=0)
        made = [operators.child(pool[m], pool[f]) for m, f in zip(mothers, fathers, strict=True)]
        young = np.stack([row for row, _ in made])
        seconds = judge(graph.placement(problem, young))
        operators.learn([drawn for _, drawn in made], seconds < values[mothers] * (1 - 1e-9))
        pool, values = np.concatenate([pool, young]), np.concatenate([values, seconds])


def _distinct(
    pool: NDArray[np.int32], values: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """Rows of the best placements of different step times, best first."""
    order = np.argsort(values, kind="stable")
    _, first = np.unique(np.round(values[order], 9), return_index=True)
    chosen: NDArray[np.int64] = order[np.sort(first)[:count]]
    return chosen
