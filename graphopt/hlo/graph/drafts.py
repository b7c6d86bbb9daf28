"""Nodes while a graph is being built, before they have their place in the columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from graphopt.hlo.graph.buffers import Value
from graphopt.hlo.graph.collectives import meetings
from graphopt.hlo.graph.in_place import InPlaceAnalysis
from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex
from graphopt.machine import UnitKind


@dataclass(slots=True)
class Draft:
    """A node while the graph is being built; operands are positions in `Drafts.drafts`."""

    opcode: str
    instruction: Instruction
    operands: tuple[int, ...]
    computation: int
    fused: bool
    keep_config: bool = False
    """The ``backend_config`` is one of the node's own attributes, not that of a cluster."""
    kind: UnitKind = UnitKind.LOOP
    threads: int = 1
    config: bytes = b""
    called: tuple[int, ...] = ()
    bare: bool = False
    frozen: tuple[int, str] | None = None
    """(FROZEN_ROOT or FROZEN_FUSED, rule name) where in-place promises fix `fused`."""
    reads: frozenset[Value] = frozenset()
    control: list[int] = field(default_factory=list)
    instances: list[tuple[int, int]] = field(default_factory=list)
    """(computation id, local id) of the instructions that became this node."""

    @property
    def attributes(self) -> bytes:
        """See `Instruction.attributes`."""
        return self.instruction.attributes(self.keep_config)


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
