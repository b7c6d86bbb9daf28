"""What the network of advantages knows of every alternative under given decisions: a table of columns.

Only edits that change the decisions count, so that an alternative looks the same whether it is written out in
full or as what it changes. Sums over edits are parts of the program's estimated time where they are times.

Axis letters: N nodes, A alternatives, E edits that change something, K columns, F decision fields.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.decisions import FIELDS
from graphopt.machine import UnitKind
from graphopt.policy.advantages.node_columns import LIMIT, NodeFacts, log_of, ratio
from graphopt.policy.alternatives.alternative import KINDS
from graphopt.policy.alternatives.table import AlternativeTable, Values

SEVERAL: Final = "several"
"""Kind of a combination of alternatives."""

KIND_NAMES: Final = (SEVERAL, *(kind.name for kind in KINDS if kind.name != SEVERAL))
"""Rows of the embedding of kinds; the first also stands for kinds that a checkpoint does not know."""

_KIND_ROW: Final = {name: row for row, name in enumerate(KIND_NAMES)}

_WAYS: Final = ("one_core", "several_cores", UnitKind.LIBRARY, UnitKind.RUNTIME, UnitKind.NATIVE)
"""Ways to compute a kernel: the loop generator on one core and on several, and the other units."""

_EFFECTS: Final = (
    "writes", "fuses", "separates", "joins", *(f"to_{way}" for way in _WAYS), "restores", "replaces",
)  # fmt: skip
"""What an edit does."""

_SUMS: Final = ("work", "dispatch", "moved", "recomputed", "parallel")
"""Times that are summed over edits: computing the nodes, dispatching them as kernels, moving what they write,
computing them once more for every further user, and what a second core saves."""

ALTERNATIVE_COLUMNS: Final = (
    "share", "log_share", "once", "once_per_dispatch", "once_per_handover", "executions", "edits", "code",
    "expected", "site_native",
    *_EFFECTS, *(f"from_{way}" for way in _WAYS),
    *(f"{name}_share" for name in _SUMS), *(f"{name}_log_share" for name in _SUMS),
)  # fmt: skip
"""All columns: of its estimated time, of its size, then means over edits, then sums over edits."""

_PER_EDIT: Final = len(_EFFECTS) + len(_WAYS)


def kind_rows(table: AlternativeTable) -> NDArray[np.int32]:
    """int32 [A]; row of `KIND_NAMES` of every alternative."""
    return np.array([_KIND_ROW.get(row.kind, 0) for row in table.rows], np.int32)


def log_share(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Parts of the program's time on a logarithmic scale, 1 for all of it and -1 for a ten-thousandth."""
    out: NDArray[np.float64] = np.log10(np.maximum(values, 0.0) + 1e-4) / 2.0 + 1.0
    return out


class AlternativeColumns:
    """Columns of one graph's alternatives; what no decision changes is computed once.

    Attributes:
        table: the alternatives.
    """

    def __init__(self, table: AlternativeTable, facts: NodeFacts) -> None:
        """Writes the columns that never change."""
        self.table = table
        graph, costs = table.graph, facts.model.costs
        executions = graph.executions
        once = table.weight / np.maximum(executions[np.maximum(table.node, 0)], 1e-9)
        share = np.minimum(table.weight / facts.program_ns, 1.0)
        native = np.where(table.node >= 0, facts.native_ratio[np.maximum(table.node, 0)], 0.0)
        self._fixed = np.stack(
            [
                share, log_share(share), log_of(once, 8), ratio(once, costs.thunk_ns),
                ratio(once, costs.handover_ns),
                log_of(executions[np.maximum(table.node, 0)], 8),
            ],
            axis=1,
        )  # fmt: skip
        self._native, self._expected = native, share * native
        self._code = facts.code
        self._own_code = facts.model.own_code
        self._ways = _unit_ways(table)
        scale = executions / facts.program_ns
        users = np.maximum(facts.users, 1)
        moved = graph.nbytes * (1.0 + users) / costs.bytes_per_ns
        cores = max(facts.model.cores, 1)
        self._times = np.stack(
            [
                facts.work * scale, costs.thunk_ns * scale, moved * scale,
                facts.evaluated * (users - 1) * scale,
                (facts.work * (1.0 - 1.0 / cores) - costs.handover_ns) * scale,
            ],
            axis=1,
        )  # fmt: skip

    def under(
        self, flat: Values, rows: NDArray[np.int64], at: NDArray[np.int64], value: Values
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The alternatives that change something, int64 [A], and their columns, float32 [A, K].

        Args:
            flat: int16 [F * N]; the decisions.
            rows: int64 [E]; alternative of each edit, ascending.
            at: int64 [E]; where it writes into `flat`.
            value: int16 [E]; what.
        """
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        owners = rows[starts]
        if not len(owners):
            return owners, np.zeros((0, len(ALTERNATIVE_COLUMNS)), np.float32)
        nodes = at % len(self.table.graph)
        per_edit = self._per_edit(flat, at, value, nodes)
        sums = np.add.reduceat(per_edit, starts, axis=0)
        counts = np.diff(np.append(starts, len(rows)))
        code = sums[:, -1]
        means = sums[:, :_PER_EDIT] / counts[:, None]
        times = sums[:, _PER_EDIT:-1]
        size = np.stack(
            [
                log_of(counts, 4), log_of(code, 6), self._expected[owners], self._native[owners]
            ],
            axis=1,
        )  # fmt: skip
        columns = np.concatenate(
            [self._fixed[owners], size, means, np.clip(times, -1.0, 1.0), log_share(times)], axis=1
        )
        np.clip(columns, -LIMIT, LIMIT, out=columns)
        return owners, columns.astype(np.float32)

    def _per_edit(
        self, flat: Values, at: NDArray[np.int64], value: Values, nodes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """float64 [E, effects + ways + sums + 1]; what is averaged or summed over an alternative's edits."""
        count = len(self.table.graph)
        field = at // count
        out = np.zeros((len(at), _PER_EDIT + len(_SUMS) + 1))
        places = np.arange(len(at))
        new = value.astype(np.intp)
        is_unit = field == _FIELD["unit"]
        effect = new > 0
        effect = effect + _FIRST_EFFECT[field]
        effect[is_unit] = _FIRST_EFFECT[_FIELD["unit"]] + self._ways[new[is_unit]]
        out[places, effect] = 1.0
        now = self._ways[flat[at[is_unit]].astype(np.intp)]
        out[places[is_unit], len(_EFFECTS) + now] = 1.0
        out[:, _PER_EDIT:-1] = self._times[nodes]
        out[:, -1] = self._code[nodes]
        return out


_FIELD: Final = {name: index for index, name in enumerate(FIELDS)}

_FIRST_EFFECT: Final = np.array(
    [
        {
            "fuse": _EFFECTS.index("writes"), "join": _EFFECTS.index("separates"),
            "unit": _EFFECTS.index("to_one_core"), "restructure": _EFFECTS.index("restores"),
        }[name]
        for name in FIELDS
    ]
)  # fmt: skip
"""First effect of each decision field: of its value 0, or of the first way."""


def _unit_ways(table: AlternativeTable) -> NDArray[np.int64]:
    """int64 [U]; index of `_WAYS` of every execution unit."""
    return np.array(
        [
            int(unit.threads > 1) if unit.kind is UnitKind.LOOP else _WAYS.index(unit.kind)
            for unit in table.graph.units
        ],
        np.int64,
    )
