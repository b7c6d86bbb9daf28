"""``graphopt tune``: tuning, replay, export and import on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from graphopt.corpus.workloads import build_program, find_program
from graphopt.learn.tune import Event, TuneResult, replay, tune
from graphopt.policy.registry import DEFAULT
from graphopt.progress import waiting
from graphopt.store import Store, export_winners, import_winners


def run_tune(
    workload: str,
    budget_s: float,
    seed: int,
    store: str | Path | None,
    as_json: bool,
    again: bool,
    policy: str = DEFAULT,
) -> TuneResult:
    """Tunes or replays ``pkg.module:builder`` (or a built-in program) and prints the result.

    Raises:
        WorkloadError: there is no such program, or it cannot be compiled.
    """
    program = find_program(workload)
    name = workload if ":" in workload else program.name
    fn, args = build_program(program, workload)
    place = Store(store)
    console = Console(stderr=as_json)
    if again:
        with waiting(console, f"{name}: the winner and XLA's default, in turn"):
            result = replay(fn, *args, budget_s=min(budget_s, 20.0), store=place, name=name)
    else:
        result = _with_progress(console, budget_s, name, fn, args, place, seed, policy)
    if as_json:
        print(json.dumps(result.to_json()))
    else:
        console.print(str(result), highlight=False, markup=False)
    return result


def _with_progress(
    console: Console,
    budget_s: float,
    name: str,
    fn: object,
    args: tuple[object, ...],
    store: Store,
    seed: int,
    policy: str,
) -> TuneResult:
    columns = (SpinnerColumn(), BarColumn(20), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=budget_s)

        def listener(event: Event) -> None:
            if event.stage in ("calibrate", "plan"):
                console.print(event.message, highlight=False, markup=False)
            text = (
                f"{event.left_s:3.0f} s left, {event.evaluations} candidates, best {event.best:.2f}x"
                f"  {event.message[:60]}"
            )
            progress.update(task, completed=min(budget_s, event.elapsed_s), description=text)

        return tune(
            fn,  # type: ignore[arg-type]
            *args,
            budget_s=budget_s,
            store=store,
            seed=seed,
            name=name,
            listener=listener,
            policy=policy or None,
        )


def move_winners(store: str | Path | None, export: Path | None, take: Path | None) -> None:
    """Exports winners to a file, or imports them from one."""
    place = Store(store)
    if export is not None:
        print(f"{export_winners(place, export)} winners written to {export}")
    if take is not None:
        print(
            f"{import_winners(place, take)} winners taken from {take}; they are verified at first use"
        )
