"""Measuring this machine: every probe in a child process, within a time limit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from graphopt.machine import costs_for, own_kind, probe
from graphopt.measure.calibrating.probes import PROBES, Probe
from graphopt.measure.calibrating.result import Calibration, facts_of
from graphopt.measure.children.child import Child, ChildFailure

BUDGET_S: Final = 4.0
"""Seconds of measuring, beside the child's start; no probe begins later."""

PROBE_S: Final = 0.06
"""Seconds in which one probe calls its programs, beside compiling them."""

START_S: Final = 20.0
"""Longest start of a child: imports, on a busy machine."""

ANSWER_S: Final = 5.0
"""Longest time of one probe."""

MAX_CHILDREN: Final = 3
"""After so many have failed, the rest is left out."""

NO_TIME: Final = "its time is none"

READINGS: Final = 3
"""So often a probe is read that gave no time: a difference of two, while other programs took the cores."""

CHILD: Final = ("-m", "graphopt.measure.calibrating.child")

Tell = Callable[[str], None]
"""Told of progress, a line at a time."""


def calibrate(
    tell: Tell,
    *,
    budget_s: float = BUDGET_S,
    answer_s: float = ANSWER_S,
    arguments: Sequence[str] | None = None,
) -> Calibration:
    """Measures what matters most and is quickly measured; some five seconds.

    A probe that fails, kills its child or takes too long is left out, with a note.

    Args:
        tell: told of progress.
        budget_s: seconds of measuring; no probe begins later.
        answer_s: longest time of one probe.
        arguments: how the child is started, as for `Child`; by default `CHILD`.

    Raises:
        OSError: no process can be started.
    """
    start = time.perf_counter()
    run = _Run(tell, budget_s, answer_s, tuple(arguments or CHILD))
    try:
        for number, one in enumerate(PROBES):
            tell(f"measuring this machine: {one.name} ({number + 1} of {len(PROBES)})")
            run.ask(one)
    finally:
        run.close()
    seconds = time.perf_counter() - start
    kind = own_kind()
    measured = facts_of(run.readings, costs_for(probe(), kind.jaxlib))
    return Calibration(kind, measured, tuple(run.notes), seconds)


@dataclass
class _Run:
    """One calibration under way.

    Attributes:
        tell: told of progress.
        budget_s: seconds of measuring.
        answer_s: longest time of one probe.
        arguments: how a child is started.
        readings: so far: probe and nanoseconds.
        notes: so far.
        spent_s: seconds of measuring so far.
        children: started so far.
        child: the one that lives.
    """

    tell: Tell
    budget_s: float
    answer_s: float
    arguments: tuple[str, ...]
    readings: list[tuple[Probe, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spent_s: float = 0.0
    children: int = 0
    child: Child | None = None

    def ask(self, one: Probe) -> None:
        """Makes one measurement, or notes why not."""
        if self.spent_s >= self.budget_s:
            self.notes.append(f"{one.name}: not measured, the time was up")
            return
        if self.child is None and not self._start():
            self.notes.append(f"{one.name}: not measured, the child processes failed")
            return
        begin = time.perf_counter()
        try:
            for _ in range(READINGS):
                reading = self._reading(one.name, self.answer_s)
                if reading != NO_TIME:
                    break
        except ChildFailure as failure:
            self.close()
            reading = f"{failure.what} ({failure.kind})"
        self.spent_s += time.perf_counter() - begin
        if isinstance(reading, str):
            self.notes.append(f"{one.name}: not measured, {reading}")
            return
        self.readings.append((one, reading))

    def _start(self) -> bool:
        """Starts a child and waits until it has imported what it needs."""
        if self.children >= MAX_CHILDREN:
            return False
        self.children += 1
        self.child = Child(self.arguments, "calibration")
        try:
            self._reading("", START_S)
        except ChildFailure:
            self.close()
            self.children = MAX_CHILDREN  # the next one would not start either
            return False
        return True

    def _reading(self, name: str, limit_s: float) -> float | str:
        """The nanoseconds of a probe, or why there are none.

        Raises:
            ChildFailure: the child died, was too slow or answered rubbish.
        """
        assert self.child is not None
        line = self.child.ask(json.dumps({"probe": name, "seconds": PROBE_S}), limit_s)
        try:
            answer: Any = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and isinstance(answer.get("failed"), str):
            return str(answer["failed"])
        reading = answer.get("reading_ns") if isinstance(answer, dict) else None
        if isinstance(reading, bool) or not isinstance(reading, int | float):
            raise self.child.garbage(f"answered {line[:80]!r}")
        return float(reading) if 0.0 < reading < 1e15 else NO_TIME

    def close(self) -> None:
        """Ends the child."""
        child, self.child = self.child, None
        if child is not None:
            child.close()
