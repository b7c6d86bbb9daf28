"""The decision space as the network sees it: one row per field, values described by features.

A head scores the values of a field by their features, never by their position, so that a machine with
more cores (more values of `unit`) needs no other network. Values of bits are told apart by position, rows
of `restructure` by name: a network has up to `MAX_PLAIN_VALUES` columns for rows, and says for which, and
with which it was trained (`KnownRows`). Other rows are masked for it: it never chooses one, and leaves those
that the start chose.
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
from graphopt.hlo.restructure import CODE, REPLACES, RESTRUCTURES
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


NETWORK_ROWS: Final = tuple(row.name for row in RESTRUCTURES if row.replaces)[:MAX_PLAIN_VALUES]
"""Rows of `restructure` that a new network decides; those that only say how a kernel is written it leaves."""


@dataclass(frozen=True)
class KnownRows:
    """Which rows of `restructure` a network can tell apart, and which it may choose.

    Attributes:
        columns: names of the rows that have a column, by column; ``keep`` first.
        trained: those that it was trained with; it chooses no others.
    """

    columns: tuple[str, ...] = NETWORK_ROWS
    trained: tuple[str, ...] = NETWORK_ROWS

    def codes(self) -> NDArray[np.int64]:
        """int64 [R]; the column of each row of this graphopt's table, -1 where it has none."""
        column = {name: index for index, name in enumerate(self.columns)}
        return np.array([column.get(name, -1) for name in CODE], np.int64)

    def choosable(self) -> NDArray[np.bool_]:
        """bool [R]; rows of this graphopt's table that the network may choose."""
        return np.array([name in self.trained for name in CODE]) & REPLACES


ALL_ROWS: Final = KnownRows()
"""What a network that this graphopt trains knows."""


@dataclass(frozen=True, eq=False)
class FieldInput:
    """One decision field of one graph.

    Attributes:
        name: the field's name in `Decisions`.
        mask: bool [N, V]; True = allowed.
        start: int64 [N]; the value that the policy starts from, the heuristic's.
        values: float32 [V, len(VALUE_FEATURES)]; what each value means.
        roots_only: the field counts only where `fuse` is 0.
        choice: bool [N]; what the network is told of the choice: values that it has columns for count, also
            those that it was not trained to choose.
    """

    name: str
    mask: NDArray[np.bool_]
    start: NDArray[np.int64]
    values: NDArray[np.float32]
    roots_only: bool
    choice: NDArray[np.bool_]

    @property
    def free(self) -> NDArray[np.bool_]:
        """bool [N]; True where at least two values are allowed."""
        return np.asarray(self.mask.sum(axis=1) > 1)


def field_inputs(
    graph: Graph, start: Decisions, rows: KnownRows = ALL_ROWS
) -> tuple[FieldInput, ...]:
    """All fields of a graph, in decoding order.

    Args:
        graph: of the program.
        start: what the policy starts from; inside the masks.
        rows: what the network knows of `restructure`.
    """
    out = []
    for name in DECODED:
        mask = wide = getattr(graph.masks, name)
        if name == "restructure":
            columns = rows.codes()
            wide = _replacements(mask, start, REPLACES & (columns >= 0))
            mask = _replacements(mask, start, rows.choosable())
            values = plain_values(columns)
        elif name == "unit":
            values = unit_values(graph.units)
        else:
            values = plain_values(np.arange(mask.shape[1]))
        here = getattr(start, name).astype(np.int64)
        choice = np.asarray(wide.sum(axis=1) > 1)
        out.append(FieldInput(name, mask, here, values, name in _ROOTS_ONLY, choice))
    return tuple(out)


def _replacements(
    mask: NDArray[np.bool_], start: Decisions, choosable: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """bool [N, R]; the network only replaces operations, by rows that it may choose.

    How a kernel is written stays as at the start, and so does what was replaced by another row.
    """
    kept = ~choosable[start.restructure]
    out = mask & choosable
    out[kept] = False
    out[kept, start.restructure[kept]] = True
    return out


def plain_values(columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """Descriptions of values told apart by column, float32 [V, features].

    Args:
        columns: int64 [V]; the column of each value, -1 for one that has none: it is described by zeros.
    """
    out = np.zeros((len(columns), len(VALUE_FEATURES)), np.float32)
    known = np.flatnonzero(columns >= 0)
    out[known, columns[known]] = 1.0
    return out


def unit_values(units: tuple[Unit, ...]) -> NDArray[np.float32]:
    """Descriptions of execution units, float32 [U, features]."""
    out = np.zeros((len(units), len(VALUE_FEATURES)), np.float32)
    cores = max(unit.threads for unit in units)
    for row, unit in zip(out, units, strict=True):
        row[MAX_PLAIN_VALUES + _KINDS.index(unit.kind)] = 1.0
        row[-3:] = math.log2(unit.threads) / 4.0, unit.threads / cores, float(unit.threads > 1)
    return out
