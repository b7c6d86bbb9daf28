"""Greedy improvement: the best of a batch of neighbours, if it is better."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.learn.search.moves import Mover
from graphopt.learn.search.portfolio import portfolio
from graphopt.learn.search.result import Budget, Ledger, SearchResult
from graphopt.measure.scoring import Scorer

BATCH: Final = 16


def improve(scorer: Scorer, budget: Budget, seed: int = 0) -> SearchResult:
    """Climbs from the best of the portfolio's starting points."""
    ledger = Ledger(scorer, budget)
    mover = Mover(scorer.graph, np.random.default_rng(seed))
    ledger.score([start.decisions for start in portfolio(scorer.graph)])
    while left := ledger.left:
        ledger.score([mover.move(ledger.best)[0] for _ in range(min(BATCH, left))])
    return ledger.result()
