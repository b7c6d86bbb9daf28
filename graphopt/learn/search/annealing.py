"""Simulated annealing with parallel chains (Kirkpatrick et al. 1983), on the log of the time."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.learn.search.moves import Mover
from graphopt.learn.search.portfolio import portfolio
from graphopt.learn.search.result import Budget, Ledger, SearchResult
from graphopt.measure.scoring import Scorer

CHAINS: Final = 8
HOT: Final = 0.2
COLD: Final = 0.002
"""First and last temperature: a change of 20 % and of 0.2 % of the time is then accepted now and then."""


def anneal(scorer: Scorer, budget: Budget, seed: int = 0) -> SearchResult:
    """Runs `CHAINS` chains from the best starting points; the temperature falls geometrically."""
    ledger = Ledger(scorer, budget)
    rng = np.random.default_rng(seed)
    mover = Mover(scorer.graph, rng)
    starts = [start.decisions for start in portfolio(scorer.graph)][: budget.evaluations]
    scores = ledger.score(starts)
    order = np.argsort(scores, kind="stable")
    current = [starts[order[i % len(order)]] for i in range(CHAINS)]
    energy = np.log(scores[order[np.arange(CHAINS) % len(order)]])
    total = max(1, ledger.left)
    while left := ledger.left:
        temperature = HOT * (COLD / HOT) ** (1.0 - left / total)
        count = min(CHAINS, left)
        tried = [mover.move(current[i])[0] for i in range(count)]
        proposed = np.log(ledger.score(tried))
        with np.errstate(invalid="ignore"):  # two failures: no gain
            gain = np.where(np.isinf(proposed), -np.inf, energy[:count] - proposed)
        accept = np.log(rng.random(count)) < gain / temperature
        for i in np.flatnonzero(accept):
            current[i], energy[i] = tried[i], proposed[i]
    return ledger.result()
