"""Searching a program task by task: each hot task by duels, and what they gain composed.

A candidate of a task compiles in milliseconds where one of its program takes seconds. What is composed here
is a candidate like any other: the search on the whole program measures it, and goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any, Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.errors import GraphOptError
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.policy.alternatives.alternative import apply
from graphopt.policy.alternatives.sites import PROGRAM_ROWS
from graphopt.policy.alternatives.table import alternatives
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.heuristic.support.context import Context
from graphopt.store import Store
from graphopt.store.encoding import decode_known
from graphopt.store.winners import evaluations
from graphopt.tasks.composing import Composed, compose, restrict
from graphopt.tasks.cutting import Task, cut, distinct
from graphopt.tasks.duel import Duels
from graphopt.tasks.inputs import Recorder
from graphopt.tasks.running import ModuleRunner

MIN_PROGRAM: Final = 200
"""Smaller programs are searched whole: their candidates compile as fast as those of tasks."""

MIN_SHARE: Final = 0.05
"""Part of the program's estimated time that a task must take, equal ones counted together."""

MIN_SECONDS: Final = 8.0
"""With less, the whole program is searched at once."""

MIN_TASK_S: Final = 3.0
"""A task is begun only with so many seconds left for it."""

RECORDING_SHARE: Final = 0.25
"""Part of the time that recording inputs may take; beyond it, tasks get made-up ones."""

RECALLED: Final = 3
"""Decisions of an equal task, measured earlier, that are tried first."""

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Found:
    """What the search of one task came to.

    Attributes:
        tasks: the task, and those of the program that are equal to it.
        before: decisions at the start: the heuristic's.
        after: the best found.
        gain: log(time before / time after); 0 where nothing better was found.
        duels: duels held.
    """

    tasks: tuple[Task, ...]
    before: Decisions
    after: Decisions
    gain: float
    duels: int

    @property
    def share(self) -> float:
        """Part of the program's estimated time that the tasks take together."""
        return sum(task.share for task in self.tasks)


@dataclass(frozen=True, eq=False)
class Result:
    """What came of a program's tasks.

    Attributes:
        base: the heuristic's decisions for the program.
        composed: the same with what the tasks gained.
        found: task by task, largest share first.
    """

    base: Decisions
    composed: Composed
    found: tuple[Found, ...]

    @property
    def predicted(self) -> float:
        """Log gain of the program that shares and gains of its tasks come to, beside `base`."""
        saved = sum(f.share * (1.0 - exp(-f.gain)) for f in self.found)
        return -log(max(1.0 - saved, 1e-6))

    @property
    def duels(self) -> int:
        """Duels held."""
        return sum(f.duels for f in self.found)


def task_starts(
    graph: Graph,
    inputs: Sequence[np.ndarray[Any, Any]] | None,
    store: Store | None,
    seconds: float,
    tell: Tell = lambda _: None,
) -> list[tuple[str, Decisions]]:
    """(name, decisions) of what the tasks of a large program come to: where a search on the whole begins.

    Nothing for programs that are searched whole as fast, and where there is no time for a task.

    Args:
        graph: of the program.
        inputs: one array per parameter; None for made-up ones.
        store: what is known of equal tasks, and where measurements go.
        seconds: to spend.
        tell: told of progress.
    """
    if len(graph) < MIN_PROGRAM or seconds < MIN_SECONDS:
        return []
    end = time.perf_counter() + seconds
    try:
        found = search_by_tasks(graph, inputs, store, end, tell)
    except Exception as error:  # the search goes on without: tasks are only where it begins
        tell(f"tasks left alone: {type(error).__name__}: {error}"[:200])
        return []
    gained = [one for one in found.found if one.gain > 0.0]
    if not gained or found.composed.decisions.same_as(found.base):
        return []
    tell(f"{len(gained)} tasks gained: {exp(found.predicted):.2f}x beside the heuristic expected")
    return [("tasks composed", found.composed.decisions)]


def search_by_tasks(
    graph: Graph,
    inputs: Sequence[np.ndarray[Any, Any]] | None,
    store: Store | None,
    end: float,
    tell: Tell = lambda _: None,
) -> Result:
    """Searches the hot tasks of a program.

    Args:
        graph: of the program.
        inputs: one array per parameter, from which those of tasks are recorded; None for made-up ones.
        store: what is known of equal tasks, also of other programs, and where measurements go.
        end: when to stop, by the clock of `time.perf_counter`.
        tell: told which task is searched, its share, and what was found.
    """
    model = CostModel(graph)
    base = heuristic_steps(graph, STEPS, model)
    context = Context(graph, model, base)
    groups = sorted(
        distinct(cut(graph, model)).values(), key=lambda equal: -sum(t.share for t in equal)
    )
    hot = [equal for equal in groups if sum(t.share for t in equal) >= MIN_SHARE]
    limit_s = RECORDING_SHARE * (end - time.perf_counter())
    given = _recorded(graph, inputs, [equal[0] for equal in hot], limit_s)
    found = []
    left = sum(t.share for equal in hot for t in equal)
    for equal, values in zip(hot, given, strict=True):
        share = sum(t.share for t in equal)
        seconds = (end - time.perf_counter()) * share / max(left, share)
        left -= share
        if seconds < MIN_TASK_S:
            continue
        tell(f"{equal[0].name}, {share:.0%} of the time")
        before = _start(context, equal[0])
        one = _search_task(equal, before, values, store, time.perf_counter() + seconds)
        tell(f"{equal[0].name}, {share:.0%} of the time: {exp(one.gain):.2f}x in {one.duels} duels")
        found.append(one)
    chosen = [
        (task, found_one.before, found_one.after) for found_one in found for task in found_one.tasks
    ]
    return Result(base, compose(graph, base, chosen), tuple(found))


def _recorded(
    graph: Graph,
    inputs: Sequence[np.ndarray[Any, Any]] | None,
    tasks: list[Task],
    limit_s: float,
) -> Sequence[list[Any] | None]:
    """Inputs of each task; None where they cannot be recorded, or not within the time."""
    if inputs is None or not tasks or limit_s <= 0.0:
        return [None] * len(tasks)
    with ModuleRunner(limit_s) as run:
        try:
            return Recorder(graph.source.module, inputs, run).of(tasks)
        except GraphOptError:
            return [None] * len(tasks)


def _search_task(
    equal: list[Task], before: Decisions, inputs: list[Any] | None, store: Store | None, end: float
) -> Found:
    task = equal[0]
    kept = Found(tuple(equal), before, before, 0.0, 0)
    try:
        with Duels(task.data, inputs, store) as duels:
            search = _TaskSearch(duels, task.graph, before, end)
            after = search.run(_known(task.graph, store))
            return Found(tuple(equal), before, after, search.gain, duels.held)
    except GraphOptError:  # it cannot be measured apart from its program
        return kept


def _start(context: Context, task: Task) -> Decisions:
    """What the program's decisions are for a task, run by the thread that calls it where that is faster."""
    inside = {context.graph.computations[index].id for index in context.inside_native}
    native = task.piece.computation in inside
    return as_called(task.graph, restrict(task, context.decisions, native=native))


def as_called(graph: Graph, decisions: Decisions) -> Decisions:
    """Decisions with the thread that the heuristic would choose for the program or task.

    The hand-over to another thread belongs to a program, not to its parts; it would hide what they gain.
    """
    own = heuristic_steps(graph, STEPS, CostModel(graph))
    out = decisions.copy()
    whole = np.isin(own.restructure, [CODE[row] for row in PROGRAM_ROWS])
    out.restructure[whole] = own.restructure[whole]
    return out


def _known(graph: Graph, store: Store | None) -> Iterator[Decisions]:
    """The best decisions that were measured of equal tasks."""
    if store is not None and store.exists():
        rows = evaluations(store, graph.fingerprint)[:RECALLED]
        yield from (decisions for decisions, ratio in decode_known(graph, rows) if ratio > 1.0)


class _TaskSearch:
    """Singles first, then those that gained, one on top of the other; again from there."""

    def __init__(self, duels: Duels, graph: Graph, start: Decisions, end: float) -> None:
        self.duels, self.graph, self.start, self.end = duels, graph, start, end
        self.table = alternatives(graph, program=False)
        self.best = start
        self.gain = 0.0

    def run(self, known: Iterator[Decisions]) -> Decisions:
        """The best decisions found; the start where nothing is better beyond doubt."""
        for decisions in known:
            if not self._over and not decisions.same_as(self.best):
                self._take_if_faster(decisions)
        while not self._over and self._round():
            pass
        if self.best is self.start:
            return self.start
        last = self.duels.duel(self.start, self.best, looks=3)
        if not last.ok or last.low <= 0.0:
            return self.start
        self.gain = last.log_ratio
        self.duels.duel(self.graph.default, self.best, looks=1, most=1)  # for equal tasks later
        return self.best

    @property
    def _over(self) -> bool:
        return time.perf_counter() >= self.end

    def _round(self) -> bool:
        """Tries every alternative once; True if the best has changed."""
        begin = self.best
        gains: list[tuple[float, int]] = []
        for index in np.flatnonzero(self.table.available(self.table.flat(begin)))[1:].tolist():
            if self._over:
                break
            duel = self.duels.duel(begin, apply(begin, [self.table.rows[index]]), looks=1, most=2)
            if duel.is_clear and duel.low > 0.0:
                gains.append((duel.log_ratio, index))
        for _, index in sorted(gains, reverse=True):
            row = self.table.rows[index]
            if row.changes(self.best):
                self._take_if_faster(apply(self.best, [row]))
        return self.best is not begin

    def _take_if_faster(self, decisions: Decisions) -> None:
        """Makes decisions the best if they are faster than it beyond doubt."""
        duel = self.duels.duel(self.best, decisions, looks=2, most=3)
        if duel.is_clear and duel.low > 0.0:
            self.best = decisions
