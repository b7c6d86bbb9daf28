"""The decision space as the network sees it: one row per field, values described by features.

A head scores the values of a field by their features, never by their position, so that a machine with
more cores (more values of `unit`) needs no other network. Values of the other fields are told apart by
position, up to `MAX_PLAIN_VALUES`. What a network has no column for (rows of `restructure` beyond) is masked
for it: it never chooses such a value, and leaves one that the start chose.


Axis letters: N nodes, V values of a field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.restructure import REPLACES
from graphopt.machine import Unit, UnitKind

MAX_PLAIN_VALUES: Final = 16
"""Values of a field that are told apart by position (bits and short enumerations)."""

_KINDS: Final = tuple(UnitKind)

VALUE_FEATURES: Final = (
    *(f"value_{index}" for index in range(MAX_PLAIN_VALUES)),
    *(f"kind_{kind.value}" for kind in _KINDS),
    "log_threads",
    "threads_per_core",
    "is_parallel",
)
"""Columns of a value description: one-hot position for plain fields, unit properties for `unit`."""

_ORDER: Final = {"fuse": 0, "restructure": 1, "join": 2, "unit": 3}
"""Order of decoding: what is computed together first, where it runs last."""

_ROOTS_ONLY: Final = frozenset({"join", "unit"})
"""Fields that mean something only where a value is written to memory."""

DECODED: Final = tuple(sorted(FIELDS, key=lambda name: _ORDER.get(name, len(_ORDER))))
"""`FIELDS` in the order in which the network decides them."""


@dataclass(frozen=True, eq=False)
class FieldInput:
    """One decision field of one graph.

    Attributes:
        name: the field's name in `Decisions`.
        mask: bool [N, V]; True = allowed.
        start: int64 [N]; the value that the policy starts from, the heuristic's.
        values: float32 [V, len(VALUE_FEATURES)]; what each value means.
        roots_only: the field counts only where `fuse` is 0.
    """

    name: str
    mask: NDArray[np.bool_]
    start: NDArray[np.int64]
    values: NDArray[np.float32]
    roots_only: bool

    @property
    def free(self) -> NDArray[np.bool_]:
        """bool [N]; True where at least two values are allowed."""
        return np.asarray(self.mask.sum(axis=1) > 1)


def field_inputs(graph: Graph, start: Decisions) -> tuple[FieldInput, ...]:
    """All fields of a graph, in decoding order.

    Args:
        graph: of the program.
        start: what the policy starts from; inside the masks.
    """
    out = []
    for name in DECODED:
        mask = getattr(graph.masks, name)
        if name == "restructure":
            mask = _replacements(mask, start)
        values = unit_values(graph.units) if name == "unit" else plain_values(mask.shape[1])
        here = getattr(start, name).astype(np.int64)
        out.append(FieldInput(name, mask, here, values, name in _ROOTS_ONLY))
    return tuple(out)


def _replacements(mask: NDArray[np.bool_], start: Decisions) -> NDArray[np.bool_]:
    """bool [N, V]; the network only replaces operations, by rows that it has a column for.

    How a kernel is written stays as at the start, and so does what was replaced by another row.
    """
    known = np.arange(mask.shape[1]) < MAX_PLAIN_VALUES
    kept = ~(REPLACES & known)[start.restructure]
    out = mask & REPLACES & known
    out[kept] = False
    out[kept, start.restructure[kept]] = True
    return out


def plain_values(count: int) -> NDArray[np.float32]:
    """Descriptions of the values of a bit or an enumeration, float32 [V, features]; 0 beyond the columns."""
    out = np.zeros((count, len(VALUE_FEATURES)), np.float32)
    known = np.arange(min(count, MAX_PLAIN_VALUES))
    out[known, known] = 1.0
    return out


def unit_values(units: tuple[Unit, ...]) -> NDArray[np.float32]:
    """Descriptions of execution units, float32 [U, features]."""
    out = np.zeros((len(units), len(VALUE_FEATURES)), np.float32)
    cores = max(unit.threads for unit in units)
    for row, unit in zip(out, units, strict=True):
        row[MAX_PLAIN_VALUES + _KINDS.index(unit.kind)] = 1.0
        row[-3:] = math.log2(unit.threads) / 4.0, unit.threads / cores, float(unit.threads > 1)
    return out
