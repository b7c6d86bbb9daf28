"""``graphopt fill``: the store's measurements over whole program sets, within a budget, resumable."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jax
from rich.console import Console

from graphopt import jax_private
from graphopt.corpus import load_corpus
from graphopt.corpus.workloads import load_programs, select_programs
from graphopt.errors import ConfigError
from graphopt.learn.collecting.circumstances import may_pass
from graphopt.learn.collecting.fill import Filled, fill_problem
from graphopt.learn.collecting.problems import MIN_NODES, Problem, from_entries, from_programs
from graphopt.learn.collecting.scorers import Bench
from graphopt.progress import live
from graphopt.store import Store
from graphopt.store.journal import add_to_journal, read_journal

INTERRUPTED: Final = 130
MAX_ROUNDS: Final = 20

_TRAINING: Final = ("train", "validation")


@dataclass(frozen=True)
class FillPlan:
    """What is measured.

    Attributes:
        workloads: program sets.
        names: programs; all if empty.
        budget_s: seconds in all, this run; at least one program per run is begun.
        store: where measurements go.
        seed: of the random neighbours.
        max_nodes: larger graphs are left out.
    """

    workloads: tuple[str, ...]
    names: tuple[str, ...]
    budget_s: float
    store: str | Path | None
    seed: int
    max_nodes: int

    def __post_init__(self) -> None:
        """Checks the budget, and that nothing is measured for training that must stay unseen.

        Raises:
            ConfigError: the budget is not positive, or the held-out split is named.
        """
        if not self.budget_s > 0:
            raise ConfigError(
                what=f"a budget of {self.budget_s} s", where="--budget-s", fix="Give some seconds."
            )
        if "held-out" in self.workloads or "corpus" in self.workloads:
            raise ConfigError(
                what="the held-out programs are for evaluation only",
                where="--workloads",
                fix="Fill from train and validation.",
            )


def fill_session(plan: FillPlan, console: Console | None = None) -> int:
    """Fills with progress on the terminal; exit status 0, or 130 if interrupted.

    A log beside the store names the finished programs of each round; the same command goes on after it.
    """
    console = console or Console(width=None if Console().is_terminal else 140)
    if not jax_private.backends_initialized():
        jax.config.update("jax_platforms", "cpu")
    store = Store(plan.store)
    log = Log(store.path.with_name(f"{store.path.name}.fill.jsonl"))
    rows: list[Filled] = []
    try:
        with (
            live(console, counted=False) as progress,
            Bench(store, workers=1) as bench,
        ):
            task = progress.add_task("loading", total=plan.budget_s)

            def tell(message: str, spent_s: float, filled: Filled | None) -> None:
                progress.update(task, description=message, completed=spent_s)
                if filled is not None:
                    rows.append(filled)
                    console.print(line(filled), highlight=False)

            fill(plan, bench, log, tell)
    except KeyboardInterrupt:
        console.print(
            f"interrupted after {summary(rows)}; the same command goes on", highlight=False
        )
        return INTERRUPTED
    console.print(summary(rows), highlight=False)
    return 0


def fill(
    plan: FillPlan, bench: Bench, log: Log, tell: Callable[[str, float, Filled | None], None]
) -> None:
    """Rounds over all programs until the budget is spent; each round measures other vectors."""
    begin = time.perf_counter()
    names = names_of(plan)
    first = log.first_open_round(names)
    for number in range(first, first + MAX_ROUNDS):
        left = [name for name in names if (number, name) not in log.done]
        for index, name in enumerate(left):
            spent = time.perf_counter() - begin
            if spent >= plan.budget_s:
                return
            share = (plan.budget_s - spent) / (len(left) - index)
            place = f"round {number + 1}, {len(names) - len(left) + index + 1} of {len(names)}"
            tell(f"{place}: {name}", spent, None)
            filled = _fill_program(plan, bench, name, share, plan.seed + number)
            log.add(number, name, filled)
            tell(name, time.perf_counter() - begin, filled)


def _fill_program(plan: FillPlan, bench: Bench, name: str, share_s: float, seed: int) -> Filled:
    """Fills from the first module of a program that fits."""
    problem = next(problems_of(plan, name), None)
    if problem is None:
        return Filled(name, note="no module that fits")
    filled = fill_problem(problem, bench, share_s, seed)
    bench.close()
    jax.clear_caches()
    return filled


def names_of(plan: FillPlan) -> list[str]:
    """Names of the programs, in the order of the sets."""
    out: dict[str, None] = {}
    for spec in plan.workloads:
        programs = load_programs(spec)
        out.update(dict.fromkeys(n for n in programs if not plan.names or n in plan.names))
    if not out:
        raise ConfigError(what="no program is left", where="--graphs", fix="Name other programs.")
    return list(out)


def problems_of(plan: FillPlan, name: str, *, strict: bool = False) -> Iterator[Problem]:
    """Modules of one program that fit; none if it cannot be captured.

    Args:
        plan: with the program sets.
        name: of the program.
        strict: errors of circumstances, which may pass, are raised.
    """
    for spec in plan.workloads:
        programs = load_programs(spec)
        if name not in programs:
            continue
        try:
            if spec in _TRAINING:
                found = list(from_entries(load_corpus(split=spec, names=(name,))))
            else:
                found = list(from_programs(select_programs(spec, (name,), "fill").values()))
        except Exception as error:  # a builder of a user may raise anything
            if strict and may_pass(error):
                raise
            found = []
        yield from (p for p in found if MIN_NODES <= len(p.graph) <= plan.max_nodes)
        return


class Log:
    """Finished programs, one line of JSON each, so that an interrupted run goes on.

    Attributes:
        done: (round, program) finished.
    """

    def __init__(self, path: Path) -> None:
        """Reads what is there; a damaged last line counts as not finished."""
        self.path = path
        self.done: set[tuple[int, str]] = set()
        for row in read_journal(path):
            if {"round", "program"} <= row.keys():
                self.done.add((int(row["round"]), str(row["program"])))

    def first_open_round(self, names: Sequence[str]) -> int:
        """The first round in which not all programs are done."""
        return next(
            n for n in itertools.count() if any((n, name) not in self.done for name in names)
        )

    def add(self, number: int, name: str, filled: Filled) -> None:
        """Notes a finished program."""
        self.done.add((number, name))
        add_to_journal(self.path, {"round": number, "program": name, **filled.row()})


def line(filled: Filled) -> str:
    """One finished program."""
    if filled.note:
        return f"{filled.name}: {filled.note}"
    return (
        f"{filled.name}: {filled.nodes} nodes, {filled.vectors} vectors ({filled.failed} failed), "
        f"{filled.kernels} kernels, {filled.worst:.2f}x to {filled.best:.2f}x, {filled.seconds:.1f} s"
    )


def summary(rows: Sequence[Filled]) -> str:
    """What a run has added."""
    good = [row for row in rows if not row.note]
    return (
        f"{len(good)} of {len(rows)} programs, {sum(r.vectors for r in good)} vectors "
        f"({sum(r.failed for r in good)} failed), {sum(r.kernels for r in good)} kernels"
    )
