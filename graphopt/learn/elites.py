"""The best decisions known per graph, whoever found them: labels for imitation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.hlo.decisions import FIELDS
from graphopt.learn.problems import Problem
from graphopt.learn.search import Budget
from graphopt.learn.search import improve as search


@dataclass(frozen=True, eq=False)
class Elite:
    """Decisions worth imitating.

    Attributes:
        decisions: the decisions; XLA's own if nothing better is known.
        log_speedup: log(default time / time) by the scorer that judged them, 0 for XLA's own.
        origin: who found them: default, search or policy.
    """

    decisions: Decisions
    log_speedup: float
    origin: str


def default_elite(graph: Graph) -> Elite:
    """XLA's own decisions."""
    return Elite(graph.default, 0.0, "default")


def make_label(problem: Problem, kind: str, evaluations: int, seed: int) -> Elite:
    """The best of XLA's decisions, the portfolio of known ideas, and a local search from there."""
    found = search(problem.scorer(kind), Budget(evaluations), seed)
    if found.speedup <= 1.0:
        return default_elite(problem.graph)
    return Elite(found.decisions, math.log(found.speedup), "search")


def improve(
    best: Elite, problem: Problem, kind: str, candidates: list[Decisions], origin: str
) -> Elite:
    """The best of `best` and the candidates, by a scorer."""
    scorer = problem.scorer(kind)
    scores = scorer.score(DecisionBatch.stack(candidates))
    gains = np.log(scorer.default_s / scores.seconds)
    if np.isnan(gains).all():
        return best
    index = int(np.nanargmax(gains))
    if gains[index] <= best.log_speedup:
        return best
    return Elite(candidates[index].copy(), float(gains[index]), origin)


def to_arrays(elites: dict[str, Elite]) -> dict[str, NDArray[Any]]:
    """Elites of many problems as plain arrays, for storage; `from_arrays` is the inverse."""
    out: dict[str, NDArray[Any]] = {}
    for name, elite in elites.items():
        for decision in FIELDS:
            out[f"{name}/{decision}"] = getattr(elite.decisions, decision)
        out[f"{name}/log_speedup"] = np.array(elite.log_speedup)
        out[f"{name}/origin"] = np.frombuffer(elite.origin.encode(), np.uint8)
    return out


def from_arrays(arrays: dict[str, NDArray[Any]]) -> dict[str, Elite]:
    """Elites from the arrays of `to_arrays`."""
    names = [key.removesuffix("/origin") for key in arrays if key.endswith("/origin")]
    return {
        name: Elite(
            Decisions(**{field: arrays[f"{name}/{field}"] for field in FIELDS}),
            float(arrays[f"{name}/log_speedup"]),
            bytes(arrays[f"{name}/origin"]).decode(),
        )
        for name in names
    }
