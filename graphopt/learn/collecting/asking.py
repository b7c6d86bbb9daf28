"""Duels of all alternatives of all tasks of program sets: asked for, noted as they come, asked for again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax

from graphopt.errors import GraphOptError, message
from graphopt.executing.executor import Executor, ExecutorError, own_needs
from graphopt.executing.request import LOST, Answer, Request
from graphopt.hlo import Graph, build_graph
from graphopt.learn.collecting.circumstances import may_pass
from graphopt.learn.collecting.collect import CollectPlan, Notes, Progress, Tell
from graphopt.learn.collecting.command import names_of, problems_of
from graphopt.learn.collecting.duelling import Collector, Row
from graphopt.learn.collecting.in_flight import TaskRun
from graphopt.learn.collecting.own_states import own_states
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.collecting.scorers import program_inputs
from graphopt.learn.collecting.warm import WARM, packed_inputs
from graphopt.tasks.cutting import Task, cut, distinct
from graphopt.tasks.inputs import Recorder
from graphopt.tasks.running import ModuleRunner

PASSES: Final = 3
"""Times that a program is begun in one run, while something of it is given up."""


def collect(plan: CollectPlan, notes: Notes, tell: Tell, executor: Executor) -> Progress:
    """Measures until the budget is spent or everything is known; every answer is noted at once.

    Returns:
        What was done. What is given up in the end is named there: the same command asks for it again.

    Raises:
        ExecutorError: no machine can answer any more.
    """
    work = Asking(plan, notes, tell, executor)
    try:
        names: Sequence[str] = names_of(plan.source)
        for number in range(PASSES):
            names = work.through(names, again=number > 0)
            if not names or work.over:
                break
    finally:
        WARM.close()
    return work.done


class Asking:
    """One run: the tasks whose duels are on their way.

    Attributes:
        done: what the run has done so far.
    """

    def __init__(self, plan: CollectPlan, notes: Notes, tell: Tell, executor: Executor) -> None:
        """Asks for nothing yet."""
        self.plan, self.notes, self.tell, self.executor = plan, notes, tell, executor
        self.done = Progress()
        self._needs = own_needs()
        own = own_states(plan.states_of)
        self._own = None if own is None else own.experiments
        self._runs: dict[str, TaskRun] = {}
        self._asked: set[str] = set()

    def through(self, names: Sequence[str], *, again: bool) -> list[str]:
        """Goes through programs until all is answered; those of which something was given up.

        Args:
            names: of the programs.
            again: they were begun before.
        """
        with ModuleRunner() as run:
            for name in names:
                if self.over:
                    break
                self.done.programs += not again
                for key in [key for key in self.done.given_up if key[0] == name]:
                    del self.done.given_up[key]
                self._program(name, run)
                jax.clear_caches()
            self._settle(lambda: False)
        missing = {program for program, _ in self.done.given_up}
        return [name for name in names if name in missing]

    def _program(self, name: str, run: ModuleRunner) -> None:
        try:
            for problem in problems_of(self.plan.source, name, strict=True):
                try:
                    self._ask(name, problem, run)
                except ExecutorError:
                    raise
                except Exception as error:  # one program must not end a run of hours
                    self._failed(name, problem.name, error)
        except ExecutorError:
            raise
        except Exception as error:
            self._failed(name, name, error)

    def _failed(self, program: str, what: str, error: Exception) -> None:
        """Something was not asked for: given up, unless the error says that it cannot be measured at all."""
        why = error.what if isinstance(error, GraphOptError) else message(error)
        passing = may_pass(error) or not isinstance(error, GraphOptError)
        noted = self.done.given_up if passing else self.done.left_out
        noted[program, what] = why[:200]
        self.tell(f"{what}: {why[:80]}", self.done)

    @property
    def over(self) -> bool:
        """True once the budget is spent."""
        return self.done.seconds >= self.plan.source.budget_s

    def _known(self, key: str) -> bool:
        """True if a duel is held or on its way, perhaps for an equal task of another program."""
        return key in self.notes.known or key in self._asked

    def _ask(self, name: str, problem: Problem, run: ModuleRunner) -> None:
        """Asks for the duels of a problem's tasks, as fast as they are answered."""
        if problem.data is None:
            return
        graph = build_graph(problem.data, allow_donation=True)
        tasks = distinct(cut(graph, least_share=self.plan.least_share)).values()
        collectors = [Collector(equal[0], self._own, self.plan.most) for equal in tasks]
        todo = [c for c in collectors if self._is_open(c)]
        if not todo or self.over:
            return
        self.tell(f"{problem.name}: recording inputs of {len(todo)} tasks", self.done)
        inputs = _inputs(problem, graph, [c.task for c in todo], run)
        for collector, given in zip(todo, inputs, strict=True):
            if self.over:
                return
            self._ask_task(name, problem, collector, given)
            self._settle(lambda: self.executor.hungry)

    def _is_open(self, collector: Collector) -> bool:
        """False too while duels of an equal task are on their way: that one asks for what follows."""
        on_their_way = {run.collector.task.fingerprint for run in self._runs.values()}
        return collector.task.fingerprint not in on_their_way and collector.is_open(
            self._known, self.notes.gains
        )

    def _ask_task(
        self, name: str, problem: Problem, collector: Collector, given: list[Any] | None
    ) -> None:
        task = collector.task
        what = f"{problem.name}: {task.name}, {task.share:.0%} of it"
        self.tell(what, self.done)
        row = collector.row(problem.name, problem.family, given is not None)
        self.notes.note_task(row, task.data)
        run = TaskRun(
            what, collector, packed_inputs(given), self._needs, self._known, self.notes.gains, name
        )
        for request in run.singles(self.executor.batch):
            self._submit(run, request)
        last = run.together()
        if last is not None:  # an earlier run held the singles
            self._submit(run, last)

    def _submit(self, run: TaskRun, request: Request) -> None:
        self._runs[request.id] = run
        self._asked.update(run.keys(request))
        self.executor.submit(request)

    def _settle(self, until: Callable[[], bool]) -> None:
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
        run = self._runs.pop(answer.id)
        if answer.status == LOST and (requests := run.apart(answer)):
            for request in requests:
                self._submit(run, request)
            return
        self._note_rows(run, answer)
        if run.left:
            self._drop(lambda request: self._runs.get(request.id) is run)
        last = None if self.over else run.together()
        if last is not None:
            self._submit(run, last)
        elif not run.outstanding:
            self.done.tasks += not (run.left or run.incomplete)
        self.tell(run.name, self.done)

    def _note_rows(self, run: TaskRun, answer: Answer) -> None:
        keys = run.keys(answer)
        try:
            for row in run.take(answer):
                if row["key"] not in self.notes.known:
                    self._note(row)
        except GraphOptError as error:
            self._failed(run.program, run.name, error)
            run.incomplete = True
            if answer.status != LOST:  # what killed one duel need not kill others
                run.left = True
        self._asked.difference_update(keys)

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
            run = self._runs.pop(request.id)
            self._asked.difference_update(run.forget(request))
            return True

        self.executor.drop(forget)


def _inputs(
    problem: Problem, graph: Graph, tasks: list[Task], run: ModuleRunner
) -> Iterable[list[Any] | None]:
    """Inputs of each task, None where they cannot be recorded."""
    try:
        arguments = program_inputs(problem)
    except Exception as error:  # a builder of a user may raise anything
        if may_pass(error):
            raise
        arguments = None
    if arguments is None:
        return [None] * len(tasks)
    return Recorder(graph.source.module, arguments, run).of_each(tasks)
