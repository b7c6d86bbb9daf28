"""``python -m benchmarks policy``: what a learned policy costs inside XLA's compile, by module size."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.progress import counted
from graphopt.corpus.capture import capture_modules
from graphopt.corpus.demo import DEMO
from graphopt.hlo import Graph, build_graph
from graphopt.hlo.gc_pause import gc_paused
from graphopt.hlo.module.repeat import repeat_module
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.network.checkpoint import load
from graphopt.policy.network.features import extract
from graphopt.policy.network.learned import most_likely
from graphopt.policy.registry import SHIPPED

SIZES: Final = (500, 2_000, 10_000, 80_000)
_SOURCE: Final = "cartpole_rollout"
_SMALL_REPEATS: Final = 20
_LARGE: Final = 5_000


def bench_policy(console: Console, budget_s: float) -> None:
    """Prints milliseconds of the shipped policy; medians, masks computed before.

    "choice" is all that happens inside a compile, garbage collection paused as there: costs, the heuristic,
    features, network, and the gain of every candidate that its gate may choose. The columns before are parts.
    """
    table = Table(title="shipped policy, milliseconds (median)")
    for column in ("nodes", "heuristic", "features", "trunk", "decisions", "choice"):
        table.add_column(column, justify="right")
    checkpoint, loading = _timed(lambda: load(SHIPPED), _SMALL_REPEATS)
    network, decide = checkpoint.policy().network, checkpoint.decider()
    with counted(SIZES, "sizes measured") as rest:
        for size in rest:
            graph = graph_of(size)
            _ = graph.masks  # needed by any policy
            repeats = _SMALL_REPEATS if size < _LARGE else 3
            with gc_paused():
                start, first = _timed(lambda g=graph: heuristic_steps(g, STEPS), repeats)  # type: ignore[misc]
                features, told = _timed(lambda g=graph, s=start: extract(g, None, s), repeats)  # type: ignore[misc]
                encoded, trunk = _timed(lambda f=features: network.encode(f), repeats)  # type: ignore[misc]
                _, heads = _timed(lambda e=encoded: network.decode(e, most_likely), repeats)  # type: ignore[misc]
                _, choice = _timed(lambda g=graph: decide(g), repeats)  # type: ignore[misc]
            row = (first, told, trunk, heads, choice)
            table.add_row(f"{len(graph):,}", *(f"{1e3 * value:.1f}" for value in row))
    console.print(table)
    console.print(f"loading the checkpoint: {1e3 * loading:.1f} ms")


def graph_of(nodes: int) -> Graph:
    """A graph of about so many nodes: copies of one program in a module."""
    fn, args = DEMO[_SOURCE].build()
    (data,) = capture_modules(fn, *args)
    copies = max(1, round(nodes / len(build_graph(data))))
    return build_graph(repeat_module(data, copies))


def _timed(call: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """The result, and the median seconds of some calls after a first one."""
    result = call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return result, float(np.median(times))
