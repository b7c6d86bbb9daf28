"""What a step of the heuristic is: a row of its table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit


def limit(value: float, unit: str, meaning: str) -> Any:
    """A field of a step's limits: a judgement, with what it means, for the code and the documents."""
    return dataclasses.field(default=value, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True)
class Step:
    """One row of the heuristic's table.

    Attributes:
        name: for reports, searches and `after`.
        summary: what it does and why, one sentence.
        apply: looks at a context, changes nothing, and returns an edit or None.
        after: names of steps whose decisions it builds on; they stand above it in the table.
        min_saved_ns: what its edit must save per run of the program; with `min_saved_share` of None the
            step judges every change by itself.
        min_saved_share: part of the program's time that its edit must save.
        limits: its judgements, a dataclass with a default for every field; None if it has none.
    """

    name: str
    summary: str
    apply: Callable[[Context], Edit | None]
    after: tuple[str, ...] = ()
    min_saved_ns: float = 0.0
    min_saved_share: float | None = None
    limits: Any = None

    def thresholds(self) -> Iterator[tuple[str, float, str, str]]:
        """(name, value, unit, meaning) of everything that was judged, not measured."""
        if self.min_saved_share is not None:
            yield "min_saved_ns", self.min_saved_ns, "ns", "what the edit must save per run"
            yield (
                "min_saved_share",
                self.min_saved_share,
                "of the program",
                "part of its time, likewise",
            )
        for field in () if self.limits is None else dataclasses.fields(self.limits):
            value = getattr(self.limits, field.name)
            yield field.name, value, field.metadata["unit"], field.metadata["meaning"]

    def least_ns(self, program_ns: float) -> float:
        """What an edit must save in a program that takes so long; less than nothing if it judges itself."""
        if self.min_saved_share is None:
            return -np.inf
        return max(self.min_saved_ns, self.min_saved_share * program_ns)


@dataclass(frozen=True)
class Applied:
    """A step that changed something.

    Attributes:
        step: its name.
        edit: what it changed, what it found and what it expected to save.
    """

    step: str
    edit: Edit

    def __str__(self) -> str:
        """One line for reports."""
        edit = self.edit
        return f"{self.step}: {edit.reason} ({edit.nodes} nodes, {edit.saved_ns / 1e3:.1f} us expected)"
