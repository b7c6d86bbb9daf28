"""``graphopt bench policy``: what a learned policy costs inside XLA's compile, by size of the module."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from graphopt.corpus.capture import capture_modules
from graphopt.corpus.demo import DEMO
from graphopt.hlo import Graph, build_graph
from graphopt.hlo.synthetic import repeat_module
from graphopt.policy.checkpoint import PolicySpec, load, save
from graphopt.policy.features import extract
from graphopt.policy.guarded import Gate, GuardedPolicy
from graphopt.policy.inference import NumpyPolicy
from graphopt.policy.learned import LearnedPolicy, most_likely
from graphopt.policy.model import ModelConfig, parameter_shapes

SIZES: Final = (500, 2_000, 10_000, 80_000)
_SOURCE: Final = "cartpole_rollout"
_SMALL_REPEATS: Final = 20
_LARGE: Final = 5_000


def bench_policy(console: Console, budget_s: float) -> None:
    """Prints milliseconds of loading, features and network; medians, masks computed before.

    "choice" is all that happens inside a compile: the heuristic, features, network, the other candidates, and
    the gain of each.
    """
    parameters = random_parameters(ModelConfig())
    table = Table(title="learned policy, milliseconds (median)")
    for column in ("nodes", "features", "trunk", "decisions", "these three", "choice"):
        table.add_column(column, justify="right")
    policy = NumpyPolicy(ModelConfig(), parameters)
    guarded = GuardedPolicy(LearnedPolicy(policy, 0.0), Gate(0.1))
    for size in SIZES:
        graph = graph_of(size)
        _ = graph.masks  # needed by any policy
        repeats = _SMALL_REPEATS if size < _LARGE else 3
        features, times = _timed(lambda g=graph: extract(g), repeats)  # type: ignore[misc]
        encoded, trunk = _timed(lambda f=features: policy.encode(f), repeats)  # type: ignore[misc]
        _, heads = _timed(lambda e=encoded: policy.decode(e, most_likely), repeats)  # type: ignore[misc]
        _, choice = _timed(lambda g=graph: guarded.choose(g), repeats)  # type: ignore[misc]
        row = (times, trunk, heads, times + trunk + heads, choice)
        table.add_row(f"{len(graph):,}", *(f"{1e3 * value:.1f}" for value in row))
    console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder, "policy"), PolicySpec(ModelConfig(), 0.0), parameters)
        _, seconds = _timed(lambda: load(Path(folder, "policy")), _SMALL_REPEATS)
    console.print(f"loading a checkpoint: {1e3 * seconds:.1f} ms")


def random_parameters(config: ModelConfig, seed: int = 0) -> dict[str, Any]:
    """Parameters of a network that has learned nothing; times do not depend on their values."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0.0, 0.1, shape).astype(np.float32)
        for name, shape in parameter_shapes(config).items()
    }


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
