"""What a calibration has found, judged: plausible values, and which of them differ from the table's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphopt.machine import CpuCosts, MachineKind
from graphopt.machine.named_facts import fact_of, unit_of
from graphopt.measure.calibrating.probes import Probe

PLAUSIBLE: Final = 8.0
"""A fact that differs from the table's value by a larger factor is a mistake of the measurement."""

PACED: Final = 8
"""Fewer readings do not tell how fast the machine is in general."""


@dataclass(frozen=True, slots=True)
class MeasuredFact:
    """One fact.

    Attributes:
        name: see `graphopt.machine.named_facts`.
        unit: of both values.
        default: the table's value.
        value: the measured one.
        spread: a smaller ratio of the two is no difference.
    """

    name: str
    unit: str
    default: float
    value: float
    spread: float

    @property
    def ratio(self) -> float:
        """Measured over the table's value."""
        return self.value / self.default

    @property
    def plausible(self) -> bool:
        """False for a value that is refused."""
        return 1.0 / PLAUSIBLE <= self.ratio <= PLAUSIBLE

    @property
    def differs(self) -> bool:
        """True if the table's value does not hold on this machine."""
        return self.plausible and not 1.0 / self.spread < self.ratio < self.spread

    @property
    def note(self) -> str:
        """What becomes of it."""
        if not self.plausible:
            return f"refused: {PLAUSIBLE:g} times off and more"
        return "differs" if self.differs else ""


@dataclass(frozen=True)
class Calibration:
    """What was measured on one machine.

    Attributes:
        kind: of the machine.
        measured: facts, in the order of the probes.
        notes: why others are missing.
        seconds: that it took.
    """

    kind: MachineKind
    measured: tuple[MeasuredFact, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def facts(self) -> dict[str, float]:
        """Facts that differ from the table's: name -> value."""
        return {fact.name: fact.value for fact in self.measured if fact.differs}


def facts_of(readings: Sequence[tuple[Probe, float]], costs: CpuCosts) -> tuple[MeasuredFact, ...]:
    """The facts that readings tell of.

    Decisions rest on proportions of costs, and most facts have no probe: a machine on which everything is
    slower decides as the reference does. So each reading is compared with the pace of all.

    Args:
        readings: probe and nanoseconds, above 0.
        costs: of the row that holds; the reference machines have the default's.
    """
    slowness = [probe.slowness(reading_ns) for probe, reading_ns in readings]
    pace = statistics.median(slowness) if len(readings) >= PACED else 1.0
    made = []
    for (probe, _), slower in zip(readings, slowness, strict=True):
        for name in probe.facts:
            unit = unit_of(name)
            ratio = pace / slower if unit.endswith("per ns") else slower / pace
            value = ratio * fact_of(CpuCosts(), name)
            made.append(MeasuredFact(name, unit, fact_of(costs, name), value, probe.spread))
    return tuple(made)
