"""Evaluation for people: live progress, a table, plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from graphopt.corpus.workloads import select_programs
from graphopt.evaluate.evaluation.compare import compare_markdown
from graphopt.evaluate.evaluation.plan import Plan, has_failed, run_evaluation
from graphopt.extras import require
from graphopt.measure.comparing.yardstick import UNVERIFIABLE
from graphopt.progress import live

COLUMNS: Final = (
    ("program", "name"),
    ("family", "family"),
    ("nodes", "nodes"),
    ("default ms", "default_s"),
    ("policy", "speedup_policy"),
    ("interval", "policy"),
    ("tuned", "speedup_tuned"),
    ("interval", "tuned"),
    ("candidates", "evaluations"),
    ("max error", "max_rel_err"),
    ("status", "status"),
)

INTERRUPTED: Final = (
    "interrupted; what was measured is in {}, and the same command goes on from there"
)

WINNERS: Final = (
    "What won, and what each kind of change is worth beside the others of the same winner:"
)


def evaluate_and_show(plan: Plan, console: Console | None = None) -> dict[str, Any]:
    """Runs the evaluation with live progress; writes report.json, report.md and the plots.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require("plots of an evaluation", "plots")  # before hours of measuring, not after
    console = console or Console(width=None if Console().is_terminal else 150)
    total = len(select_programs(plan.workloads, plan.names, "graphopt evaluate"))
    with live(console) as progress:
        task = progress.add_task("starting", total=total)

        def tell(message: str, row: dict[str, Any] | None) -> None:
            progress.update(task, description=message, advance=row is not None)
            if row is not None:
                console.print(row.get("traceback", ""), end="", markup=False, highlight=False)
                console.print("  ".join(cells(row)), highlight=False)

        try:
            report = run_evaluation(plan, tell)
        except KeyboardInterrupt:
            console.print(INTERRUPTED.format(plan.out / "report.json"), markup=False)
            raise
    console.print(make_table(report))
    console.print(summary(report))
    text = make_markdown(report)
    if plan.rival:
        compared = compare_markdown(report)
        (plan.out / "compare.md").write_text(compared)
        console.print(compared, markup=False, highlight=False)
    (plan.out / "report.md").write_text(text)
    plot_speedups(report, plan.out / "speedups.png")
    plot_progress(report, plan.out / "progress.png")
    return report


def cells(row: dict[str, Any]) -> list[str]:
    """One row as text, in the order of `COLUMNS`."""
    return [_cell(row, key) for _, key in COLUMNS]


def _cell(row: dict[str, Any], key: str) -> str:
    if key in ("policy", "tuned"):
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        return "" if low is None else f"{low:.2f}-{high:.2f}"
    value = row.get(key)
    if value is None:
        return ""
    if key == "default_s":
        return f"{value * 1e3:.3f}"
    if key.startswith("speedup"):
        return f"{value:.2f}x"
    return f"{value:.1e}" if key == "max_rel_err" else str(value)


def make_table(report: dict[str, Any]) -> Table:
    """A table for a terminal."""
    table = Table(title="speed-up over XLA's default (default time / new time)")
    for title, key in COLUMNS:
        left = key in ("name", "family", "status")
        table.add_column(title, justify="left" if left else "right", overflow="fold")
    for row in report["workloads"]:
        table.add_row(*cells(row))
    return table


def make_markdown(report: dict[str, Any]) -> str:
    """A table for a document, with the machine and what won."""
    lines = [
        " | ".join(title for title, _ in COLUMNS),
        " | ".join("---" for _ in COLUMNS),
        *(" | ".join(cells(row)) for row in report["workloads"]),
    ]
    table = "\n".join(f"| {line} |" for line in lines)
    winners = "\n".join(
        f"* {row['name']}: {row['winner']}" + (f" ({row['why']})" if row.get("why") else "")
        for row in report["workloads"]
        if row.get("winner")
    )
    machine = report["machine"]
    return (
        f"{machine['name']}, {machine['cores']} cores; jaxlib {report['versions']['jaxlib']}; "
        f"{report['date']}\n\n{table}\n\n{summary(report)}\n"
        + (f"\n{WINNERS}\n\n{winners}\n" if winners else "")
    )


def summary(report: dict[str, Any]) -> str:
    """Geometric means in one line."""
    parts = []
    for column in ("policy", "rival", "tuned"):
        mean = report.get(f"geomean_{column}")
        if mean is not None:
            good = [r for r in report["workloads"] if r["status"] == "ok"]
            values = [
                r[f"speedup_{column}"] for r in good if r.get(f"speedup_{column}") is not None
            ]
            parts.append(f"{column}: geometric mean {mean:.2f}x, smallest {min(values):.2f}x")
    failed = [row["name"] for row in report["workloads"] if has_failed(row)]
    chaotic = [r["name"] for r in report["workloads"] if r["status"] != "ok" and not has_failed(r)]
    if failed:
        parts.append(f"failed: {', '.join(failed)}")
    if chaotic:
        parts.append(f"{UNVERIFIABLE}, not in the means: {', '.join(chaotic)}")
    if not failed:
        parts.append(f"all {'other ' if chaotic else ''}results equal to rounding")
    return "; ".join(parts)


def plot_speedups(report: dict[str, Any], path: Path) -> None:
    """Speed-up per program with its interval."""
    from matplotlib.figure import Figure

    rows = [r for r in report["workloads"] if r["status"] == "ok"]
    figure = Figure(figsize=(8, 1.2 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for shift, column in ((-0.17, "policy"), (0.17, "tuned")):
        drawn = [(i, r) for i, r in enumerate(rows) if r.get(f"speedup_{column}") is not None]
        if not drawn:
            continue
        values = [r[f"speedup_{column}"] for _, r in drawn]
        low = [max(0.0, v - r[f"{column}_low"]) for v, (_, r) in zip(values, drawn, strict=True)]
        high = [max(0.0, r[f"{column}_high"] - v) for v, (_, r) in zip(values, drawn, strict=True)]
        places = [i + shift for i, _ in drawn]
        axes.barh(places, values, height=0.32, xerr=[low, high], label=column)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [r["name"] for r in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    ticks = [t for t in (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50) if _in_view(axes, t)]
    axes.set_xticks(ticks, [f"{t:g}x" for t in ticks], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("speed-up over XLA's default")
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    figure.savefig(path, dpi=120)


def _in_view(axes: Any, value: float) -> bool:
    low, high = axes.get_xlim()
    return bool(low <= value <= high)


def plot_progress(report: dict[str, Any], path: Path) -> None:
    """Best speed-up so far against candidates measured and against seconds."""
    from matplotlib.figure import Figure

    rows = [r for r in report["workloads"] if r.get("history")]
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    for axes, index, label in zip(
        figure.subplots(1, 2), (0, 1), ("candidates measured", "seconds"), strict=True
    ):
        for row in rows:
            _draw_steps(axes, row["history"], index, row["name"])
        axes.set_xlabel(label)
        axes.set_ylabel("best speed-up so far")
        if rows:
            axes.set_yscale("log")
            axes.legend(fontsize=6)
    figure.savefig(path, dpi=120)


def _draw_steps(axes: Any, history: Sequence[Sequence[float]], index: int, name: str) -> None:
    xs = [0.0, *(float(h[index]) for h in history)]
    ys = [1.0, *(float(h[2]) for h in history)]
    axes.step(xs, ys, where="post", label=name)
