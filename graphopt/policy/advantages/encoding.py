"""A graph with its alternatives as arrays for the network: once per graph, and anew for every state.

Axis letters: N nodes, E operand edges, C computations, A alternatives that change something, K edits of them;
S, D and G columns of nodes, of their state and of the program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.model import CostModel
from graphopt.hlo import Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.machine import Machine, UnitKind, probe
from graphopt.policy.advantages.alternative_columns import AlternativeColumns, kind_rows
from graphopt.policy.advantages.node_columns import (
    STATE_COLUMNS,
    NodeFacts,
    dtype_rows,
    node_table,
    program_row,
)
from graphopt.policy.alternatives.table import AlternativeTable, Values

_UNITS = (UnitKind.LOOP, UnitKind.LIBRARY, UnitKind.RUNTIME, UnitKind.NATIVE)
_UNIT_AT = STATE_COLUMNS.index("runs_loop")


@dataclass(frozen=True, eq=False)
class GraphInput:
    """What no decision changes.

    Attributes:
        numeric: float32 [N, S]; columns of `NODE_COLUMNS`.
        opcode: int32 [N]; row of `OP_NAMES`.
        dtype: int32 [N]; row of `DTYPE_NAMES`.
        senders: int32 [E]; the operand of each edge.
        receivers: int32 [E]; its user, ascending.
        computation: int32 [N]; the computation of each node, ascending.
        caller: int32 [C]; node that calls the computation, -1 for the entry.
        share: float32 [N]; part of the estimated time, sums to 1.
        program: float32 [G]; columns of `PROGRAM_COLUMNS`.
    """

    numeric: NDArray[np.float32]
    opcode: NDArray[np.int32]
    dtype: NDArray[np.int32]
    senders: NDArray[np.int32]
    receivers: NDArray[np.int32]
    computation: NDArray[np.int32]
    caller: NDArray[np.int32]
    share: NDArray[np.float32]
    program: NDArray[np.float32]

    def __len__(self) -> int:
        """Number of nodes N."""
        return len(self.opcode)


@dataclass(frozen=True, eq=False)
class StateInput:
    """One state: what the decisions are, and what may be done about them.

    Attributes:
        state: float32 [N, D]; columns of `STATE_COLUMNS`.
        rows: int64 [A]; which alternative of the table each one is; STOP is none of them.
        numeric: float32 [A, columns]; columns of `ALTERNATIVE_COLUMNS`.
        kind: int32 [A]; row of `KIND_NAMES`.
        site: int32 [A]; the node where it is, or the first that it changes.
        edit_row: int32 [K]; place in `rows` of each edit's alternative, ascending, each at least once.
        edit_node: int32 [K]; the node that it changes.
    """

    state: NDArray[np.float32]
    rows: NDArray[np.int64]
    numeric: NDArray[np.float32]
    kind: NDArray[np.int32]
    site: NDArray[np.int32]
    edit_row: NDArray[np.int32]
    edit_node: NDArray[np.int32]

    def __len__(self) -> int:
        """Number of alternatives A."""
        return len(self.rows)


class Encoder:
    """Encodes one graph; states of it share what does not change.

    Attributes:
        table: the graph's alternatives.
        graph: `GraphInput` of it.
    """

    def __init__(
        self,
        table: AlternativeTable,
        model: CostModel | None = None,
        machine: Machine | None = None,
    ) -> None:
        """Writes the columns that never change.

        Args:
            table: alternatives of a graph.
            model: the graph's costs, if they are known already.
            machine: whose caches count; this one if None.
        """
        source = table.graph
        model = CostModel(source) if model is None else model
        facts = NodeFacts(source, model, probe() if machine is None else machine)
        self.table = table
        self._columns = AlternativeColumns(table, facts)
        self._kind = kind_rows(table)
        self._default = table.flat(source.default)
        self._unit_columns = np.array([_UNITS.index(u.kind) for u in source.units]) + _UNIT_AT
        self._split = np.array([unit.threads > 1 for unit in source.units], np.float32)
        counts = np.diff(source.operand_start)
        self.graph = GraphInput(
            numeric=node_table(facts),
            opcode=source.opcode.astype(np.int32) + 1,
            dtype=dtype_rows(source),
            senders=source.operands,
            receivers=np.repeat(np.arange(len(source), dtype=np.int32), counts),
            computation=source.computation.astype(np.int32),
            caller=np.array(
                [-1 if c.caller is None else c.caller for c in source.computations], np.int32
            ),
            share=facts.share.astype(np.float32),
            program=program_row(facts),
        )

    def state(self, flat: Values) -> StateInput:
        """The state of some decisions.

        Args:
            flat: int16 [F * N]; see `AlternativeTable.flat`.
        """
        table, count = self.table, len(self.table.graph)
        rows, at, value = table.changes(flat)
        there = table.available(flat)[rows]
        rows, at, value = rows[there], at[there], value[there]
        owners, numeric = self._columns.under(flat, rows, at, value)
        nodes = (at % count).astype(np.int32)
        firsts = nodes[np.flatnonzero(np.diff(rows, prepend=-1))]
        site = table.node[owners]
        return StateInput(
            state=self._state(flat),
            rows=owners,
            numeric=numeric,
            kind=self._kind[owners],
            site=np.where(site >= 0, site, firsts).astype(np.int32),
            edit_row=np.searchsorted(owners, rows).astype(np.int32),
            edit_node=nodes,
        )

    def _state(self, flat: Values) -> NDArray[np.float32]:
        """float32 [N, D]; see `STATE_COLUMNS`."""
        graph: Graph = self.table.graph
        count = len(graph)
        now = {field: flat[i * count : (i + 1) * count] for i, field in enumerate(FIELDS)}
        out = np.zeros((count, len(STATE_COLUMNS)), np.float32)
        written = now["fuse"] == 0
        out[:, 0] = ~written
        out[:, 1] = now["join"] > 0
        unit = now["unit"].astype(np.intp)
        out[np.arange(count), self._unit_columns[unit]] = written
        out[:, _UNIT_AT + 4] = self._split[unit] * written
        out[:, _UNIT_AT + 5] = now["restructure"] > 0
        out[:, _UNIT_AT + 6] = self.table.inside_native(flat)[graph.computation]
        changed = (flat != self._default).reshape(len(FIELDS), count)
        out[:, _UNIT_AT + 7] = changed.any(axis=0)
        return out
