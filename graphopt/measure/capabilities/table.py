"""The table of capabilities: what rewriting rests on, and what it may use where it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Capability:
    """One row.

    Attributes:
        name: appears in reports and in the store; its probe is the function of that name in
            `graphopt.measure.capabilities.probes`.
        needed: without it no module is rewritten.
        meaning: what holds where it is there, for people.
    """

    name: str
    needed: bool
    meaning: str


TABLE: Final = (
    Capability("hook", True, "XLA asks Python for every module"),
    Capability("platform", True, "the client of CPUs has the name that the hook is registered for"),
    Capability("identity", True, "a module may be handed back, as it is or written anew"),
    Capability(
        "in_place", True, "programs that write in place compute the same under any decisions"
    ),
    Capability("native_call", True, "a call with the attribute for small calls is one function"),
    Capability("entry_layout", True, "the layout of results is that of the returned module"),
    Capability("donation", False, "a program whose module was replaced keeps its donated buffers"),
)

PROBES: Final = 1
"""Raised with every change of a probe: what older probes found is tried anew."""

_REWRITING: Final = frozenset(row.name for row in TABLE if row.needed)

KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "0.10.2": _REWRITING,
    "0.11.2": _REWRITING | {"donation"},
    "0.12.0.1": _REWRITING | {"donation"},
}
"""jaxlib version -> what holds there: those that graphopt was tested with need no probes."""


@dataclass(frozen=True)
class Capabilities:
    """What holds under one jaxlib.

    Attributes:
        jaxlib: its version.
        holding: names of rows.
        known: the version has its row in `KNOWN`; otherwise the probes were run on this machine.
    """

    jaxlib: str
    holding: frozenset[str]
    known: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the needed rows that do not hold, in the order of the table."""
        return tuple(row.name for row in TABLE if row.needed and row.name not in self.holding)

    @property
    def sound(self) -> bool:
        """True if modules may be rewritten."""
        return not self.missing

    @property
    def donation(self) -> bool:
        """True if a rewritten module keeps its donated buffers."""
        return "donation" in self.holding

    def __str__(self) -> str:
        """A note for reports."""
        tried = f"jaxlib {self.jaxlib} is not one graphopt is tested with; it was tried in a child process"
        if self.missing:
            return f"{tried}, and {', '.join(self.missing)} did not hold: XLA's default stands"
        return tried
