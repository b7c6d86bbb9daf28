"""``graphopt fuzz`` on the terminal: progress, failures as they come, the report."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console

from graphopt.evaluate.fuzzing.decisions import FuzzReport, Trial, fuzz
from graphopt.progress import steps


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
    """`fuzz` with progress; failures are printed as they come, the report at the end or after an interrupt.

    Raises:
        KeyboardInterrupt: it was interrupted; the trials made until then are reported.
    """
    console = console or Console()
    seen: list[Trial] = []
    start = time.monotonic()
    try:
        with steps(console, trials, "trials made") as show:

            def advance(trial: Trial) -> None:
                seen.append(trial)
                if trial.status != "ok":
                    text = f"{trial.program} seed {trial.seed}: {trial.status}"
                    console.print(text, markup=False, highlight=False)
                failed = len(FuzzReport(seen).failures)
                show(f"fuzz ({failed} failed) {trial.program}", len(seen))

            report = fuzz(spec, graphs, trials, seed, timeout_s, workers, advance, devices)
    except KeyboardInterrupt:
        _print(console, FuzzReport(seen, time.monotonic() - start))
        raise
    _print(console, report)
    return report


def _print(console: Console, report: FuzzReport) -> None:
    console.print(str(report), markup=False, highlight=False, soft_wrap=True)
