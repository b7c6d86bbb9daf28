"""``graphopt collect``: duels of all alternatives of all tasks of program sets, resumable, into parts."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax

from graphopt.errors import ConfigError, GraphOptError, StoreError
from graphopt.hlo import Graph, build_graph
from graphopt.learn.collecting.command import FillPlan, names_of, problems_of
from graphopt.learn.collecting.duelling import Collector, Row
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.collecting.scorers import program_inputs
from graphopt.locations import cache_path
from graphopt.store.journal import add_to_journal, read_journal
from graphopt.tasks.cutting import Task, cut, distinct
from graphopt.tasks.duel import Duels
from graphopt.tasks.inputs import Recorder
from graphopt.tasks.parts import provenance, read_parts, write_part
from graphopt.tasks.running import ModuleRunner

JOURNAL: Final = "collecting.jsonl"

CARD: Final = """\
# Duels

One file per collecting run (`graphopt collect`), never written again; `graphopt.tasks.parts` describes the
format and reads it. A row of `duels` is one pair of decision vectors of one task, timed in turn in one
process: `log_ratio` is log(rival's time / time) with its 95 % interval `low` to `high`, from the repeats in
`looks` (log ratio, low, high, pairs). `edits` is what differs from the rival, which is the hand-written
heuristic's decisions (`heuristic` of the task, as differences from XLA's) or XLA's default. Results of every
vector were compared with those of XLA's default. Inputs were recorded from the program where `inputs` says
so; they are not kept. `key` is equal for equal duels. Machine, versions and commit stand in each card.
"""


@dataclass(frozen=True)
class CollectPlan:
    """What is measured.

    Attributes:
        source: program sets, names, seconds, largest graphs; nothing that must stay unseen.
        out: folder of the parts.
        least_share: part of its program's estimated time that a task must take.
    """

    source: FillPlan
    out: Path
    least_share: float = 0.02


@dataclass
class Progress:
    """What a run has done so far.

    Attributes:
        begin: when it began, seconds of a monotonic clock.
        programs: programs seen.
        tasks: tasks measured.
        duels: duels held.
        failed: of these without a time.
        clear: of these beyond doubt faster or slower.
    """

    begin: float
    programs: int = 0
    tasks: int = 0
    duels: int = 0
    failed: int = 0
    clear: int = 0

    @property
    def seconds(self) -> float:
        """Since the begin."""
        return time.perf_counter() - self.begin

    @property
    def per_minute(self) -> float:
        """Duels."""
        return 60.0 * self.duels / max(self.seconds, 1e-9)


Tell = Callable[[str, Progress], None]
"""Told what is measured now."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Holds the machine: two collecting runs would measure each other.

    Raises:
        StoreError: another run goes on.
    """
    path = cache_path("GRAPHOPT_COLLECT_LOCK", "collect.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                what="another graphopt collect measures on this machine",
                where=str(path),
                fix="Wait for it, or end it: what it has measured is kept.",
            ) from error
        yield


class Notes:
    """The journal of a run and the parts of earlier ones: what is known, and what is not in a part yet.

    Attributes:
        folder: of both.
        known: keys of duels of this machine and these versions.
    """

    def __init__(self, folder: Path) -> None:
        """Reads what is there.

        Raises:
            StoreError: a part is damaged.
        """
        self.folder = folder
        self.source = provenance()
        self.journal = folder / JOURNAL
        self.known: set[str] = set()
        for part in read_parts(folder):
            if part.card["machine"] == self.source["machine"] and (
                part.card["jaxlib"] == self.source["jaxlib"]
            ):
                self.known.update(row["key"] for row in part.duels)

    def note_task(self, row: Row, data: bytes) -> None:
        """Keeps a task."""
        encoded = base64.b64encode(data).decode()
        add_to_journal(self.journal, {"task row": row, "module": encoded, "run": self.source})

    def note_duel(self, row: Row) -> None:
        """Keeps a duel."""
        self.known.add(row["key"])
        add_to_journal(self.journal, {"duel row": row})

    def finish(self, **facts: Any) -> Path | None:
        """Writes a part of what the journal holds, and ends the journal; None if it holds no duel."""
        tasks: dict[str, tuple[Row, bytes]] = {}
        duels: list[Row] = []
        run = self.source
        for row in read_journal(self.journal):
            if "task row" in row:
                run = row["run"]
                tasks.setdefault(
                    row["task row"]["task"], (row["task row"], base64.b64decode(row["module"]))
                )
            elif "duel row" in row:
                duels.append(row["duel row"])
        path = None
        if duels:
            used = {row["task"] for row in duels}
            kept = [task for name, task in tasks.items() if name in used]
            path = write_part(self.folder, {**run, **facts}, kept, duels)
            (self.folder / "README.md").write_text(CARD)
        self.journal.unlink(missing_ok=True)
        return path


def collect(plan: CollectPlan, notes: Notes, tell: Tell) -> Progress:
    """Measures until the budget is spent or everything is known; every duel is noted at once."""
    done = Progress(time.perf_counter())
    budget = plan.source.budget_s

    def over() -> bool:
        return done.seconds >= budget

    with ModuleRunner() as run:
        for name in names_of(plan.source):
            if over():
                break
            done.programs += 1
            for problem in problems_of(plan.source, name):
                try:
                    _collect_problem(plan, problem, notes, run, done, tell, over)
                except Exception as error:  # one program must not end a run of hours
                    tell(f"{name}: {type(error).__name__}: {error}"[:200], done)
            jax.clear_caches()
    return done


def _collect_problem(
    plan: CollectPlan,
    problem: Problem,
    notes: Notes,
    run: ModuleRunner,
    done: Progress,
    tell: Tell,
    over: Callable[[], bool],
) -> None:
    if problem.data is None:
        return
    graph = build_graph(problem.data, allow_donation=True)
    tasks = [equal[0] for equal in distinct(cut(graph, least_share=plan.least_share)).values()]
    todo = []
    for task in tasks:
        collector = Collector(task)
        if any(collector.key(e) not in notes.known for e in collector.singles()):
            todo.append(collector)
    if not todo or over():
        return
    tell(f"{problem.name}: recording inputs of {len(todo)} tasks", done)
    inputs = _inputs(problem, graph, [c.task for c in todo], run)
    for collector, given in zip(todo, inputs, strict=True):
        if over():
            return
        _collect_task(problem, collector, given, notes, done, tell, over)


def _inputs(
    problem: Problem, graph: Graph, tasks: list[Task], run: ModuleRunner
) -> Iterable[list[Any] | None]:
    """Inputs of each task, None where they cannot be recorded."""
    try:
        arguments = program_inputs(problem)
    except Exception:  # a builder of a user may raise anything
        arguments = None
    if arguments is None:
        return [None] * len(tasks)
    return Recorder(graph.source.module, arguments, run).of_each(tasks)


def _collect_task(
    problem: Problem,
    collector: Collector,
    inputs: list[Any] | None,
    notes: Notes,
    done: Progress,
    tell: Tell,
    over: Callable[[], bool],
) -> None:
    task = collector.task
    what = f"{problem.name}: {task.name}, {task.share:.0%} of it"
    tell(what, done)
    notes.note_task(collector.row(problem.name, problem.family, inputs is not None), task.data)
    try:
        with Duels(task.data, inputs) as duels:
            for row in collector.hold(duels, notes.known.__contains__, over):
                notes.note_duel(row)
                done.duels += 1
                done.failed += row["status"] != "ok"
                done.clear += row["status"] == "ok" and (row["low"] > 0.0 or row["high"] < 0.0)
                tell(what, done)
    except GraphOptError as error:
        tell(f"{what}: {error.what[:80]}", done)
        return
    done.tasks += 1


def check(plan: CollectPlan) -> None:
    """Checks what `FillPlan` does not.

    Raises:
        ConfigError: a share is no share.
    """
    if not 0.0 <= plan.least_share < 1.0:
        raise ConfigError(
            what=f"a least share of {plan.least_share}",
            where="--least-share",
            fix="Give a number from 0 to below 1.",
        )
