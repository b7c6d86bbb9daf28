"""Progress displays of long commands."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graphopt.evaluate.fuzzing.decisions import FuzzReport, Trial, fuzz


def run_fuzz(
    spec: str,
    graphs: Sequence[str],
    trials: int,
    seed: int,
    timeout_s: float,
    workers: int,
    console: Console | None = None,
    devices: int | None = None,
) -> FuzzReport:
    """`fuzz` with a progress bar; failures are printed as they come, the report at the end."""
    console = console or Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("fuzz", total=trials)
        failed = 0

        def advance(trial: Trial) -> None:
            nonlocal failed
            if trial.status != "ok":
                failed += 1
                bar.console.print(f"{trial.program} seed {trial.seed}: {trial.status}")
            bar.update(task, advance=1, description=f"fuzz ({failed} failed) {trial.program}")

        report = fuzz(spec, graphs, trials, seed, timeout_s, workers, advance, devices)
    console.print(str(report), markup=False, highlight=False)
    return report
