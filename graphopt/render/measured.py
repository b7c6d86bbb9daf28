"""What was measured of a program: whole runs in turn, and the lines of source that changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from graphopt.hlo.graph.source_lines import SourceLine
from graphopt.measure.comparing.timing import Comparison
from graphopt.measure.line_times import LineTime
from graphopt.outcomes import ModuleRecord
from graphopt.render.parts import time_text

MAX_LINES: Final = 8
"""Lines of source that the text shows."""


@dataclass(frozen=True)
class LineChange:
    """One line of source, before and after.

    Attributes:
        line: the user's line; None for loops, dispatch, and what has no line.
        before_s: seconds per run of the program by XLA's default.
        after_s: seconds per run of the rewritten program.
        before_kernels: calls of kernels per run by XLA's default.
        after_kernels: calls of kernels and native functions of the rewritten program.
    """

    line: SourceLine | None
    before_s: float
    after_s: float
    before_kernels: float
    after_kernels: float

    def __str__(self) -> str:
        """``step.py:12: 1.2 ms, 8000 kernels -> 0.2 ms, 1 kernel   x = x + dt * v``."""
        place = str(self.line) if self.line else "loops and dispatch"
        before, after = (
            f"{time_text(seconds)}{_kernels(kernels)}"
            for seconds, kernels in (
                (self.before_s, self.before_kernels),
                (self.after_s, self.after_kernels),
            )
        )
        text = self.line.text if self.line else ""
        return f"{place}: {before} -> {after}{'   ' + text[:60] if text else ''}"


@dataclass(frozen=True)
class Measured:
    """A program by XLA's default and as `graphopt.install` has it, run in turn on its arguments.

    Attributes:
        times: whole runs.
        equal: results agree to rounding.
        relative: largest relative difference of the results.
        records: what became of each module.
        lines: of source, the largest change first; empty where no run was profiled.
    """

    times: Comparison
    equal: bool
    relative: float
    records: tuple[ModuleRecord, ...]
    lines: tuple[LineChange, ...] = ()

    def text(self) -> list[str]:
        """Lines of text: the ratio first, then what became of modules and of source lines."""
        times = self.times
        equal = "results equal" if self.equal else "RESULTS DIFFER"
        out = [
            f"measured: {time_text(times.baseline_s)} -> {time_text(times.candidate_s)}, "
            f"{times.speedup:.2f}x (95 % interval {times.low:.2f}-{times.high:.2f}, "
            f"{times.pairs} pairs); {equal}, largest relative difference {self.relative:.1e}"
        ]
        out += [f"  {record}" for record in self.records]
        if self.lines:
            out.append("by line of source, one profiled run of each:")
            out += [f"  {line}" for line in self.lines[:MAX_LINES]]
        return out

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "default_s": self.times.baseline_s,
            "chosen_s": self.times.candidate_s,
            "speedup": self.times.speedup,
            "interval": [self.times.low, self.times.high],
            "pairs": self.times.pairs,
            "equal": self.equal,
            "max_rel_err": self.relative,
            "modules": [str(record) for record in self.records],
            "lines": [
                {
                    "line": str(change.line) if change.line else None,
                    "source": change.line.text if change.line else "",
                    "default_s": change.before_s,
                    "chosen_s": change.after_s,
                    "default_kernels": change.before_kernels,
                    "chosen_kernels": change.after_kernels,
                }
                for change in self.lines
            ],
        }


def line_changes(before: Iterable[LineTime], after: Iterable[LineTime]) -> tuple[LineChange, ...]:
    """Lines of two profiles side by side, the largest change first."""
    sides = [{time.line: time for time in times} for times in (before, after)]
    changes = []
    for line in dict.fromkeys([*sides[0], *sides[1]]):
        old, new = (side.get(line, LineTime(line, 0.0, 0.0)) for side in sides)
        changes.append(LineChange(line, old.seconds, new.seconds, old.kernels, new.kernels))
    return tuple(sorted(changes, key=lambda change: -abs(change.before_s - change.after_s)))


def _kernels(count: float) -> str:
    if not count:
        return ""
    return f", {count:,.0f} kernels" if round(count) > 1 else ", 1 kernel"
