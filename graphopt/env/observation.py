"""Observations: a graph's nodes and edges as numbers in [0, 1].

Axis letters: N nodes, L edges, D node features, G edge features, F decision fields, S values of all
fields. Columns come from the tables below; `feature_names` and `EDGE_FEATURES` name them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gymnasium.spaces import GraphInstance
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.module.opcodes import OPS, OpKind
from graphopt.hlo.module.proto import DType

FloatArray = NDArray[np.float32]

LOG2_RANGE: Final = 40.0
"""Counts, bytes and executions are given as log2(1 + x) / 40."""

MAX_RANK: Final = 8.0
MAX_COST: Final = 32.0
MAX_SLOT: Final = 15.0

SCORE_RANGE: Final = 4.0
"""The reward of the previous step, clipped to [-4, 4], is given as (x + 4) / 8."""

_MAX_DTYPE: Final = float(max(DType))


def _log2(values: Any) -> Any:
    return np.log2(1.0 + np.asarray(values, np.float64)) / LOG2_RANGE


def _is_root(graph: Graph) -> Any:
    roots = np.zeros(len(graph), np.bool_)
    roots[[c.root for c in graph.computations]] = True
    return roots


STATIC_FEATURES: Final[tuple[tuple[str, Callable[[Graph], Any]], ...]] = (
    ("opcode", lambda g: g.opcode / (len(OPS) - 1)),
    *(
        (f"kind_{kind.name.lower()}", lambda g, kind=kind: [op.kind is kind for op in g.ops])
        for kind in OpKind
    ),
    ("dtype", lambda g: g.dtype / _MAX_DTYPE),
    ("elements", lambda g: _log2(g.elements)),
    ("bytes", lambda g: _log2(g.nbytes)),
    ("rank", lambda g: np.diff(g.dim_start) / MAX_RANK),
    ("cost", lambda g: np.array([op.cost for op in g.ops]) / MAX_COST),
    ("expensive", lambda g: [op.expensive for op in g.ops]),
    ("executions", lambda g: _log2(g.executions)),
    ("users", lambda g: _log2([len(users) for users in g.user_lists])),
    ("operands", lambda g: _log2(np.diff(g.operand_start))),
    ("is_root", _is_root),
)
"""Name and values [N] of each feature that is the operation's own."""

EDGE_FEATURES: Final = ("operand", "control", "call", "bytes", "slot", "fused_by_default")
"""One of the first three is 1: the value is an operand; the order is fixed by a control dependency;
the computation that ends in the source is called by the target. ``bytes`` of the value is log2(1 +
x) / 40, ``slot`` the operand's position / 15; ``fused_by_default``: XLA computes the source inside
the cluster of its users."""


def feature_names(sizes: tuple[int, ...]) -> tuple[str, ...]:
    """D entries; names of the node features, in column order.

    Args:
        sizes: F entries; number of values of each decision field.
    """
    per_value = [
        f"{field}_{value}"
        for field, size in zip(FIELDS, sizes, strict=True)
        for value in range(size)
    ]
    return (
        *(name for name, _ in STATIC_FEATURES),
        *(f"legal_{name}" for name in per_value),
        *(f"default_{name}" for name in per_value),
        *(f"chosen_{name}" for name in per_value),
        "overridden",
        "progress",
        "score",
    )


@dataclass(frozen=True, eq=False)
class GraphFeatures:
    """What never changes about the observations of one graph.

    Attributes:
        nodes: float32 [N, D]; in [0, 1]; the last S + 3 columns are those before the first step.
        edges: float32 [L, G]; in [0, 1].
        links: int32 [L, 2]; (source, target) nodes of each edge.
        sizes: F entries; number of values of each decision field.
    """

    nodes: FloatArray
    edges: FloatArray
    links: NDArray[np.int32]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, graph: Graph, sizes: tuple[int, ...]) -> GraphFeatures:
        """Builds the features of a graph."""
        static = np.stack(
            [np.asarray(column(graph), np.float32) for _, column in STATIC_FEATURES], axis=1
        )
        default = _one_hot(graph.default, sizes)
        tail = np.zeros((len(graph), 3), np.float32)
        tail[:, 2] = 0.5
        nodes = np.concatenate([static, _legal(graph, sizes), default, default, tail], axis=1)
        edges, links = edges_of(graph)
        return cls(np.clip(nodes, 0.0, 1.0), np.clip(edges, 0.0, 1.0), links, sizes)

    def nodes_after(
        self, decisions: Decisions, overridden: list[int], progress: float, score: float
    ) -> FloatArray:
        """float32 [N, D]; a fresh array with the columns of the previous step filled in.

        Args:
            decisions: what was decided.
            overridden: nodes at which interactions settled a decision.
            progress: share of the episode's steps taken.
            score: reward scale's value of `decisions`.
        """
        nodes = self.nodes.copy()
        width = sum(self.sizes)
        nodes[:, -3 - width : -3] = _one_hot(decisions, self.sizes)
        nodes[overridden, -3] = 1.0
        nodes[:, -2] = progress
        nodes[:, -1] = (np.clip(score, -SCORE_RANGE, SCORE_RANGE) + SCORE_RANGE) / (2 * SCORE_RANGE)
        return nodes

    def instance(self, nodes: FloatArray) -> GraphInstance:
        """An observation with these nodes and fresh copies of the edges."""
        return GraphInstance(nodes, self.edges.copy(), self.links.copy())


def _legal(graph: Graph, sizes: tuple[int, ...]) -> FloatArray:
    columns = []
    for field, size in zip(FIELDS, sizes, strict=True):
        mask = getattr(graph.masks, field)
        columns.append(np.pad(mask, ((0, 0), (0, size - mask.shape[1]))))
    return np.concatenate(columns, axis=1).astype(np.float32)


def _one_hot(decisions: Decisions, sizes: tuple[int, ...]) -> FloatArray:
    out = np.zeros((len(decisions), sum(sizes)), np.float32)
    rows = np.arange(len(decisions))
    start = 0
    for field, size in zip(FIELDS, sizes, strict=True):
        out[rows, getattr(decisions, field).astype(np.intp) + start] = 1.0
        start += size
    return out


def edges_of(graph: Graph) -> tuple[FloatArray, NDArray[np.int32]]:
    """Features float32 [L, G] and links int32 [L, 2] of a graph's edges."""
    targets = np.repeat(np.arange(len(graph), dtype=np.int32), np.diff(graph.operand_start))
    slots = np.arange(len(targets)) - graph.operand_start[:-1].repeat(np.diff(graph.operand_start))
    calls = np.array(
        [(c.root, c.caller) for c in graph.computations if c.caller is not None], np.int32
    ).reshape(-1, 2)
    links = np.concatenate([np.stack([graph.operands, targets], axis=1), graph.control, calls])
    counts = (len(targets), len(graph.control), len(calls))
    edges = np.zeros((len(links), len(EDGE_FEATURES)), np.float32)
    edges[np.arange(len(links)), np.repeat([0, 1, 2], counts)] = 1.0
    edges[:, 3] = _log2(graph.nbytes[links[:, 0]])
    edges[: counts[0], 4] = slots / MAX_SLOT
    edges[:, 5] = graph.default.fuse[links[:, 0]]
    return edges, links.astype(np.int32)
