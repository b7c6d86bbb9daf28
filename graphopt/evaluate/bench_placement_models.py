"""``graphopt bench placement-models`` and ``placement-scale``: placement in the simulator.

* ``placement-models``: GO's workloads at full size on 2, 4 and 8 accelerators; step times of every baseline,
  of two searches and of the policy's search, the last three at equal numbers of evaluations.
* ``placement-scale``: placements scored per second, batched and by a plain event loop; seconds to place a
  graph of 80,000 tasks on eight devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import geometric_mean
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from graphopt.corpus.placement import LARGE, LargeModel
from graphopt.corpus.placement.recurrent import translation
from graphopt.learn.placement import search
from graphopt.placement.baselines import BASELINES, Problem
from graphopt.placement.build import build_tasks
from graphopt.placement.cluster import known, known_names
from graphopt.placement.event_loop import run_event_loop
from graphopt.placement.flat import flatten
from graphopt.placement.search import Found, anneal, evolve
from graphopt.placement.simulator import Simulator
from graphopt.policy.placement import block_graph, load_policy

EVALUATIONS: Final = 1000
"""Placements that each search may score, the classical ones it starts from included."""

SCALE_BATCH: Final = 64
SCALE_DEVICES: Final = 8
SCALE_MODEL: Final = LargeModel("gnmt-8 of 72 steps", SCALE_DEVICES, translation(8, steps=72))
"""GNMT with sentences long enough for more than 80,000 tasks."""


def bench_models(console: Console, budget_s: float) -> None:
    """One table per kind of accelerator."""
    del budget_s  # counted in evaluations
    policy = load_policy()
    for accelerator in known_names():
        columns = (*BASELINES, "annealing", "genetic", "policy")
        table = Table(title=f"simulated step time, ms, on {accelerator} (! = out of memory)")
        for position, column in enumerate(("model", "tasks", *columns, "best / policy")):
            table.add_column(column, justify="left" if position == 0 else "right")
        gains, humans = [], []
        for model in LARGE:
            problem = problem_of(model, accelerator)
            start = [baseline(problem) for baseline in BASELINES.values()]
            scores = problem.simulator.score(np.stack(start))
            blocks = block_graph(problem).block
            found = [
                anneal(problem, EVALUATIONS, start=start, blocks=blocks),
                evolve(problem, EVALUATIONS, start=start, blocks=blocks),
                search(problem, policy, EVALUATIONS, start=start),
            ]
            fitting = np.where(np.isnan(scores.seconds), np.inf, scores.seconds)
            ours = found[2].seconds
            gains.append(min(float(fitting.min()), found[0].seconds, found[1].seconds) / ours)
            human = float(scores.seconds[list(BASELINES).index("human")])
            humans.append(human / ours)
            cells = [
                f"{s * 1e3:.0f}{'!' if r else ''}"
                for s, r in zip(scores.unlimited_s, scores.reasons, strict=True)
            ]
            table.add_row(
                f"{model.name} ({model.devices})", f"{len(problem.simulator.tasks):,}", *cells,
                *(_ms(f) for f in found), f"{gains[-1]:.3f}",
            )  # fmt: skip
        console.print(table)
        against_human = [h for h in humans if np.isfinite(h)]
        console.print(
            f"{accelerator}: best other placement's time / policy's time, geometric mean "
            f"{geometric_mean(gains):.3f}, smallest {min(gains):.3f}; human placement's time / "
            f"policy's, where it fits in memory: {geometric_mean(against_human):.3f}"
        )


def _ms(found: Found) -> str:
    return f"{found.seconds * 1e3:.0f}" if np.isfinite(found.seconds) else "none fits"


def problem_of(model: LargeModel, accelerator: str) -> Problem:
    """A model on its own number of accelerators of one kind."""
    closed, weights = model.trace()
    traced = build_tasks(flatten(closed, model.name), weights)
    return Problem(Simulator(traced.tasks, known(accelerator, model.devices)))


def bench_scale(console: Console, budget_s: float) -> None:
    """Scoring and placing a graph of more than 80,000 tasks on eight devices."""
    del budget_s
    policy = load_policy()
    problem = problem_of(SCALE_MODEL, "p100")
    simulator = problem.simulator
    rng = np.random.default_rng(0)
    placements = problem.masks.sample(rng, SCALE_BATCH)
    simulator.score(placements)
    batched = _seconds(lambda: simulator.score(placements)) / SCALE_BATCH
    plain = _seconds(lambda: run_event_loop(simulator, placements[0]))
    fresh = problem_of(SCALE_MODEL, "p100")
    place_s = _seconds(lambda: policy(fresh))
    table = Table(title=f"{SCALE_MODEL.name}, {len(simulator.tasks):,} tasks, 8 devices")
    for column in ("what", "value"):
        table.add_column(column, justify="left" if column == "what" else "right")
    table.add_row("placements per second, batched", f"{1 / batched:.1f}")
    table.add_row("placements per second, plain event loop", f"{1 / plain:.2f}")
    table.add_row("seconds to place with the policy, from the task graph", f"{place_s:.1f}")
    console.print(table)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
