"""One alternative at one site: values for a few decisions, with everything that the choice entails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from graphopt.errors import ConfigError
from graphopt.hlo import RESTRUCTURES, Decisions
from graphopt.hlo.graph.decisions import FIELDS

Edit = tuple[str, int, int]
"""Field of `Decisions`, node, value."""


class When(IntEnum):
    """Where a choice has an effect at all, beyond differing from the decisions at hand."""

    ALWAYS = 0
    WRITTEN = 1
    """The node's value is written to memory."""
    OUTSIDE = 2
    """The node is inside no native loop."""
    KERNEL = 3
    """Both: the node is the root of a kernel of its own."""


@dataclass(frozen=True)
class Kind:
    """One row of the table of kinds.

    Attributes:
        name: for reports, records and the columns of policies.
        site: ``program``, ``loop``, ``run``, ``kernel``, ``value`` or ``operation``.
        when: where it has an effect.
    """

    name: str
    site: str
    when: When = When.ALWAYS


KINDS: Final[tuple[Kind, ...]] = (
    Kind("stop", "program"),
    Kind("loop native", "loop", When.OUTSIDE),
    Kind("loop not native", "loop", When.OUTSIDE),
    Kind("run native", "run", When.OUTSIDE),
    Kind("short run native", "run", When.OUTSIDE),
    Kind("run not native", "run", When.OUTSIDE),
    Kind("kernel on one core", "kernel", When.KERNEL),
    Kind("kernel split", "kernel", When.KERNEL),
    Kind("kernel library", "kernel", When.KERNEL),
    Kind("kernel runtime", "kernel", When.KERNEL),
    Kind("kernel native", "kernel", When.KERNEL),
    Kind("value in memory", "value"),
    Kind("value fused", "value"),
    Kind("join", "value", When.KERNEL),
    Kind("no join", "value", When.KERNEL),
    Kind("as it is", "operation"),
    Kind(
        "several", "program"
    ),  # what others are combined to, in experiments; no generator offers it
    *(Kind(row.name, "operation") for row in RESTRUCTURES[1:]),
)
"""All kinds. New ones that are no rows of the table of restructures go behind the last such."""

FIRST_ROW: Final = 32
"""Codes below are for kinds of their own, the others for rows of the table of restructures."""

_ROWS: Final = {row.name: FIRST_ROW + code for code, row in enumerate(RESTRUCTURES) if code}

KIND_CODE: Final[dict[str, int]] = {
    kind.name: _ROWS.get(kind.name, place) for place, kind in enumerate(KINDS)
}
"""Name of a kind -> its code, which stays when kinds or rows are added."""

KIND: Final[dict[str, Kind]] = {kind.name: kind for kind in KINDS}
"""Name of a kind -> its row."""


@dataclass(frozen=True)
class Alternative:
    """What may be done at one site.

    Attributes:
        kind: name of a row of `KINDS`.
        node: the site: the loop, the root of the kernel, the value, or the first kernel of a run; -1 for
            the program.
        edits: values of decisions, all inside the masks; none for STOP.
        weight: estimated nanoseconds per run of the program that it is about.
    """

    kind: str
    node: int
    edits: tuple[Edit, ...]
    weight: float = 0.0

    @property
    def name(self) -> str:
        """For reports."""
        return self.kind if self.node < 0 else f"{self.kind}, node {self.node}"

    def changes(self, decisions: Decisions) -> tuple[Edit, ...]:
        """The edits that differ from what was decided; none if it is done already."""
        return tuple(e for e in self.edits if getattr(decisions, e[0])[e[1]] != e[2])


STOP: Final = Alternative("stop", -1, ())
"""Nothing more is changed."""


def apply(decisions: Decisions, alternatives: Iterable[Alternative]) -> Decisions:
    """A copy of decisions with some alternatives chosen, later ones last.

    Raises:
        ConfigError: an alternative names a node that the decisions do not have.
    """
    out = decisions.copy()
    for alternative in alternatives:
        for field, node, value in alternative.edits:
            if not 0 <= node < len(out):
                raise ConfigError(
                    what=f"{alternative.name} changes node {node} of {len(out)}",
                    where="alternatives",
                    fix="Take the alternatives of the graph that the decisions belong to.",
                )
            getattr(out, field)[node] = value
    return out


def difference(before: Decisions, after: Decisions) -> tuple[Edit, ...]:
    """The edits that lead from one decision vector to another of the same graph."""
    edits: list[Edit] = []
    for field in FIELDS:
        old, new = getattr(before, field), getattr(after, field)
        edits += [(field, node, int(new[node])) for node in np.flatnonzero(old != new).tolist()]
    return tuple(edits)
