"""The best decisions known per graph, whoever found them: labels for imitation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import DecisionError
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.search import Budget
from graphopt.learn.search import improve as search
from graphopt.store import decode_decisions
from graphopt.store.winners import get_winner

START: Final = "start"
"""Origin of what the policy starts from."""

RECORDED: Final = "recorded"
"""Judge of decisions whose whole-module times the store knows."""


@dataclass(frozen=True, eq=False)
class Elite:
    """Decisions worth imitating.

    Attributes:
        decisions: the decisions; XLA's own if nothing better is known.
        log_speedup: log(default time / time) by the scorer that judged them, 0 for XLA's own.
        origin: who found them: default, start, stored, search or policy.
        judge: kind of the scorer that judged them.
    """

    decisions: Decisions
    log_speedup: float
    origin: str
    judge: str


def start_elite(problem: Problem, log_speedup: float) -> Elite:
    """The decisions that a policy starts from: the label where nothing clearly better is known."""
    return Elite(problem.features.start, log_speedup, START, "")


def default_elite(graph: Graph, judge: str = "") -> Elite:
    """XLA's own decisions."""
    return Elite(graph.default, 0.0, "default", judge)


def make_label(problem: Problem, kind: str, evaluations: int, seed: int, rounds: int = 1) -> Elite:
    """The best of XLA's decisions, the portfolio of known ideas, and a local search from there.

    A scorer that predicts invites the search to its mistakes. So after each round what was found is
    measured, and the next round knows better.
    """
    default = default_elite(problem.graph, kind)
    best = default
    problem.confirm(kind, problem.graph.default)
    for index in range(rounds):
        found = search(problem.scorer(kind), Budget(evaluations), seed + index)
        if found.speedup <= 1.0:
            return default
        best = Elite(found.decisions, math.log(found.speedup), "search", kind)
        gain = problem.confirm(kind, best.decisions)
        if gain is None:
            return best
        best = replace(best, log_speedup=gain)
    return best if best.log_speedup > 0 else default


def judged_by(known: Elite | None, problem: Problem, kind: str) -> Elite:
    """Known decisions with their gain by another scorer; XLA's own if they do not gain there.

    What whole modules have shown stands: no prediction overrules it.
    """
    if known is not None and known.judge in (kind, RECORDED):
        return known
    default = default_elite(problem.graph, kind)
    if known is None or known.origin == "default":
        return default
    return improve(default, problem, kind, [known.decisions], known.origin)


def stored_winner(problem: Problem) -> Elite | None:
    """What tuning has found for this graph on this machine, as far as the store knows."""
    store = None if problem.bench is None else problem.bench.store
    if store is None or not store.exists():
        return None
    winner = get_winner(store, problem.graph.fingerprint)
    if winner is None or not winner.changes:
        return None
    try:
        decisions = decode_decisions(problem.graph, winner.decisions)
    except DecisionError:  # made for other decision fields
        return None
    return Elite(decisions, math.log(winner.speedup), "stored", "tuner")


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
    return Elite(candidates[index].copy(), float(gains[index]), origin, kind)


def to_arrays(elites: dict[str, Elite]) -> dict[str, NDArray[Any]]:
    """Elites of many problems as plain arrays, for storage; `from_arrays` is the inverse."""
    out: dict[str, NDArray[Any]] = {}
    for name, elite in elites.items():
        for decision in FIELDS:
            out[f"{name}/{decision}"] = getattr(elite.decisions, decision)
        out[f"{name}/log_speedup"] = np.array(elite.log_speedup)
        for text in ("origin", "judge"):
            out[f"{name}/{text}"] = np.frombuffer(getattr(elite, text).encode(), np.uint8)
    return out


def from_arrays(arrays: dict[str, NDArray[Any]]) -> dict[str, Elite]:
    """Elites from the arrays of `to_arrays`."""
    names = [key.removesuffix("/origin") for key in arrays if key.endswith("/origin")]
    return {
        name: Elite(
            Decisions(**{field: arrays[f"{name}/{field}"] for field in FIELDS}),
            float(arrays[f"{name}/log_speedup"]),
            bytes(arrays[f"{name}/origin"]).decode(),
            bytes(arrays[f"{name}/judge"]).decode(),
        )
        for name in names
    }
