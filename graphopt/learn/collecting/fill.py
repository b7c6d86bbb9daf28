"""Fills the store from programs: kernel times, and whole-module times of good and of bad decisions.

What a policy is to avoid must be in the store like what it is to do. So each program's starting points are
measured whether or not they look good, then random neighbours of the starting points and of the best so far.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from graphopt.errors import GraphOptError
from graphopt.hlo import Decisions, Graph
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.collecting.scorers import Bench
from graphopt.learn.search.moves import Mover
from graphopt.learn.search.portfolio import portfolio
from graphopt.measure.children.runner import Runner
from graphopt.policy.proposals.vectors import candidates as usual
from graphopt.store import Store, decisions_digest, decode_decisions, encode_decisions
from graphopt.store.winners import evaluations, outcomes

LOOK_S: Final = 0.08
"""Timing of one candidate; its compile takes longer."""

TRUST_S: Final = 0.3
"""Timing of the best few: of many short looks the best is often just the luckiest."""

TIMEOUT_S: Final = 8.0
"""A candidate that compiles or runs much longer than the default is as bad as one that hangs."""

FINALISTS: Final = 2
WORTH_TRUST: Final = 1.02
"""Ratio from which a candidate is measured again."""

_LAST: Final = ("fuse everything",)
"""Starting points that take longest."""

_PROFILED: Final = frozenset({"heuristic", "native everywhere", "native loops all"})
"""Starting points whose kernels are measured however slow they are: a bank that holds the regions of winners
only makes native code look cheap."""


@dataclass(frozen=True)
class Filled:
    """What one program added.

    Attributes:
        name: program and module.
        nodes: nodes of its graph.
        vectors: decision vectors measured whole.
        failed: vectors that crashed, hung or computed something else.
        kernels: kernel times measured.
        best: best ratio known; above 1 it is faster than XLA's default.
        worst: worst ratio known.
        seconds: time it took.
        note: why it added nothing, or empty.
    """

    name: str
    nodes: int = 0
    vectors: int = 0
    failed: int = 0
    kernels: int = 0
    best: float = 1.0
    worst: float = 1.0
    seconds: float = 0.0
    note: str = ""

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def fill_problem(problem: Problem, bench: Bench, seconds: float, seed: int) -> Filled:
    """Measures as many decision vectors of one graph as fit into the time; never raises for a program.

    Vectors that the store knows are not measured again.
    """
    begin = time.perf_counter()
    try:
        runner = bench.runner(problem)
        if runner is None:
            return Filled(problem.name, note="cannot be measured apart from its program")
        runner.timeout_s = TIMEOUT_S
        runner.start()
        filled = _fill(problem.graph, runner, bench.store, begin + seconds, seed)
    except GraphOptError as error:
        filled = Filled(problem.name, len(problem.graph), note=error.what[:200])
    except Exception as error:
        note = f"{type(error).__name__}: {error}"[:200]
        filled = Filled(problem.name, len(problem.graph), note=note)
    known = [ratio for _, ratio in evaluations(bench.store, problem.graph.fingerprint)] or [1.0]
    return Filled(
        **{
            **filled.row(),
            "name": problem.name,
            "best": max(known),
            "worst": min(known),
            "seconds": time.perf_counter() - begin,
        }
    )


def _fill(graph: Graph, runner: Runner, store: Store, end: float, seed: int) -> Filled:
    seen = {decisions_digest(text) for text, _ in outcomes(store, graph.fingerprint)}
    kernels = 0 if seen else len(runner.profile(graph.default))
    seen.add(decisions_digest("{}"))
    vectors = failed = 0
    for origin, decisions in candidates(graph, store, np.random.default_rng(seed)):
        digest = decisions_digest(encode_decisions(graph, decisions))
        if digest in seen:
            continue
        seen.add(digest)
        result = runner.measure(decisions, budget_s=LOOK_S, method=f"fill: {origin}")
        vectors += 1
        failed += not result.ok
        if result.ok and origin in _PROFILED:
            kernels += len(runner.profile(decisions))
        if time.perf_counter() > end:
            break
    kernels += _confirm(graph, runner, store)
    return Filled("", len(graph), vectors, failed, kernels)


def _confirm(graph: Graph, runner: Runner, store: Store) -> int:
    """Measures the best vectors again, longer, and their kernels; kernels measured."""
    kernels = 0
    for text, ratio in evaluations(store, graph.fingerprint)[:FINALISTS]:
        if ratio < WORTH_TRUST:
            break
        decisions = decode_decisions(graph, text)
        runner.measure(decisions, budget_s=TRUST_S, method="fill: confirmed")
        kernels += len(runner.profile(decisions))
    return kernels


def candidates(
    graph: Graph, store: Store, rng: np.random.Generator
) -> Iterator[tuple[str, Decisions]]:
    """What a policy chooses between, starting points, then neighbours of both and of the best, endlessly.

    Some vectors come twice, under several names.
    """
    named = usual(graph)
    yield from named
    starts = portfolio(graph)[1:]
    for start in sorted(starts, key=lambda start: start.name in _LAST):
        yield start.name, start.decisions
    parents = [graph.default, *(d for _, d in named)]
    parents += [start.decisions for start in starts if start.name not in _LAST]
    mover = Mover(graph, rng)
    for _ in range(1000):
        best = evaluations(store, graph.fingerprint)[:3]
        if best and rng.random() < 0.6:
            parent = decode_decisions(graph, best[int(rng.integers(len(best)))][0])
        else:
            parent = parents[int(rng.integers(len(parents)))]
        yield "neighbour", _walk(mover, parent, rng)


def _walk(mover: Mover, vector: Decisions, rng: np.random.Generator) -> Decisions:
    for _ in range(int(rng.integers(1, 7))):
        vector, _ = mover.move(vector)
    return vector


def neighbours(
    graph: Graph, starts: Sequence[Decisions], rng: np.random.Generator, count: int
) -> list[Decisions]:
    """Vectors one to six moves away from random starting points."""
    mover = Mover(graph, rng)
    return [_walk(mover, starts[int(rng.integers(len(starts)))], rng) for _ in range(count)]
