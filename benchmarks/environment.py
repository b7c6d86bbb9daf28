"""``python -m benchmarks env``: steps and batched vectors per second of the environment, per reward."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.progress import counted
from graphopt.env import FusionPlacementEnv, encode
from graphopt.hlo import DecisionBatch, Decisions, Graph

SPEED_PROGRAMS: Final = ("layernorm", "adam_step", "transformer_block", "cartpole_rollout")
"""Graphs of 24 to about 420 nodes."""

SPEED_SOURCES: Final = ("analytic", "bank")
WARM_VECTORS: Final = 2048
BATCH: Final = 1024
STEPS: Final = 64
CHANGE: Final = 0.05
"""Random vectors redraw this share of XLA's decisions."""


def _draw(graph: Graph, rng: np.random.Generator, count: int) -> list[Decisions]:
    return [graph.masks.sample(rng, graph.default, CHANGE) for _ in range(count)]


def _rate(run: Callable[[], tuple[int, float]], budget_s: float) -> float:
    """Median events per second of repeated runs, each of which returns (events, seconds)."""
    rates: list[float] = []
    end = time.perf_counter() + budget_s
    while len(rates) < 3 or time.perf_counter() < end:
        count, seconds = run()
        rates.append(count / seconds)
    return float(median(rates))


def bench_env(console: Console, budget_s: float) -> None:
    """Prints steps and vectors per second of one process.

    The bank is warm: it has seen the vectors, which it names anew every time. The analytic model, which
    remembers whole vectors, gets new ones.
    """
    table = Table(title="environment: decision vectors scored per second, one process")
    for column in ("program", "nodes", "source", "steps/s", "without details", "batched/s"):
        table.add_column(column, justify="left" if column == "program" else "right")
    with counted(itertools.product(SPEED_PROGRAMS, SPEED_SOURCES), "measurements made") as rest:
        for name, source in rest:
            table.add_row(*_speed_row(name, source, budget_s / 4))
    console.print(table)


def _speed_row(name: str, source: str, budget_s: float) -> tuple[str, ...]:
    rng = np.random.default_rng(0)
    rates = []
    for details in (True, False):
        env = FusionPlacementEnv(graphs=name, reward=source, details=details)
        env.reset(seed=0)
        warm = _draw(env.graph, rng, WARM_VECTORS) if source == "bank" else []
        if warm:
            env.score_batch(DecisionBatch.stack(warm))
        rates.append(_rate(lambda e=env, w=warm: _some_steps(e, w, rng), budget_s))  # type: ignore[misc]
    rates.append(_rate(lambda: _one_batch(env, warm, rng), budget_s))
    env.close()
    return name, str(len(env.graph)), source, *(f"{rate:,.0f}" for rate in rates)


def _some_steps(
    env: FusionPlacementEnv, warm: list[Decisions], rng: np.random.Generator
) -> tuple[int, float]:
    """Episodes of one step; the drawing of actions does not count."""
    picked = _pick(env.graph, warm, rng, STEPS)
    actions = [encode(decisions) for decisions in picked]
    start = time.perf_counter()
    for action in actions:
        env.reset(options={"graph": 0})
        env.step(action)
    return STEPS, time.perf_counter() - start


def _one_batch(
    env: FusionPlacementEnv, warm: list[Decisions], rng: np.random.Generator
) -> tuple[int, float]:
    batch = DecisionBatch.stack(_pick(env.graph, warm, rng, BATCH))
    start = time.perf_counter()
    env.score_batch(batch)
    return BATCH, time.perf_counter() - start


def _pick(
    graph: Graph, warm: list[Decisions], rng: np.random.Generator, count: int
) -> list[Decisions]:
    if not warm:
        return _draw(graph, rng, count)
    return [warm[i] for i in rng.choice(len(warm), count, replace=False)]
