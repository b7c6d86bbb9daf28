"""One program by XLA's default and as ``graphopt.install`` has it, run in turn in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from graphopt.learn.tune.confirm import Runs, confirm
from graphopt.learn.tune.program import Subject
from graphopt.learn.tune.subject import make_subject
from graphopt.measure.adoption import StoredWinners
from graphopt.measure.compiling.functions import Compiled
from graphopt.measure.line_times import line_times
from graphopt.outcomes import ModuleRecord
from graphopt.plugin import optimize_module
from graphopt.policy import NamedPolicy
from graphopt.render.measured import LineChange, Measured, line_changes

MAX_PROFILED_S: Final = 0.5
"""Longer programs are not profiled: each kernel of theirs would be an event in memory."""


def measure_program(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policy: NamedPolicy,
    winners: StoredWinners | None,
    budget_s: float,
) -> Measured:
    """Compiles both, compares results, times them in turn, profiles each once.

    Args:
        fn: jittable.
        args: concrete arguments.
        policy: decides where there is no stored winner.
        winners: stored winners, which come first.
        budget_s: seconds of timing.

    Raises:
        WorkloadError: the function cannot be compiled or run.
    """
    subject = make_subject(fn, args)
    records: list[ModuleRecord] = []
    answers: list[bytes] = []

    def transform(data: bytes) -> bytes | None:
        record, answer = optimize_module(data, policy, winners=winners)
        records.append(record)
        answers.append(answer or data)
        return answer

    chosen = subject.compile(transform)
    seen, written = tuple(records), tuple(answers)
    once = replace(subject, compile=lambda *_: chosen)  # it exists already
    outcome = confirm(once, transform, budget_s)
    times = outcome.times
    lines: tuple[LineChange, ...] = ()
    if times.baseline_s < MAX_PROFILED_S and subject.modules:
        lines = _lines(subject, chosen, written, times.baseline_s, times.candidate_s)
    return Measured(times, outcome.equal, outcome.relative, seen, lines)


def _lines(
    subject: Subject,
    chosen: Compiled,
    written: tuple[bytes, ...],
    before_s: float,
    after_s: float,
) -> tuple[LineChange, ...]:
    """Profiles of the largest module of both."""
    default = max(subject.default.modules, key=len)
    rewritten = max(written, key=len) if written else default
    before = line_times(default, Runs(subject.default, subject.donates), before_s)
    after = line_times(rewritten, Runs(chosen, subject.donates), after_s)
    return line_changes(before, after) if before and after else ()
