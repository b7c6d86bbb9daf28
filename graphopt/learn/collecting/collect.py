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
from graphopt.executing.executor import Executor, ExecutorError, own_needs
from graphopt.executing.opening import LOCAL
from graphopt.executing.request import Answer, Request
from graphopt.hlo import Graph, build_graph
from graphopt.learn.collecting.command import FillPlan, names_of, problems_of
from graphopt.learn.collecting.duel_requests import close_duels, packed_inputs
from graphopt.learn.collecting.duelling import Collector, Row
from graphopt.learn.collecting.in_flight import TaskRun
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.collecting.scorers import program_inputs
from graphopt.locations import cache_path
from graphopt.store.journal import add_to_journal, read_journal
from graphopt.tasks.cutting import Task, cut, distinct
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
        executor: where duels are held, as for `graphopt.executing.opening.open_executor`.
    """

    source: FillPlan
    out: Path
    least_share: float = 0.02
    executor: str = LOCAL


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
def alone(path: Path, what: str = "measures on this machine") -> Iterator[None]:
    """Holds a file: two runs would measure each other, or write one journal.

    Args:
        path: of the file; made if need be.
        what: another run that holds it does, for the message.

    Raises:
        StoreError: another run holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                what=f"another graphopt collect {what}",
                where=str(path),
                fix="Wait for it, or end it: what it has measured is kept.",
            ) from error
        yield


def machine_lock() -> Path:
    """The file that whoever measures on this machine holds."""
    return cache_path("GRAPHOPT_COLLECT_LOCK", "collect.lock")


class Notes:
    """The journal of a run and the parts of earlier ones: what is known, and what is not in a part yet.

    Attributes:
        folder: of both.
        known: keys of duels of this machine and these versions.
        gains: log ratios of those that were faster beyond doubt.
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
        self.gains: dict[str, float] = {}
        for part in read_parts(folder):
            if part.card["machine"] == self.source["machine"] and (
                part.card["jaxlib"] == self.source["jaxlib"]
            ):
                for row in part.duels:
                    self._know(row)

    def note_task(self, row: Row, data: bytes) -> None:
        """Keeps a task."""
        encoded = base64.b64encode(data).decode()
        add_to_journal(self.journal, {"task row": row, "module": encoded, "run": self.source})

    def note_duel(self, row: Row) -> None:
        """Keeps a duel."""
        self._know(row)
        add_to_journal(self.journal, {"duel row": row})

    def _know(self, row: Row) -> None:
        self.known.add(row["key"])
        if row.get("status") == "ok" and row.get("low", 0.0) > 0.0:
            self.gains[row["key"]] = row["log_ratio"]

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


def collect(plan: CollectPlan, notes: Notes, tell: Tell, executor: Executor) -> Progress:
    """Measures until the budget is spent or everything is known; every answer is noted at once."""
    done = Progress(time.perf_counter())
    work = _Collecting(plan, notes, tell, executor, done)
    try:
        with ModuleRunner() as run:
            for name in names_of(plan.source):
                if work.over:
                    break
                done.programs += 1
                for problem in problems_of(plan.source, name):
                    try:
                        work.ask(problem, run)
                    except ExecutorError:
                        raise
                    except Exception as error:  # one program must not end a run of hours
                        tell(f"{name}: {type(error).__name__}: {error}"[:200], done)
                jax.clear_caches()
        work.settle(lambda: False)
    finally:
        close_duels()
    return done


class _Collecting:
    """One run: the tasks whose duels are on their way."""

    def __init__(
        self, plan: CollectPlan, notes: Notes, tell: Tell, executor: Executor, done: Progress
    ) -> None:
        self.plan, self.notes, self.tell, self.executor, self.done = (
            plan, notes, tell, executor, done
        )  # fmt: skip
        self.needs = own_needs()
        self.runs: dict[str, TaskRun] = {}
        self.asked: set[str] = set()

    @property
    def over(self) -> bool:
        """True once the budget is spent."""
        return self.done.seconds >= self.plan.source.budget_s

    def known(self, key: str) -> bool:
        """True if a duel is held or on its way, perhaps for an equal task of another program."""
        return key in self.notes.known or key in self.asked

    def ask(self, problem: Problem, run: ModuleRunner) -> None:
        """Asks for the duels of a problem's tasks, as fast as they are answered."""
        if problem.data is None:
            return
        graph = build_graph(problem.data, allow_donation=True)
        tasks = distinct(cut(graph, least_share=self.plan.least_share)).values()
        collectors = [Collector(equal[0]) for equal in tasks]
        todo = [c for c in collectors if c.is_open(self.known, self.notes.gains)]
        if not todo or self.over:
            return
        self.tell(f"{problem.name}: recording inputs of {len(todo)} tasks", self.done)
        inputs = _inputs(problem, graph, [c.task for c in todo], run)
        for collector, given in zip(todo, inputs, strict=True):
            if self.over:
                return
            self._ask_task(problem, collector, given)
            self.settle(lambda: self.executor.hungry)

    def _ask_task(self, problem: Problem, collector: Collector, given: list[Any] | None) -> None:
        task = collector.task
        what = f"{problem.name}: {task.name}, {task.share:.0%} of it"
        self.tell(what, self.done)
        row = collector.row(problem.name, problem.family, given is not None)
        self.notes.note_task(row, task.data)
        run = TaskRun(
            what, collector, packed_inputs(given), self.needs, self.known, self.notes.gains
        )
        for request in run.singles(self.executor.batch):
            self._submit(run, request)
        last = run.together()
        if last is not None:  # an earlier run held the singles
            self._submit(run, last)

    def _submit(self, run: TaskRun, request: Request) -> None:
        self.runs[request.id] = run
        self.asked.update(run.keys(request))
        self.executor.submit(request)

    def settle(self, until: Callable[[], bool]) -> None:
        """Notes answers until a condition holds or none is outstanding."""
        if until():
            return
        for answer in self.executor.results():
            self._take(answer)
            if self.over:
                self._drop(lambda request: True)
            if until():
                return

    def _take(self, answer: Answer) -> None:
        run = self.runs.pop(answer.id)
        try:
            for row in run.take(answer):
                if row["key"] not in self.notes.known:
                    self._note(row)
        except GraphOptError as error:
            self.tell(f"{run.name}: {error.what[:80]}", self.done)
            run.left = True
        if run.left:
            self._drop(lambda request: self.runs.get(request.id) is run)
        last = None if self.over else run.together()
        if last is not None:
            self._submit(run, last)
        elif not run.outstanding:
            self.done.tasks += not run.left
        self.tell(run.name, self.done)

    def _note(self, row: Row) -> None:
        self.notes.note_duel(row)
        self.done.duels += 1
        self.done.failed += row["status"] != "ok"
        self.done.clear += row["status"] == "ok" and (row["low"] > 0.0 or row["high"] < 0.0)

    def _drop(self, unwanted: Callable[[Request], bool]) -> None:
        """Takes back what has not begun."""

        def forget(request: Request) -> bool:
            if not unwanted(request):
                return False
            run = self.runs.pop(request.id)
            self.asked.difference_update(run.forget(request))
            return True

        self.executor.drop(forget)


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
