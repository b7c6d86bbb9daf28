"""Search over decision vectors: moves, a portfolio of starting points, three engines."""

from graphopt.learn.search.annealing import anneal
from graphopt.learn.search.genetic import evolve
from graphopt.learn.search.greedy import improve
from graphopt.learn.search.moves import MOVES, Mover
from graphopt.learn.search.portfolio import portfolio
from graphopt.learn.search.result import Budget, SearchResult

ENGINES = {"greedy": improve, "annealing": anneal, "genetic": evolve}
"""Name -> engine; all take (scorer, budget, seed)."""

__all__ = [
    "ENGINES",
    "MOVES",
    "Budget",
    "Mover",
    "SearchResult",
    "anneal",
    "evolve",
    "improve",
    "portfolio",
]
