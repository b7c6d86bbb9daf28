"""Steps that are put off, until somebody looks or there are enough for a loop over them.

Dispatching a small graph takes longer than running it. Nobody can tell when a step runs until he looks at a
result, so a small step that repeats may wait for the next ones: then one compiled loop runs them all. Whether
that happens depends on what is recorded alone, never on time, so that results can be reproduced.

What is put off stays a recording as any other: if anything goes wrong its results are computed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphopt.lazy.core import metrics
from graphopt.lazy.core.node import Node
from graphopt.lazy.record.settings import settings
from graphopt.lazy.record.threads import Recorder
from graphopt.lazy.runtime import compiling, devices, donation, optimizer, tiers
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.index_checks import Check
from graphopt.lazy.runtime.known import KnownCut
from graphopt.lazy.runtime.results import checks_for, checks_of, deliver, give
from graphopt.lazy.runtime.steps.program import Form, Program
from graphopt.lazy.runtime.steps.relation import Step, relation_of
from graphopt.lazy.runtime.steps.work import steps_together


@dataclass(frozen=True)
class Patience:
    """When steps of a graph wait, and when a loop over them is compiled and used.

    Attributes:
        first: steps that run at once, before any is put off.
        fewest: steps that are worth a loop.
        sightings: times that a loop is asked for until it is compiled.
        due: steps from the start of its compile to its use: nothing depends on how long a compile takes.
        programs: loops of one graph; others than these are run step by step.
    """

    first: int
    fewest: int
    sightings: int
    due: int
    programs: int


PATIENCE: Final[dict[Any, Patience]] = {
    True: Patience(first=256, fewest=4, sightings=2, due=512, programs=4),
    "at once": Patience(first=1, fewest=2, sightings=1, due=0, programs=64),
}
"""By the setting ``batch_steps``."""

MAX_KEPT: Final = 256
"""Results of earlier steps that a loop returns, at most."""

_waiting: Final[set[Recorder]] = set()
"""Recorders of threads whose steps wait; under the cut's lock."""


def put_off(local: Recorder, cut: KnownCut, entry: Entry) -> bool:
    """Leaves the step that was recorded for later, if it may wait; the recording has ended then.

    Args:
        local: the recorder of this thread.
        cut: the cut of the trace that was followed.
        entry: its graph.
    """
    history = entry.history
    history.steps += 1
    patience = PATIENCE.get(settings.batch_steps)
    if patience is None or history.steps <= patience.first or not _may_wait(entry):
        return False
    if not cut.complete or local.tapes:
        return False
    recording = local.recording
    leaves, arrays, scalars, roots = cut.values(recording)
    step = Step(entry, leaves, scalars, roots, recording)
    if not (local.later and _continues(local.later, step)):
        if tiers.traced(arrays) or any(leaf.own is None for leaf in leaves):
            return False
        run(local)
    recording.put_off = True
    local.later.append(step)
    _waiting.add(local)
    local.restart()
    if len(local.later) == history.together:
        run(local)
    return True


def _may_wait(entry: Entry) -> bool:
    if entry.state != "ready" or entry.default is not None or entry.giving.pairing.leaves:
        return False
    if devices.several() or optimizer.checked_mode():
        return False
    history = entry.history
    if history.together is None:
        history.together = steps_together(entry.plan)
    return history.together > 1


def _continues(steps: list[Step], step: Step) -> bool:
    """Whether a step follows from the last of some steps as each of these from the one before."""
    last = steps[-1]
    if step.entry is not last.entry:
        return False
    step.relation = relation_of(last, step)
    return step.relation is not None and (len(steps) == 1 or step.relation == last.relation)


def run_all() -> None:
    """Runs the steps that wait, of all threads; the cut's lock is held."""
    while _waiting:
        run(next(iter(_waiting)))


def run(local: Recorder) -> None:
    """Runs the steps of one thread that wait; the cut's lock is held."""
    steps, local.later = local.later, []
    _waiting.discard(local)
    for step in steps:
        step.recording.put_off = False
    if _run_together(local, steps):
        metrics.count("together", len(steps))
        return
    for step in steps:
        if not _run_alone(step):
            return  # those behind need it


def _run_alone(step: Step) -> bool:
    """Runs one step; whether its results are there."""
    arrays = [leaf.data for leaf in step.leaves]
    if any(array is None for array in arrays):
        return False
    entry, leaves = step.entry, step.leaves
    values, flags, how = tiers.run_entry(entry, leaves, arrays, step.scalars, donation.USED)
    return not deliver(step.roots, values, flags, checks_of(leaves), entry, how == "compiled")


def _run_together(local: Recorder, steps: list[Step]) -> bool:
    """Runs steps as one loop; False if there is none for them."""
    patience = PATIENCE.get(settings.batch_steps)
    if patience is None or len(steps) < patience.fewest:
        return False
    needed = set(local.recording.slots)
    alive = [step.alive() | needed.intersection(step.roots) for step in steps[:-1]]
    asked = set().union(*alive)
    kept = {k for step in steps[:-1] for k, node in enumerate(step.roots) if node in asked}
    if len(kept) * len(steps) > MAX_KEPT:
        return False
    first = steps[0].scalars
    equal = all(step.scalars == first for step in steps)
    program = _program(
        steps[0].entry,
        Form(len(steps), steps[1].relation or (), tuple(sorted(kept)), equal),
        patience,
    )
    if program is None:
        return False
    try:
        last, earlier = program.values(steps)
    except Exception as error:
        metrics.fallback(f"steps together: {type(error).__name__}")
        program.executable = None
        return False
    inherited = checks_of(steps[0].leaves)
    _deliver(steps[-1].roots, range(len(steps[-1].roots)), last, program, inherited)
    for step, values, asked in zip(steps, earlier, alive, strict=False):
        if asked:
            roots = [step.roots[k] for k in program.form.kept]
            _deliver(roots, program.form.kept, values, program, inherited, asked)
    return True


def _program(entry: Entry, form: Form, patience: Patience) -> Program | None:
    """The loop to run steps of a graph with; None if there is none yet."""
    programs = entry.history.programs
    program: Program | None = programs.get(form)
    if program is None:
        if len(programs) >= patience.programs:
            return None
        program = programs[form] = Program(entry, form)
    program.asked += 1
    if program.due is None:
        if program.asked < patience.sightings:
            return None
        program.due = entry.history.steps + patience.due
        policy = optimizer.current()
        compiling.background.call(lambda: program.compile(policy))
    if entry.history.steps < program.due:
        return None
    program.done.wait()
    return program if program.executable is not None else None


def _deliver(
    roots: list[Node],
    places: Sequence[int],
    values: Any,
    program: Program,
    inherited: dict[int, Check],
    asked: set[Node] | None = None,
) -> None:
    """Gives the roots of a step at some places their values; of those, the ones asked for."""
    flags = values[-1] if program.checked else None
    checks: list[Check | None] = [None] * len(roots)
    if inherited or flags is not None:
        of_all = checks_for(flags, inherited, program.dependencies, program.places)
        checks = [of_all[k] for k in places]
    if asked is None:
        give(roots, values[: len(roots)], checks, True)
        return
    chosen = [k for k, node in enumerate(roots) if node in asked]
    give([roots[k] for k in chosen], [values[k] for k in chosen], [checks[k] for k in chosen], True)
