"""``graphopt bench``: what the plugin itself costs, and what rewriting changes by itself.

* ``identity``: XLA's own decisions applied again, against XLA's default: results equal, times equal.
* ``overhead``: the hook's share of XLA's compile time, at first sight and remembered, in
  `graphopt.evaluate.bench_overhead`.
* ``scaling``: milliseconds in the hook for modules up to 80,000 nodes (copies of a captured module in one).

Benchmarks of research questions are in the repository: ``python -m benchmarks``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Final

from rich.console import Console
from rich.table import Table

from graphopt.corpus.capture import capture_modules
from graphopt.corpus.program import Program
from graphopt.corpus.workloads import load_programs
from graphopt.errors import WorkloadError
from graphopt.evaluate.bench_overhead import bench_overhead
from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.gc_pause import gc_paused
from graphopt.hlo.module.repeat import repeat_module
from graphopt.measure import compare, compare_outputs, compile_with
from graphopt.policy.heuristic.steps import heuristic
from graphopt.progress import steps

IDENTITY_COMPILES: Final = 5

NAMED: Final = ("overhead",)
"""Benchmarks that take names of programs."""

DIRECTORY: Final = Path("report/bench")
"""Where a benchmark writes if nothing else is said."""

SCALING_NODES: Final = (1_000, 5_000, 20_000, 80_000)


def run_bench(
    what: str,
    budget_s: float,
    console: Console | None = None,
    *,
    out: Path = DIRECTORY,
    graphs: Sequence[str] = (),
) -> None:
    """Runs one benchmark or all and prints tables; after an interrupt, that of what was measured.

    Args:
        what: name of one benchmark, or all.
        budget_s: seconds of timing per program.
        console: what is written to.
        out: directory for what a benchmark writes.
        graphs: names of programs; empty for all.

    Raises:
        WorkloadError: there is no such benchmark, or it takes no names.
        KeyboardInterrupt: it was interrupted.
    """
    console = console or Console(width=110)
    benches: dict[str, Callable[[Console, float], object]] = {
        "identity": _identity,
        "overhead": lambda console, _: bench_overhead(console, out, graphs),
        "scaling": _scaling,
    }
    if what != "all" and what not in benches:
        raise WorkloadError(
            what=f"no benchmark {what!r}",
            where="graphopt bench",
            fix=f"Use {', '.join(benches)} or all; others are in the repository, python -m benchmarks.",
        )
    if graphs and what not in NAMED:
        raise WorkloadError(
            what=f"benchmark {what} takes no names of programs",
            where="graphopt bench --graphs",
            fix=f"Leave them out, or use {' or '.join(NAMED)}.",
        )
    for name, bench in benches.items():
        if what in (name, "all"):
            bench(console, budget_s)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right")
    return table


def _identity(console: Console, budget_s: float) -> None:
    """Each ratio is the median over several compiles: one compile's memory layout is luck.

    The control hands XLA its own bytes back unchanged; that alone can change a module's speed.
    """
    table = _table(
        "identity rewrite against XLA's default (time ratio, median of compiles)",
        "program", "clusters", "default ms", "identity", "all compiles", "control", "max error",
    )  # fmt: skip
    ratios: list[float] = []
    controls: list[float] = []
    programs = load_programs("demo").values()
    try:
        with steps(console, len(programs), "programs measured") as show:
            for program in programs:
                show(f"identity: {program.name}", len(ratios))
                row, ratio, control = _identity_row(program, budget_s)
                ratios.append(ratio)
                controls.append(control)
                table.add_row(*row)
    finally:
        if ratios:
            console.print(table)
            console.print(
                f"identity time / default time: geometric mean {geometric_mean(ratios):.3f}, "
                f"largest {max(ratios):.3f}; control {geometric_mean(controls):.3f}, "
                f"largest {max(controls):.3f}"
            )


def _identity_row(program: Program, budget_s: float) -> tuple[tuple[str, ...], float, float]:
    """Measures one program: its row, and the median time ratios of identity and control."""
    fn, args = program.build()
    default = compile_with(fn, args)
    clusters = 0

    def transform(data: bytes) -> bytes:
        nonlocal clusters
        graph = build_graph(data)
        result = rewrite(graph, graph.default)
        clusters = result.clusters
        return result.data

    times, made = [], []
    for _ in range(IDENTITY_COMPILES):
        pair = [compile_with(fn, args, transform), compile_with(fn, args, lambda data: data)]
        times.append([compare(default, run, budget_s=budget_s / 6) for run in pair])
        made.append(pair[0])
    error = max(compare_outputs(default(), run()).relative for run in made)
    identity, control = ([1 / t[k].speedup for t in times] for k in (0, 1))
    row = (
        program.name, str(clusters), f"{times[0][0].baseline_s * 1e3:.3f}",
        f"{median(identity):.3f}", " ".join(f"{r:.3f}" for r in identity), f"{median(control):.3f}",
        f"{error:.1e}",
    )  # fmt: skip
    return row, median(identity), median(control)


@dataclass(frozen=True)
class Overhead:
    """Seconds that one module costs in the hook.

    Attributes:
        nodes: graph nodes.
        build_s: parse, analyse, build the graph and its masks.
        decide_s: the heuristic.
        rewrite_s: clusters, regions, emission and verification.
    """

    nodes: int
    build_s: float
    decide_s: float
    rewrite_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.build_s + self.decide_s + self.rewrite_s


def measure_overhead(data: bytes, repeats: int) -> Overhead:
    """Median cost of handling one module; a module the heuristic keeps is rewritten as it is."""
    rows = []
    for _ in range(repeats):
        with gc_paused():
            start = time.perf_counter()
            graph = build_graph(data)
            _ = graph.masks
            built = time.perf_counter()
            decisions = heuristic(graph)
            decided = time.perf_counter()
            rewrite(graph, graph.default if decisions is None else decisions)
            rows.append((built - start, decided - built, time.perf_counter() - decided))
            nodes = len(graph)
    build_s, decide_s, rewrite_s = (median(column) for column in zip(*rows, strict=True))
    return Overhead(nodes, build_s, decide_s, rewrite_s)


def _scaling(console: Console, budget_s: float) -> None:
    table = _table(
        "time in the hook by size (copies of the hmc_chain module in one)",
        "copies", "nodes", "build ms", "decide", "rewrite", "total ms", "us per node",
    )  # fmt: skip
    fn, args = load_programs("demo")["hmc_chain"].build()
    data = max(capture_modules(fn, *args), key=len)
    nodes = len(build_graph(data))
    try:
        with steps(console, len(SCALING_NODES), "sizes measured") as show:
            for done, wanted in enumerate(SCALING_NODES):
                show(f"scaling: {wanted:,} nodes", done)
                copies = max(1, round(wanted / nodes))
                large = data if copies == 1 else repeat_module(data, copies)
                table.add_row(
                    str(copies), *_cells(measure_overhead(large, 3 if copies < 20 else 1))
                )
    finally:
        if table.rows:
            console.print(table)


def _cells(cost: Overhead) -> tuple[str, ...]:
    """Of the table by size: nodes, milliseconds of the parts and of all, microseconds per node."""
    parts = (cost.build_s, cost.decide_s, cost.rewrite_s, cost.total_s)
    milliseconds = (f"{seconds * 1e3:.1f}" for seconds in parts)
    return (str(cost.nodes), *milliseconds, f"{cost.total_s / cost.nodes * 1e6:.1f}")
