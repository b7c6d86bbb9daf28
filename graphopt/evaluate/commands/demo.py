"""``graphopt demo``: real programs with XLA's default and with the plugin, side by side."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import jax
from rich.console import Console
from rich.table import Table

import graphopt.plugin
from graphopt.corpus.program import Program
from graphopt.corpus.workloads import build_program, select_programs
from graphopt.errors import WorkloadError
from graphopt.evaluate.commands.showing import next_steps, picture
from graphopt.measure import Comparison, compare, compare_outputs, compile_with
from graphopt.measure.comparing.yardstick import UNVERIFIABLE, host_leaves, program_yardstick
from graphopt.measure.compiling.functions import trace_context, unoptimized
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.policy.registry import DEFAULT
from graphopt.progress import steps


@dataclass(frozen=True)
class DemoRow:
    """One program.

    Attributes:
        name: program name.
        nodes: graph nodes.
        clusters_before: XLA's clusters and kernels.
        clusters_after: after the rewrite.
        regions: native regions after the rewrite.
        outcome: what the plugin did.
        times: default against rewritten, interleaved.
        relative: largest relative difference of the results.
        problem: why results are not known to be right, with their error; empty where they agree to
            rounding.
        chaotic: nobody can know: XLA's own results move as much with rounding.
        compile_default_s: XLA's own compile.
        compile_s: compile with the plugin, its own work included.
    """

    name: str
    nodes: int
    clusters_before: int
    clusters_after: int
    regions: int
    outcome: str
    times: Comparison
    relative: float
    compile_default_s: float
    compile_s: float
    problem: str = ""
    chaotic: bool = False

    @property
    def equal(self) -> bool:
        """Results agree to rounding."""
        return not self.problem


def run_demo(
    policy: str = DEFAULT,
    graphs: Sequence[str] = (),
    spec: str = "demo",
    budget_s: float = 4.0,
    out: Path | None = None,
    markdown: bool = False,
    console: Console | None = None,
) -> list[DemoRow]:
    """Measures every program and prints table, picture and what to type next; after an interrupt, too.

    Args:
        policy: name of the policy to install.
        graphs: names of programs; empty for all.
        spec: program set: ``demo``, ``fuzz`` or ``pkg.module:WORKLOADS``.
        budget_s: seconds of timing per program.
        out: write the rows as JSON here.
        markdown: print the table as Markdown.
        console: where to print.

    Raises:
        WorkloadError: there is no such program set.
    """
    # Piped output has no width of its own; the table needs this much.
    console = console or Console(width=None if Console().is_terminal else 140)
    programs = select_programs(spec, graphs, "graphopt demo")
    if out is not None and not out.parent.is_dir():
        raise WorkloadError(
            what=f"there is no folder {out.parent}", where="--out", fix="Create it first."
        )
    rows: list[DemoRow] = []
    try:
        with steps(console, len(programs), "programs measured") as show:
            for name, program in programs.items():
                show(name, len(rows))
                rows.append(measure_program(program, policy, budget_s, name))
    finally:
        if rows:
            _show(rows, policy, spec, markdown, out, console)
    return rows


def _show(
    rows: Sequence[DemoRow],
    policy: str,
    spec: str,
    markdown: bool,
    out: Path | None,
    console: Console,
) -> None:
    """Prints and writes what was measured, also where the rest was not."""
    if markdown:
        console.print(make_markdown(rows), soft_wrap=True, markup=False, highlight=False)
        console.print(summary(rows))
    else:
        console.print(make_table(rows, policy))
        console.print(summary(rows))
        fastest = max(rows, key=lambda row: row.times.speedup)
        speedups = {row.name: row.times.speedup for row in rows}
        known = "your_module:builder" if ":" in spec else fastest.name
        for text in (picture(speedups), next_steps(known)):
            console.print(f"\n{text}", markup=False, highlight=False)
    if out is not None:
        out.write_text(json.dumps([{**asdict(row), "equal": row.equal} for row in rows], indent=1))


def measure_program(
    program: Program, policy: str, budget_s: float, name: str | None = None
) -> DemoRow:
    """Compiles with XLA's default and with the plugin, compares results, times both in turn.

    Raises:
        WorkloadError: the program cannot be built.
    """
    name = name or program.name
    fn, args = build_program(program, name)
    default = compile_with(fn, args)
    reference = default()
    candidate, record, compile_s = _compile_with_plugin(fn, args, policy)

    def run() -> Any:
        result = candidate(*args)
        jax.block_until_ready(result)
        return result

    result = run()
    difference = compare_outputs(reference, result, slack=1e3 if program.chaotic else 1.0)
    problem, chaotic = "", False
    if not difference.equal:
        yardstick = program_yardstick(default.executable, args, unoptimized(default))
        judged = yardstick.judge(host_leaves(result))
        problem, chaotic = judged.problem(), judged.chaotic
    return DemoRow(
        name=name,
        nodes=record.nodes,
        clusters_before=record.clusters_before,
        clusters_after=record.clusters_after,
        regions=record.regions,
        outcome=str(record.outcome) + (f": {record.reason}" if record.reason else ""),
        times=compare(default, run, budget_s=budget_s),
        relative=difference.relative,
        compile_default_s=default.compile_s,
        compile_s=compile_s,
        problem=problem,
        chaotic=chaotic,
    )


def _compile_with_plugin(
    fn: Any, args: tuple[Any, ...], policy: str
) -> tuple[Any, ModuleRecord, float]:
    """Compiles under an installed plugin; returns the executable, the plugin's record, the seconds."""
    graphopt.plugin.install(policy)
    try:
        with trace_context(uuid.uuid4().hex):
            lowered = jax.jit(lambda *arguments: fn(*arguments)).lower(*args)
        before = len(graphopt.plugin.report().records)
        start = time.perf_counter()
        executable = lowered.compile()
        seconds = time.perf_counter() - start
        records = graphopt.plugin.report().records[before:]
    finally:
        graphopt.plugin.uninstall()
    record = max(records, key=lambda r: r.nodes) if records else ModuleRecord("", Outcome.KEPT)
    return executable, record, seconds


COLUMNS: Final = (
    "program", "nodes", "clusters", "regions", "default ms", "rewritten ms", "speed-up",
    "95 % interval", "compile", "max error", "results",
)  # fmt: skip


def cells(row: DemoRow) -> tuple[str, ...]:
    """One row of the table as text, in the order of `COLUMNS`."""
    times = row.times
    verdict = row.problem or "equal"
    return (
        row.name,
        str(row.nodes),
        f"{row.clusters_before} -> {row.clusters_after}" if row.clusters_after else "unchanged",
        str(row.regions or "-"),
        f"{times.baseline_s * 1e3:.3f}",
        f"{times.candidate_s * 1e3:.3f}",
        f"{times.speedup:.2f}x",
        f"{times.low:.2f}-{times.high:.2f}",
        f"{row.compile_s / row.compile_default_s:.2f}x",
        f"{row.relative:.1e}",
        verdict if row.clusters_after else f"{verdict} ({row.outcome})",
    )


def make_table(rows: Sequence[DemoRow], policy: str) -> Table:
    """The demo's table for a terminal."""
    table = Table(title=f"XLA:CPU default against policy {policy!r}")
    for position, title in enumerate(COLUMNS):
        outer = position in (0, len(COLUMNS) - 1)
        table.add_column(title, justify="left" if outer else "right", overflow="fold")
    for row in rows:
        table.add_row(*cells(row))
    return table


def make_markdown(rows: Sequence[DemoRow]) -> str:
    """The demo's table for a document."""
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
    lines += [" | ".join(cells(row)) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def summary(rows: Sequence[DemoRow]) -> str:
    """Geometric means and the extremes, in one line."""
    speedups = [row.times.speedup for row in rows]
    compiles = [row.compile_s / row.compile_default_s for row in rows]
    wrong = [f"{row.name} ({row.problem})" for row in rows if not row.equal and not row.chaotic]
    chaotic = [row.name for row in rows if row.chaotic]
    other = "other " if chaotic else ""
    return (
        f"geometric mean speed-up {geometric_mean(speedups):.2f}x, smallest {min(speedups):.2f}x, "
        f"largest {max(speedups):.2f}x; compile time {geometric_mean(compiles):.2f}x of XLA's, "
        f"largest {max(compiles):.2f}x; "
        + (f"{UNVERIFIABLE}: {', '.join(chaotic)}; " if chaotic else "")
        + (
            f"results differ: {', '.join(wrong)}"
            if wrong
            else f"all {other}results equal to rounding"
        )
    )
