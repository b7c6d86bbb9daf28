"""A genetic search: tournament selection, crossover by computation, mutation by moves, elitism."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.hlo import Decisions
from graphopt.learn.search.moves import Mover, cross
from graphopt.learn.search.portfolio import portfolio
from graphopt.learn.search.result import Budget, Ledger, SearchResult
from graphopt.measure.scoring import Scorer

POPULATION: Final = 24
ELITE: Final = 4
TOURNAMENT: Final = 3


def evolve(scorer: Scorer, budget: Budget, seed: int = 0) -> SearchResult:
    """Evolves a population that starts from the portfolio and its neighbours."""
    ledger = Ledger(scorer, budget)
    rng = np.random.default_rng(seed)
    mover = Mover(scorer.graph, rng)
    people = [start.decisions for start in portfolio(scorer.graph)]
    while len(people) < POPULATION:
        people.append(mover.move(people[int(rng.integers(len(people)))])[0])
    people = people[: budget.evaluations]
    fitness = ledger.score(people)
    while left := ledger.left:
        order = np.argsort(fitness, kind="stable")[:ELITE]
        children = [_child(mover, people, fitness) for _ in range(min(POPULATION - ELITE, left))]
        scores = ledger.score(children)
        people = [*(people[i] for i in order), *children]
        fitness = np.concatenate([fitness[order], scores])
    return ledger.result()


def _child(mover: Mover, people: list[Decisions], fitness: np.ndarray) -> Decisions:
    rng = mover.rng

    def parent() -> Decisions:
        drawn = rng.integers(len(people), size=TOURNAMENT)
        return people[int(drawn[fitness[drawn].argmin()])]

    child = cross(rng, mover.graph, parent(), parent())
    for _ in range(int(rng.integers(1, 3))):
        child, _ = mover.move(child)
    return child
