"""Features of one graph as padded arrays, in a handful of sizes, so that few compilations serve all graphs.

Axis letters: N padded nodes (a power of two times the segment length), E padded edges, V values of a field.
"""

from __future__ import annotations

from typing import Any, Final

import jraph
import numpy as np

from graphopt.policy.network.features import Features

MIN_NODES: Final = 128


def padded_sizes(nodes: int, edges: int, segment: int) -> tuple[int, int]:
    """Padded node and edge counts: at least one node and one edge are padding."""
    size = max(MIN_NODES, segment)
    while size <= nodes:
        size *= 2
    room = 2 * size
    while room <= edges:
        room *= 2
    return size, room


def pad(features: Features, segment: int) -> jraph.GraphsTuple:
    """One graph as a `jraph.GraphsTuple` with a second graph of padding.

    Nodes is a dict of arrays [N, ...]: ``numeric``, ``opcode``, ``dtype``, ``share``, ``real`` (bool),
    ``first`` (first node of the node's computation), ``caller`` (for a computation's first node, the
    node that calls it; else N - 1, which is padding), ``mask.FIELD`` (bool [N, V]; True = allowed) and
    ``start.FIELD``. Globals is a dict ``values.FIELD`` -> float32 [V, features]. Edges are None.
    """
    count = len(features)
    size, room = padded_sizes(count, len(features.senders), segment)
    nodes: dict[str, Any] = {
        "numeric": _fill(features.numeric, size, 0.0),
        "opcode": _fill(features.opcode, size, 0),
        "dtype": _fill(features.dtype, size, 0),
        "share": _fill(features.share, size, 0.0),
        "real": np.arange(size) < count,
        "first": _fill(_first_nodes(features), size, size - 1),
        "caller": np.full(size, size - 1, np.int32),
    }
    called = features.caller >= 0
    nodes["caller"][features.first[called]] = features.caller[called]
    for field in features.fields:
        nodes[f"mask.{field.name}"] = _fill(field.mask, size, True)
        nodes[f"start.{field.name}"] = _fill(field.start.astype(np.int32), size, 0)
    return jraph.GraphsTuple(
        nodes=nodes,
        edges=None,
        senders=_fill(features.senders, room, size - 1),
        receivers=_fill(features.receivers, room, size - 1),
        n_node=np.array([count, size - count], np.int32),
        n_edge=np.array([len(features.senders), room - len(features.senders)], np.int32),
        globals={f"values.{field.name}": field.values for field in features.fields},
    )


def _first_nodes(features: Features) -> np.ndarray:
    """int32 [nodes]; first node of each node's computation."""
    sizes = np.diff(np.append(features.first, len(features)))
    return np.repeat(features.first, sizes).astype(np.int32)


def _fill(array: np.ndarray, size: int, value: Any) -> np.ndarray:
    """`array` extended along axis 0 to `size` rows of `value`."""
    out = np.full((size, *array.shape[1:]), value, array.dtype)
    out[: len(array)] = array
    return out


def pad_rows(array: np.ndarray, size: int) -> np.ndarray:
    """[B, nodes] extended with zeros to [B, size]."""
    out = np.zeros((array.shape[0], size), array.dtype)
    out[:, : array.shape[1]] = array
    return out
