"""``python -m benchmarks placement-real`` and ``placement``: placement on two CPU devices.

* ``placement-real``: `graphopt.place` against one device with XLA's default, interleaved in one run; programs
  with and without independent branches, and real programs of the corpus.
* ``placement``: predicted against measured step times over random placements.

Both need two CPU devices, which jax sets up at its first use: in a process that has used jax before, they
run in a child process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import NDArray
from rich.console import Console, JustifyMethod
from rich.table import Table

from benchmarks.progress import counted
from graphopt import jax_private
from graphopt.corpus.placement import BRANCHING, PLACEMENT
from graphopt.corpus.program import Program
from graphopt.corpus.registry import select_corpus
from graphopt.devices.calibrate import calibrate
from graphopt.devices.copies import PlacedCopies
from graphopt.devices.place import place
from graphopt.devices.plan import cut_placement, find_candidates, measured_times
from graphopt.devices.predict import predict
from graphopt.devices.runtime import PlacedProgram
from graphopt.devices.segments import cut
from graphopt.devices.timeline import measure_events, save_html, to_svg
from graphopt.errors import ConfigError
from graphopt.measure import Comparison, compare, compare_outputs
from graphopt.placement.baselines import Problem
from graphopt.placement.build import build_tasks
from graphopt.placement.flat import flatten
from graphopt.placement.simulator import Simulator

LEAST_RATIO: Final = 0.97
"""No program may become slower than this."""

RANDOM_PLACEMENTS: Final = 24
"""Per program."""

ENOUGH: Final = (200, 5)
"""Placements and programs after which the comparison may end, once it has taken `LONG_S` seconds."""

LONG_S: Final = 200.0

MODEL_REPEATS: Final = 9


def two_devices() -> bool:
    """Sets up two CPU devices; False if this process has fewer and it is too late."""
    if not jax_private.backends_initialized():
        config: Any = jax.config
        config.update("jax_num_cpu_devices", 2)
    return len(jax.devices("cpu")) >= 2


def in_child(name: str, budget_s: float) -> None:
    """Runs a benchmark in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", name, "--budget-s", str(budget_s)]
    subprocess.run(command, check=True)


def bench_real(console: Console, budget_s: float) -> None:
    """Placed against one device: programs with independent branches, chains, programs of the corpus."""
    if not two_devices():
        in_child("placement-real", budget_s)
        return
    devices = jax.devices("cpu")[:2]
    table = make_table(
        "two CPU devices against one (XLA's default), interleaved",
        "program", "one ms", "placed ms", "speed-up", "95 %", "segments", "plan s", "max error",
        "equal", "how",
    )  # fmt: skip
    rows: dict[str, tuple[Comparison, bool]] = {}
    with counted((*PLACEMENT, *select_corpus("tuning").values()), "programs placed") as rest:
        for program in rest:
            fn, args = program.build()
            default, placed = jax.jit(fn), place(fn, devices)
            placed(*args)
            plan = placed.plans[0]
            difference = compare_outputs(default(*args), placed(*args), slack=10.0)
            found = compare(_run(default, args), _run(placed, args), budget_s=budget_s)
            rows[program.name] = found, difference.equal
            table.add_row(
                program.name, f"{found.baseline_s * 1e3:.3f}", f"{found.candidate_s * 1e3:.3f}",
                f"{found.speedup:.2f}", f"{found.low:.2f}-{found.high:.2f}", str(plan.segments),
                f"{plan.plan_s:.1f}", f"{difference.relative:.1e}", "yes" if difference.equal else "NO",
                plan.reason,
            )  # fmt: skip
    console.print(table)
    ratios = {name: found.speedup for name, (found, _) in rows.items()}
    slowest = min(ratios, key=lambda name: ratios[name])
    branching = [ratios[name] for name in BRANCHING.names() if name in ratios]
    below = [name for name, ratio in ratios.items() if ratio < LEAST_RATIO]
    console.print(
        f"one device's time / placed time: branching programs geometric mean "
        f"{geometric_mean(branching):.2f}, all {len(ratios)} programs "
        f"{geometric_mean(ratios.values()):.2f}; smallest {ratios[slowest]:.2f} ({slowest}); below "
        f"{LEAST_RATIO}: {', '.join(below) or 'none'}; results equal: "
        f"{sum(equal for _, equal in rows.values())} of {len(rows)}"
    )


def bench_model(console: Console, budget_s: float) -> None:
    """Rank correlation and relative error of predicted step times."""
    if not two_devices():
        in_child("placement", budget_s)
        return
    devices = jax.devices("cpu")[:2]
    table = make_table(
        "predicted against measured step time over random placements, two CPU devices",
        "program", "placements", "measured ms", "rank correlation", "median error", "90 % error",
    )  # fmt: skip
    pooled: list[NDArray[np.float64]] = []
    correlations = []
    begun = time.perf_counter()
    with counted(PLACEMENT, "programs placed") as rest:
        for program in rest:
            done = sum(map(len, pooled)), len(pooled)
            spent = time.perf_counter() - begun
            if spent > LONG_S and all(d >= e for d, e in zip(done, ENOUGH, strict=True)):
                console.print(f"not measured after {spent:.0f} s: {program.name}")
                continue
            rows = _random_placements(program, devices)
            correlation, errors = (
                spearman(rows[:, 0], rows[:, 1]),
                np.abs(rows[:, 0] / rows[:, 1] - 1),
            )
            pooled.append(rows / rows[0, 1])
            correlations.append(correlation)
            console.print(
                f"{program.name}: {len(rows)} placements, rank correlation {correlation:.2f}"
            )
            table.add_row(
                program.name, str(len(rows)),
                f"{rows[:, 1].min() * 1e3:.2f}-{rows[:, 1].max() * 1e3:.2f}", f"{correlation:.2f}",
                f"{np.median(errors):.0%}", f"{np.quantile(errors, 0.9):.0%}",
            )  # fmt: skip
    console.print(table)
    together = np.concatenate(pooled)
    console.print(
        f"{len(together)} placements of {len(pooled)} programs: rank correlation of times relative to "
        f"one device {spearman(together[:, 0], together[:, 1]):.2f}, median within programs "
        f"{np.median(correlations):.2f}; median relative error "
        f"{np.median(np.abs(together[:, 0] / together[:, 1] - 1)):.0%}"
    )


def _random_placements(program: Program, devices: list[Any]) -> NDArray[np.float64]:
    """float64 [R, 2]: predicted and measured seconds; row 0 is everything on one device."""
    fn, args = program.build()
    leaves = jax.tree.leaves(args)
    traced = build_tasks(flatten(jax.jit(fn).trace(*args).jaxpr, program.name))
    cluster = calibrate(devices)
    times = measured_times(traced, leaves, devices, cluster)
    problem = Problem(Simulator(traced.tasks, cluster, times))
    rng = np.random.default_rng(0)
    copies = PlacedCopies()
    runs: list[Callable[[], Any]] = []
    predicted: list[float] = []
    seen = set()
    for attempt in range(RANDOM_PLACEMENTS * 3):
        placement = _draw(problem, rng, attempt)
        program_cut = cut_placement(traced, placement, cluster, times)
        key = tuple((s.device, s.equations) for s in program_cut.segments)
        if attempt == 0:
            program_cut = cut(traced, [0] * len(traced.equation_task))
        if key in seen or len(runs) >= RANDOM_PLACEMENTS:
            continue
        seen.add(key)
        executable = PlacedProgram(traced, program_cut, devices, copies)
        predicted.append(predict(traced, program_cut, cluster, times).seconds)
        runs.append(_bound(executable, leaves))
    return np.stack([np.array(predicted), _interleaved(runs)], axis=1)


def _draw(problem: Problem, rng: np.random.Generator, attempt: int) -> NDArray[np.int16]:
    """From everything on one device over a few moved groups to every group drawn by itself."""
    base = np.zeros(problem.groups, np.int16)
    moved = rng.random(problem.groups) < (0.0, 0.02, 0.1, 0.3, 0.5)[min(attempt, 1 + attempt % 4)]
    heavy = np.argsort(-problem.group_seconds.mean(axis=1))[:6]
    chosen = heavy[rng.random(len(heavy)) < (0.5 if attempt else 0.0)]
    moved[chosen] = True
    return problem.masks.repair(np.where(moved, 1, base))


def _interleaved(runs: list[Callable[[], Any]]) -> NDArray[np.float64]:
    """float64 [R]: median seconds of callables run in turn."""
    times = np.empty((len(runs), MODEL_REPEATS))
    for run in runs:
        run()
    for repeat in range(MODEL_REPEATS):
        for index, run in enumerate(runs):
            start = time.perf_counter()
            run()
            times[index, repeat] = time.perf_counter() - start
    median: NDArray[np.float64] = np.median(times, axis=1)
    return median


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Rank correlation; ties by order of appearance."""
    ranks = [np.argsort(np.argsort(x, kind="stable")).astype(float) for x in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _run(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(fn(*args))  # type: ignore[no-untyped-call]


def _bound(program: PlacedProgram, leaves: list[Any]) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(program(leaves))  # type: ignore[no-untyped-call]


def make_table(title: str, *columns: str) -> Table:
    """An empty table; the first column holds names."""
    table = Table(title=title)
    for position, column in enumerate(columns):
        justify: JustifyMethod = "left" if position == 0 else "right"
        table.add_column(column, justify=justify, no_wrap=position == 0)
    return table


def draw_timeline(program: Program, path: Path, policy: str = "search") -> str:
    """Writes a page with the measured and the predicted run of a program on two CPU devices.

    Returns:
        One line that says what was drawn.

    Raises:
        ConfigError: this process has fewer than two CPU devices, and it is too late to add one.
    """
    if not two_devices():
        raise ConfigError(
            what="this process has one CPU device",
            where="timeline",
            fix='Call jax.config.update("jax_num_cpu_devices", 2) before jax is used.',
        )
    devices = jax.devices("cpu")[:2]
    fn, args = program.build()
    leaves = jax.tree.leaves(args)
    traced = build_tasks(flatten(jax.jit(fn).trace(*args).jaxpr, program.name))
    cluster = calibrate(devices)
    times = measured_times(traced, leaves, devices, cluster)
    options = find_candidates(traced, cluster, times, policy, 0.0)
    single = cut(traced, [0] * len(traced.equation_task))
    best = options.found[0].cut if options.found else single
    names = [str(d) for d in devices]
    drawings = []
    for title, pieces in (("one device", single), ("placed", best)):
        executable = PlacedProgram(traced, pieces, devices, PlacedCopies())
        drawings.append(to_svg(measure_events(executable, leaves), names, f"{title}, measured"))
        predicted = predict(traced, pieces, cluster, times).events
        drawings.append(to_svg(predicted, names, f"{title}, predicted"))
    save_html(path, drawings, program.name)
    return f"{path}: {program.name}, {len(best.segments)} segments on {best.used_devices} devices"
