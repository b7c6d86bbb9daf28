"""Real duels by both executors in turn: do their log ratios differ by more than those of one executor do?"""

from __future__ import annotations

from itertools import islice
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.fleet.cluster import cluster, write
from benchmarks.progress import counted, interrupted
from graphopt.executing.executor import Executor, LocalExecutor, own_needs
from graphopt.executing.ray_executor import RayExecutor
from graphopt.executing.request import Request
from graphopt.learn.collecting.command import FillPlan, problems_of
from graphopt.learn.collecting.duel_requests import duels_request, held
from graphopt.learn.collecting.duelling import Collector
from graphopt.learn.collecting.warm import WARM
from graphopt.tasks import cut

PROGRAMS: Final = ("layernorm", "heat_stencil", "hodgkin_huxley", "hmc_chain")
"""Of the set ``demo``."""

PAIRS: Final = 4
"""Duels of each program's largest task."""

ROUNDS: Final = 3
"""Looks of either executor at every duel, in turn."""


def requests(names: tuple[str, ...]) -> list[Request]:
    """One request per program that has a task."""
    from graphopt.hlo import build_graph

    plan = FillPlan(("demo",), names, 1.0, None, 0, 4000)
    found = []
    for name in names:
        for problem in islice(problems_of(plan, name), 1):
            assert problem.data is not None
            tasks = cut(build_graph(problem.data, allow_donation=True))
            for task in tasks[:1]:
                collector = Collector(task)
                pairs = [collector.pair(e) for e in collector.singles()[:PAIRS]]
                found.append(duels_request(task.graph, task.data, (), pairs, own_needs(), name))
    return found


def measured(executor: Executor, request: Request) -> list[float]:
    """Log ratios of a request's duels; NaN where one failed."""
    executor.submit(request)
    (answer,) = executor.results()
    return [duel.log_ratio for duel in held(answer)]


def run(count: int, out: Path) -> None:
    """All of `PROGRAMS` by default; `count` limits them."""
    rows: list[dict[str, Any]] = []
    with cluster(1) as made, RayExecutor(made.address) as far:
        near = LocalExecutor()
        asked = requests(PROGRAMS[: count or None])
        looks: list[dict[str, list[list[float]]]] = [{"local": [], "ray": []} for _ in asked]
        with counted(range(ROUNDS), "rounds measured") as rest:
            for turn in rest:
                order = ("local", "ray") if turn % 2 == 0 else ("ray", "local")
                for request, found in zip(
                    asked, looks, strict=True
                ):  # another task each time: a new child
                    for which in order:
                        found[which].append(measured(far if which == "ray" else near, request))
                        WARM.close()
        for request, found in zip(asked, looks, strict=True):
            rows += _rows(request.label, found)
        import ray

        far.close()
        ray.shutdown()
    result = summary(rows)
    Console(width=100).print(_table(result))
    if not interrupted():
        found = {"command": "python -m benchmarks.fleet equality", "counts": counts(result)}
        write(out, "equality", {**result, **found, "duels": rows})


def _rows(name: str, looks: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    local, ray = np.array(looks["local"]), np.array(looks["ray"])
    return [
        {"program": name, "local": local[:, k].tolist(), "ray": ray[:, k].tolist()}
        for k in range(min(local.shape[1], ray.shape[1]))
        if np.isfinite(local[:, k]).all() and np.isfinite(ray[:, k]).all()
    ]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Differences between executors beside differences between looks of one."""
    between = np.array([np.mean(r["ray"]) - np.mean(r["local"]) for r in rows])
    within = np.array([np.std(r[w], ddof=1) for r in rows for w in ("local", "ray")])
    noise = np.sqrt((within**2).mean()) * sqrt(2.0 / ROUNDS)
    error = between.std(ddof=1) / sqrt(len(between))
    return {
        "compared": len(rows),
        "mean_difference": float(between.mean()),
        "mean_difference_interval": [float(between.mean() + s * 1.96 * error) for s in (-1, 1)],
        "median_absolute_difference": float(median(np.abs(between))),
        "root_mean_square_difference": float(np.sqrt((between**2).mean())),
        "expected_of_noise_alone": float(noise),
    }


def counts(result: dict[str, Any]) -> dict[str, float]:
    """The same with a number each."""
    flat = {key: value for key, value in result.items() if not isinstance(value, list)}
    low, high = result["mean_difference_interval"]
    flat |= {"mean difference, low": low, "mean difference, high": high}
    return {key.replace("_", " "): value for key, value in flat.items()}


def _table(result: dict[str, Any]) -> Table:
    table = Table(title="log ratios by Ray less those by the local executor")
    table.add_column("what")
    table.add_column("value", justify="right")
    for key, value in result.items():
        values = value if isinstance(value, list) else [value]
        text = " to ".join(f"{v:+.4f}" if isinstance(v, float) else f"{v}" for v in values)
        table.add_row(key.replace("_", " "), text)
    return table
