"""A training run from the command line: loads, trains, shows, plots, sums up."""

from __future__ import annotations

import contextlib
from pathlib import Path

import jax
import yaml  # type: ignore[import-untyped, unused-ignore]
from rich.console import Console
from rich.table import Table

from graphopt import jax_private
from graphopt.errors import ConfigError
from graphopt.executing.opening import LOCAL, open_executor
from graphopt.learn.collecting.problems import load_problems
from graphopt.learn.collecting.scorers import Bench
from graphopt.learn.config import CONFIG_NAME, TrainConfig, to_dict
from graphopt.learn.training.display import progress
from graphopt.learn.training.metrics import read_rows
from graphopt.learn.training.plots import plot
from graphopt.learn.training.state import STATE, fresh_state, load_state
from graphopt.learn.training.train import POLICY, Run, train
from graphopt.store import Store

INTERRUPTED = 130


def train_session(config: TrainConfig, out: Path, resume: bool, executor: str = LOCAL) -> int:
    """Trains with progress on the terminal; exit status 0, or 130 if interrupted.

    Args:
        config: settings.
        out: directory of the run.
        resume: goes on with the run that is there.
        executor: where is measured what training asks for, as for `graphopt.executing.opening.open_executor`.

    Raises:
        ConfigError: `out` holds a run and `resume` is not set, or the other way round.
        ExecutorError: the cluster cannot be reached, or is gone; the run is saved.
    """
    console = Console()
    if not resume and (out / STATE).exists():
        raise ConfigError(
            what="there is a run already",
            where=str(out),
            fix="Add --resume, or choose another --out.",
        )
    if not jax_private.backends_initialized():
        # Graphs, times and the network: all of this CPU.
        jax.config.update("jax_platforms", "cpu")
    state = load_state(out, config) if resume else fresh_state(config)
    out.mkdir(parents=True, exist_ok=True)
    (out / CONFIG_NAME).write_text(yaml.safe_dump(to_dict(config), sort_keys=False))
    interrupted = False
    store = Store(config.store or None)
    with contextlib.ExitStack() as stack:
        machines = None if executor == LOCAL else stack.enter_context(open_executor(executor))
        bench = stack.enter_context(Bench(store, pessimism=config.pessimism, executor=machines))
        report = stack.enter_context(progress(console))
        report("corpus", 0, 2, {})
        problems = load_problems(config.corpus, "train", bench)
        report("corpus", 1, 2, {})
        validation = load_problems(config.corpus, "validation", bench)
        report("corpus", 2, 2, {})
        judged = {problem.graph.fingerprint for problem in validation}
        problems = [p for p in problems if p.graph.fingerprint not in judged]
        run = Run(config, problems, validation, out, report)
        try:
            state = train(run, state)
        except KeyboardInterrupt:
            interrupted = True
    curves = plot(out)
    console.print(summary(out))
    if curves is not None:
        console.print(f"curves: {curves}")
    if interrupted:
        console.print(f"interrupted and saved; continue with --resume --out {out}")
        return INTERRUPTED
    console.print(f"policy: {out / POLICY}   use it with graphopt.install({str(out / POLICY)!r})")
    return 0


def summary(out: Path) -> Table:
    """First and last validation of a run."""
    rows = [row for row in read_rows(out) if "validation/p50" in row]
    table = Table(title="speed-up over XLA's default on validation graphs, by the stage's scorer")
    for column in ("step", "geomean", "gated", "kept", "p5", "p25", "p50", "p75", "p95"):
        table.add_column(column, justify="right")
    for row in [*rows[:1], *rows[1:][-1:]]:
        values = (row[f"validation/{name.header}"] for name in table.columns[1:])
        table.add_row(f"{row['train/step']:.0f}", *(f"{value:.3f}" for value in values))
    return table
