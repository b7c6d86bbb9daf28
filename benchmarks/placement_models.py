"""``python -m benchmarks placement-models`` and ``placement-scale``: placement in the simulator.

* ``placement-models``: GO's workloads at full size on 2, 4 and 8 accelerators; step times of every baseline,
  of two searches and of the policy's search, the last three at equal numbers of evaluations; what the policy
  proposes at once, and after a few updates. It was trained on none of these models.
* ``placement-scale``: placements scored per second, batched and by a plain event loop; seconds to place a
  graph of 80,000 tasks on eight devices.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.placement_real import make_table
from benchmarks.progress import counted, interrupted
from graphopt.corpus.placement import LARGE, LargeModel
from graphopt.corpus.placement.recurrent import translation
from graphopt.learn.placement.train import fine_tune, search
from graphopt.placement.baselines import BASELINES, Problem
from graphopt.placement.build import build_tasks
from graphopt.placement.cluster import known, known_names
from graphopt.placement.event_loop import run_event_loop
from graphopt.placement.flat import flatten
from graphopt.placement.search import anneal, evolve
from graphopt.placement.simulator import Simulator
from graphopt.policy.placement import PlacementPolicy, block_graph, load_policy
from graphopt.progress import waiting

EVALUATIONS: Final = 400
"""Placements that each search may score, the classical ones it starts from included."""

TUNING_ROUNDS: Final = 13
"""Batches of proposals when the policy is tuned on a model: 12 updates of 4 gradient steps in between."""

SCALE_BATCH: Final = 64
SCALE_DEVICES: Final = 8
SCALE_MODEL: Final = LargeModel("gnmt-8 of 72 steps", SCALE_DEVICES, translation(8, steps=72))
"""GNMT with sentences long enough for more than 80,000 tasks."""


@dataclass(frozen=True)
class ModelRow:
    """Step times of one model on one kind of accelerator, seconds; inf: nothing fitted in memory.

    Attributes:
        tasks: nodes of the graph.
        classical: of every placement in `BASELINES`.
        annealing: after all evaluations.
        genetic: after all evaluations.
        zero_shot: best of the policy's first proposals, without any update on this model.
        tuned: best of its proposals during the updates.
        updates: gradient steps for that.
        policy: the policy's search, after all evaluations.
        reach: evaluations after which that search had reached the best of all others; None: never.
    """

    tasks: int
    classical: tuple[float, ...]
    annealing: float
    genetic: float
    zero_shot: float
    tuned: float
    updates: int
    policy: float
    reach: int | None

    @property
    def best_other(self) -> float:
        """The best of everything but the policy."""
        return min(*self.classical, self.annealing, self.genetic)


def model_row(model: int, accelerator: str, evaluations: int = EVALUATIONS) -> ModelRow:
    """All methods on one of `LARGE`, by its index; the searches at equal numbers of evaluations."""
    problem = problem_of(LARGE[model], accelerator)
    start = [baseline(problem) for baseline in BASELINES.values()]
    scores = problem.simulator.score(np.stack(start)).seconds
    blocks = block_graph(problem).block
    annealed = anneal(problem, evaluations, start=start, blocks=blocks).seconds
    evolved = evolve(problem, evaluations, start=start, blocks=blocks).seconds
    ours = search(problem, load_policy(), evaluations, start=start)
    tuned = fine_tune(problem, load_policy(), TUNING_ROUNDS)
    classical = tuple(float(s) for s in np.where(np.isnan(scores), np.inf, scores))
    goal = min(*classical, annealed, evolved)
    reached = np.flatnonzero(ours.history <= goal)
    return ModelRow(
        len(problem.simulator.tasks), classical, annealed, evolved, float(tuned.best_s[0]),
        float(tuned.best_s.min()), tuned.updates, ours.seconds, int(reached[0]) + 1 if len(reached) else None,
    )  # fmt: skip


def bench_models(console: Console, budget_s: float) -> None:
    """One table per kind of accelerator; models run in processes of their own, one per core."""
    del budget_s  # counted in evaluations
    names = known_names()
    large_first = sorted(range(len(LARGE)), key=lambda m: -LARGE[m].devices)
    spawn = multiprocessing.get_context("spawn")  # jax does not survive a fork
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        jobs = {(n, m): pool.submit(model_row, m, n) for m in large_first for n in names}
        rows: dict[tuple[str, int], ModelRow] = {}
        with counted(jobs.items(), "models searched", console) as rest:
            for key, job in rest:
                rows[key] = job.result()
        pool.shutdown(wait=not interrupted(), cancel_futures=True)
    for name in names:
        found = {m: rows[name, m] for m in range(len(LARGE)) if (name, m) in rows}
        if found:
            _print_models(console, name, found)


def _print_models(console: Console, accelerator: str, found: Mapping[int, ModelRow]) -> None:
    rows = list(found.values())
    updates = max(row.updates for row in rows)
    titles = (
        f"simulated step time, ms, on {accelerator}: placements without a search (no: out of memory)",
        f"the same, after {EVALUATIONS} evaluations each; policy alone: zero-shot, and {updates} updates",
    )
    searched = (
        "best without search", "annealing", "genetic", "zero-shot", f"{updates} updates", "policy",
        "best other / policy", "evaluations to reach it",
    )  # fmt: skip
    first, second = (
        make_table(title, "model", *columns)
        for title, columns in zip(titles, (("tasks", *BASELINES), searched), strict=True)
    )
    for number, row in found.items():
        model = LARGE[number]
        name = f"{model.name} ({model.devices})"
        seconds = (
            min(row.classical),
            row.annealing,
            row.genetic,
            row.zero_shot,
            row.tuned,
            row.policy,
        )
        first.add_row(name, f"{row.tasks:,}", *map(_ms, row.classical))
        second.add_row(
            name, *map(_ms, seconds), f"{row.best_other / row.policy:.3f}",
            "never" if row.reach is None else str(row.reach),
        )  # fmt: skip
    console.print(first)
    console.print(second)
    human = list(BASELINES).index("human")
    against = {
        "best other": [row.best_other / row.policy for row in rows],
        "best classical": [min(row.classical) / row.policy for row in rows],
        "annealing": [row.annealing / row.policy for row in rows],
        "genetic": [row.genetic / row.policy for row in rows],
        "human": [row.classical[human] / row.policy for row in rows],
        "human / zero-shot": [row.classical[human] / row.zero_shot for row in rows],
        "best classical / zero-shot": [min(row.classical) / row.zero_shot for row in rows],
        f"human / after {updates} updates": [row.classical[human] / row.tuned for row in rows],
        f"best classical / after {updates} updates": [min(r.classical) / r.tuned for r in rows],
    }
    reached = [row.reach for row in rows if row.reach is not None]
    if reached:
        console.print(
            f"{accelerator}: the policy's search reached the best of all others on {len(reached)} of "
            f"{len(rows)} models, after {median(reached):.0f} evaluations (median)"
        )
    for name, ratios in against.items():
        fitting = [r for r in ratios if np.isfinite(r) and r > 0]
        what = name if " / " in name else f"{name} / policy"
        console.print(
            f"{accelerator}: {what}: geometric mean {geometric_mean(fitting):.3f}, smallest "
            f"{min(fitting):.3f}, over {len(fitting)} models where both fit in memory"
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}" if np.isfinite(seconds) else "no"


def problem_of(model: LargeModel, accelerator: str) -> Problem:
    """A model on its own number of accelerators of one kind."""
    closed, weights = model.trace()
    traced = build_tasks(flatten(closed, model.name), weights)
    return Problem(Simulator(traced.tasks, known(accelerator, model.devices)))


def bench_scale(console: Console, budget_s: float) -> None:
    """Scoring and placing a graph of more than 80,000 tasks on eight devices."""
    del budget_s
    policy = load_policy()
    with waiting(console, "tracing, scoring and placing 80,000 tasks"):
        table = _scale_table(policy)
    console.print(table)


def _scale_table(policy: PlacementPolicy) -> Table:
    problem = problem_of(SCALE_MODEL, "p100")
    simulator = problem.simulator
    rng = np.random.default_rng(0)
    placements = problem.masks.sample(rng, SCALE_BATCH)
    simulator.score(placements)
    batched = _seconds(lambda: simulator.score(placements)) / SCALE_BATCH
    plain = _seconds(lambda: run_event_loop(simulator, placements[0]))
    fresh = problem_of(SCALE_MODEL, "p100")
    place_s = _seconds(lambda: policy(fresh))
    title = f"{SCALE_MODEL.name}, {len(simulator.tasks):,} tasks, 8 devices"
    table = make_table(title, "what", "value")
    table.add_row("placements per second, batched", f"{1 / batched:.1f}")
    table.add_row("placements per second, plain event loop", f"{1 / plain:.2f}")
    table.add_row("seconds to place with the policy, from the task graph", f"{place_s:.1f}")
    return table


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
