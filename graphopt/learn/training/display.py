"""Progress of training on a terminal, or as plain lines where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from graphopt.learn.training.train import Metrics, Report

_ROWS: Final = (
    ("reward", ("rollout/reward", "rollout/greedy", "rollout/best")),
    ("labels (log)", ("elite/log_speedup",)),
    ("loss", ("loss/total", "loss/policy", "loss/imitation", "loss/value", "loss/gain")),
    ("ppo", ("ppo/entropy", "ppo/kl", "ppo/clipped", "ppo/grad_norm")),
    ("validation", ("validation/geomean", "validation/gated", "validation/kept")),
    (
        "speed-up percentiles",
        ("validation/p5", "validation/p25", "validation/p50", "validation/p75", "validation/p95"),
    ),
)
_LINE: Final = ("rollout/reward", "rollout/greedy", "validation/gated", "validation/p5")
_LINE_EVERY: Final = 10


@contextmanager
def progress(console: Console) -> Iterator[Report]:
    """A function to report steps to, shown as bars and a table, or as a line every few steps."""
    latest: Metrics = {}
    if not console.is_terminal:

        def line(phase: str, done: int, total: int, metrics: Metrics) -> None:
            latest.update(metrics)
            if done == total or done % _LINE_EVERY == 0:
                console.print(f"{phase} {done}/{total}  {_short(latest)}", highlight=False)

        yield line
        return
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )
    tasks = {}
    with Live(console=console, refresh_per_second=4) as live:

        def show(phase: str, done: int, total: int, metrics: Metrics) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done)
            latest.update(metrics)
            live.update(_table(bars, latest))

        yield show


def _short(metrics: Metrics) -> str:
    return "  ".join(f"{name} {metrics[name]:.3f}" for name in _LINE if name in metrics)


def _table(bars: Progress, metrics: Metrics) -> Table:
    """The bars above, the newest value of each group of metrics below."""
    outer = Table.grid()
    outer.add_row(bars)
    inner = Table(show_header=False, box=None)
    for title, names in _ROWS:
        values = [f"{n.split('/')[1]} {metrics[n]:.3f}" for n in names if n in metrics]
        if values:
            inner.add_row(title, "  ".join(values))
    outer.add_row(inner)
    return outer
