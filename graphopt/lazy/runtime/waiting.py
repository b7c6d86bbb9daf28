"""Callers that wait for each result of a graph: its program is compiled to run on their thread.

Whoever observes a value sleeps until a worker has computed it. Waking both takes longer than many a program
does. A caller that does not wait goes on with its own work meanwhile, so this depends on how a graph is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.lazy.runtime.trace import Plan

WAITED_BEFORE: Final = 2
"""Runs in a row, the one under way included, after which a graph is compiled for callers that wait."""

REPEATS: Final = 16
"""Runs in a row of the other kind, after which a compiled graph is compiled anew."""

MAX_CHANGES: Final = 2
"""Times that a graph is compiled anew for this."""

MAX_ELEMENTS: Final = 1 << 16
"""Elements computed by graphs that may be compiled anew: larger ones take longer than to wake a worker."""

ASYNCHRONOUS: Final = frozenset(
    ("sync", "eval", "step", "round", "trace limit", "to_jax", "to_device")
)
"""Causes of cuts after which a caller goes on; others are observations."""


@dataclass
class Waiting:
    """Whether callers wait for the results of one graph.

    Attributes:
        row: runs in a row that were waited for; minus their number if they were not.
        compiled: the program was compiled for callers that wait.
        changes: times that the graph was compiled anew for this.
    """

    row: int = 0
    compiled: bool = False
    changes: int = 0

    def count(self, cause: str) -> None:
        """Counts a run by the cause of its cut."""
        if cause in ASYNCHRONOUS:
            self.row = self.row - 1 if self.row < 0 else -1
        else:
            self.row = self.row + 1 if self.row > 0 else 1

    @property
    def wanted(self) -> bool:
        """A program compiled now is one for callers that wait."""
        return self.row >= WAITED_BEFORE

    def changes_now(self, plan: Plan) -> bool:
        """Whether a graph compiled for the other kind is compiled anew; looked at `MAX_CHANGES` times."""
        if abs(self.row) < REPEATS or self.changes >= MAX_CHANGES:
            return False
        self.changes += 1
        return sum(step.instr.aval.size for step in plan.steps) <= MAX_ELEMENTS
