"""Observations of `AlternativesEnv`: fixed columns for nodes, edges and alternatives, kept up to date.

Axis letters: M rows of nodes, P rows of edges, A rows of alternatives, D node features, K features of an
alternative. A step changes a few cells, so what is expensive is written once per graph.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from graphopt.env.observation import EDGE_FEATURES, LOG2_RANGE, STATIC_FEATURES, edges_of
from graphopt.hlo import Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.machine import UnitKind
from graphopt.policy.alternatives.alternative import KIND_CODE
from graphopt.policy.alternatives.table import AlternativeTable, Values

RESTRUCTURE_COLUMNS: Final = 32
"""Columns for what an operation is replaced with; rows of the table beyond are told apart no more."""

KIND_COLUMNS: Final = 64
"""Columns for codes of kinds of alternatives: room for more, so that the space stays as it is."""

_UNITS: Final = (UnitKind.LOOP, UnitKind.LIBRARY, UnitKind.RUNTIME, UnitKind.NATIVE)

STATE_FEATURES: Final = (
    "fused", "joined", *(f"unit_{kind.value}" for kind in _UNITS), "split",
    *(f"restructure_{code}" for code in range(RESTRUCTURE_COLUMNS)),
)  # fmt: skip
"""Node features that follow the decisions: what is decided for the node now."""

NODE_FEATURES: Final = (*(name for name, _ in STATIC_FEATURES), *STATE_FEATURES)
"""D names of node features, in column order."""

_KIND_NAMES: Final = {code: name for name, code in KIND_CODE.items()}

ALTERNATIVE_FEATURES: Final = (
    *(f"kind_{_KIND_NAMES.get(code, code)}" for code in range(KIND_COLUMNS)),
    "share", "nanoseconds", "edits", "executions",
)  # fmt: skip
"""K names of features of an alternative: its kind; its estimated time as a part of the program's, and as
log2(1 + ns) / 40; log2(1 + edits) / 40; log2(1 + executions of its site) / 40."""

PROGRAM_FEATURES: Final = ("progress", "changed", "nodes", "nanoseconds")
"""Steps taken / horizon; share of the decisions that differ from the start; log2(1 + nodes) / 40; log2(1 +
estimated nanoseconds of a run by XLA's default) / 40."""

_STATIC: Final = len(STATIC_FEATURES)
_UNIT_AT: Final = _STATIC + 2
_SPLIT_AT: Final = _UNIT_AT + len(_UNITS)
_RESTRUCTURE_AT: Final = _SPLIT_AT + 1


def observation_space(nodes: int, edges: int, alternatives: int) -> spaces.Dict:
    """The space of observations with so many rows of each."""
    return spaces.Dict(
        {
            "nodes": spaces.Box(0.0, 1.0, (nodes, len(NODE_FEATURES)), np.float32),
            "node_mask": spaces.Box(0.0, 1.0, (nodes,), np.float32),
            "edges": spaces.Box(0.0, 1.0, (edges, len(EDGE_FEATURES)), np.float32),
            "edge_links": spaces.Box(0, max(1, nodes - 1), (edges, 2), np.int32),
            "edge_mask": spaces.Box(0.0, 1.0, (edges,), np.float32),
            "alternatives": spaces.Box(
                0.0, 1.0, (alternatives, len(ALTERNATIVE_FEATURES)), np.float32
            ),
            "alternative_nodes": spaces.Box(0, max(1, nodes - 1), (alternatives,), np.int32),
            "action_mask": spaces.Box(0.0, 1.0, (alternatives,), np.float32),
            "program": spaces.Box(0.0, 1.0, (len(PROGRAM_FEATURES),), np.float32),
        }
    )


class View:
    """The observation of one graph, changed in place as decisions are.

    Attributes:
        table: the graph's alternatives, at most A.
        flat: int16 [F * N]; the decisions so far (see `AlternativeTable.flat`).
        mask: bool [A]; alternatives that there are now.
    """

    def __init__(
        self, graph: Graph, table: AlternativeTable, program_ns: float, space: spaces.Dict
    ) -> None:
        """Writes what never changes.

        Args:
            graph: the graph.
            table: its alternatives.
            program_ns: estimated nanoseconds of a run by XLA's default.
            space: of the observations.
        """
        self.graph, self.table = graph, table
        self._unit_columns = [_UNIT_AT + _UNITS.index(unit.kind) for unit in graph.units]
        self._split = np.array([unit.threads > 1 for unit in graph.units], np.float32)
        self._base: dict[str, NDArray[Any]] = {
            name: np.zeros(box.shape or (), box.dtype) for name, box in space.spaces.items()
        }
        self._fill_graph()
        self._fill_alternatives(program_ns)
        self._start = table.flat(graph.default)

    def _fill_graph(self) -> None:
        graph, base, count = self.graph, self._base, len(self.graph)
        columns = [np.asarray(column(graph), np.float32) for _, column in STATIC_FEATURES]
        base["nodes"][:count, :_STATIC] = np.clip(np.stack(columns, axis=1), 0.0, 1.0)
        base["node_mask"][:count] = 1.0
        edges, links = edges_of(graph)
        base["edges"][: len(edges)] = np.clip(edges, 0.0, 1.0)
        base["edge_links"][: len(links)] = links
        base["edge_mask"][: len(links)] = 1.0

    def _fill_alternatives(self, program_ns: float) -> None:
        table, count = self.table, len(self.table)
        rows = self._base["alternatives"]
        rows[np.arange(count), np.minimum(table.kind, KIND_COLUMNS - 1)] = 1.0
        sites = np.maximum(table.node, 0)
        more = rows[:count, KIND_COLUMNS:]
        more[:, 0] = table.weight / max(program_ns, 1e-9)
        more[:, 1] = _log2(table.weight)
        more[:, 2] = _log2([len(row.edits) for row in table.rows])
        more[:, 3] = _log2(self.graph.executions[sites])
        np.clip(more, 0.0, 1.0, out=more)
        self._base["alternative_nodes"][:count] = sites
        self._base["program"][2:] = np.clip(_log2([len(self.graph), program_ns]), 0.0, 1.0)

    def begin(self, flat: Values) -> None:
        """Shows decisions; they are the start from which changes are counted."""
        self.flat = flat.copy()
        self._start = flat.copy()
        self._arrays = {name: value.copy() for name, value in self._base.items()}
        self._write(np.arange(len(flat)))
        self._refresh(0.0)

    def fork(self) -> View:
        """An independent copy that shows the same."""
        other = copy.copy(self)
        other.flat, other._arrays = self.flat.copy(), self.observe()
        return other

    def choose(self, index: int, progress: float) -> None:
        """Makes an alternative the decision and shows it.

        Args:
            index: of the alternative.
            progress: part of the episode that is over then.
        """
        at, value = self.table.edits(index)
        self.flat[at] = value
        self._write(at)
        self._refresh(progress)

    def _refresh(self, progress: float) -> None:
        self.mask = self.table.available(self.flat)
        self._arrays["action_mask"][: len(self.mask)] = self.mask
        program = self._arrays["program"]
        program[0] = min(progress, 1.0)
        program[1] = np.count_nonzero(self.flat != self._start) / max(1, len(self.flat))

    def _write(self, at: NDArray[np.int64]) -> None:
        """Writes decisions at some places of `flat` into the columns of their nodes."""
        nodes = self._arrays["nodes"]
        fields, rows = np.divmod(at, len(self.graph))
        values = self.flat[at].astype(np.intp)
        for number, field in enumerate(FIELDS):
            here = fields == number
            if not here.any():
                continue
            where, value = rows[here], values[here]
            if field == "unit":
                nodes[where, _UNIT_AT:_SPLIT_AT] = 0.0
                nodes[where, np.take(self._unit_columns, value)] = 1.0
                nodes[where, _SPLIT_AT] = self._split[value]
            elif field == "restructure":
                nodes[where, _RESTRUCTURE_AT:] = 0.0
                code = np.minimum(value, RESTRUCTURE_COLUMNS - 1)
                nodes[where, _RESTRUCTURE_AT + code] = 1.0
            else:
                nodes[where, _STATIC + number] = value

    def observe(self) -> dict[str, NDArray[Any]]:
        """The observation, in fresh arrays."""
        return {name: value.copy() for name, value in self._arrays.items()}


def _log2(values: Any) -> Any:
    return np.log2(1.0 + np.asarray(values, np.float64)) / LOG2_RANGE
