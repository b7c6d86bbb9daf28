"""The best decisions known per graph, whoever found them: labels for imitation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.hlo.decisions import FIELDS
from graphopt.learn.problems import Problem
from graphopt.policy.heuristic import heuristic

_BATCH = 16


@dataclass(frozen=True, eq=False)
class Elite:
    """Decisions worth imitating.

    Attributes:
        decisions: the decisions; XLA's own if nothing better is known.
        log_speedup: log(default time / time) by the scorer that judged them, 0 for XLA's own.
        origin: who found them: default, heuristic, search or policy.
    """

    decisions: Decisions
    log_speedup: float
    origin: str


def default_elite(graph: Graph) -> Elite:
    """XLA's own decisions."""
    return Elite(graph.default, 0.0, "default")


def make_label(problem: Problem, kind: str, evaluations: int, rng: np.random.Generator) -> Elite:
    """The best of XLA's decisions, the heuristic's, and a local search from the better of them."""
    best = default_elite(problem.graph)
    by_hand = heuristic(problem.graph)
    if by_hand is not None:
        best = improve(best, problem, kind, [by_hand], "heuristic")
    while evaluations > 0:
        count = min(evaluations, _BATCH)
        candidates = [mutate(problem.graph, best.decisions, rng) for _ in range(count)]
        best = improve(best, problem, kind, candidates, "search")
        evaluations -= count
    return best


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


def mutate(graph: Graph, decisions: Decisions, rng: np.random.Generator) -> Decisions:
    """One random legal change: a field of one node, of a run of nodes, or of a whole computation.

    Runs and computations get one common value, because native regions and joins pay only together.
    """
    out = decisions.copy()
    name = FIELDS[int(rng.integers(len(FIELDS)))]
    mask: NDArray[np.bool_] = getattr(graph.masks, name)
    free = np.flatnonzero(mask.sum(axis=1) > 1)
    if not len(free):
        return out
    centre = int(rng.choice(free))
    nodes = _region(graph, centre, free, rng)
    values = np.flatnonzero(mask[centre])
    current: NDArray[Any] = getattr(out, name)
    value = int(rng.choice(values[values != current[centre]]))
    nodes = nodes[mask[nodes, value]]
    current[nodes] = value
    return out


def _region(
    graph: Graph, centre: int, free: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Nodes that change together: half the time one, else a run or the centre's computation."""
    kind = int(rng.integers(4))
    if kind < 2:
        return np.array([centre], np.intp)
    inside: NDArray[np.intp] = free[graph.computation[free] == graph.computation[centre]]
    if kind == 2:
        return inside
    width = int(2 ** rng.integers(1, 7))
    near: NDArray[np.intp] = inside[np.abs(inside - centre) <= width]
    return near


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
