"""Nodes while a graph is being built, before they have their place in the columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from graphopt.hlo.graph.collectives import meetings
from graphopt.hlo.graph.in_place import InPlaceAnalysis, Value
from graphopt.hlo.module.index import ComputationIndex, ModuleIndex
from graphopt.machine import UnitKind


@dataclass(slots=True)
class Draft:
    """A node while the graph is being built; operands are positions in `Drafts.drafts`."""

    opcode: str
    attributes: bytes
    proto: Any
    operands: tuple[int, ...]
    computation: int
    fused: bool
    kind: UnitKind = UnitKind.LOOP
    threads: int = 1
    config: bytes = b""
    called: tuple[int, ...] = ()
    bare: bool = False
    frozen: tuple[int, str] | None = None
    """(FROZEN_ROOT or FROZEN_FUSED, rule name) where in-place promises fix `fused`."""
    reads: frozenset[Value] = frozenset()
    alias: Value | None = None
    """For a bitcast: the buffer that it names, if its operand is in memory by default."""
    control: list[int] = field(default_factory=list)
    instances: list[tuple[int, int]] = field(default_factory=list)
    """(computation id, local id) of the instructions that became this node."""


@dataclass
class Drafts:
    """All drafts of a module.

    Attributes:
        module: that they were made from.
        analysis: its in-place promises.
        drafts: all, live or not.
        values: (computation id, local id) -> draft of the value in memory.
        order: per graph computation, its live drafts in final order.
        owners: per graph computation, its index entry.
    """

    module: ModuleIndex
    analysis: InPlaceAnalysis
    drafts: list[Draft] = field(default_factory=list)
    values: dict[tuple[int, int], int] = field(default_factory=dict)
    order: list[list[int]] = field(default_factory=list)
    owners: list[ComputationIndex] = field(default_factory=list)

    @cached_property
    def _meetings(self) -> dict[int, list[int]]:
        return meetings(self.module)

    def keep_meetings(self, computation: ComputationIndex) -> None:
        """Orders what waits for other devices in a computation whose drafts are made."""
        met = [self.values[computation.id, i] for i in self._meetings.get(computation.id, ())]
        for before, after in pairwise(met):
            self.drafts[after].control.append(before)
