"""Shrinks a large graph in whole-array steps, before a partition looks at single vertices.

Handshake matching: every vertex names the neighbour it is tied to most; pairs that name each other become
one. Axis letters: V vertices, E edges, C coarse vertices.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MIN_SHRINK: Final = 0.97
"""A round that leaves more than this share of the vertices is the last one."""

_MAX_ROUNDS: Final = 40


def coarsen(
    weight: Floats,
    source: NDArray[np.integer[Any]],
    target: NDArray[np.integer[Any]],
    cost: Floats,
    count: int,
    max_weight: float,
) -> tuple[Ints, Floats, Ints, Ints, Floats]:
    """Joins vertices along heavy edges until about `count` are left. Deterministic.

    Args:
        weight: float64 [V].
        source: integer [E].
        target: integer [E].
        cost: float64 [E].
        count: stop at so many vertices.
        max_weight: no two vertices become one that weighs more.

    Returns:
        Coarse vertex of every vertex, int64 [V]; then the coarse graph: weight [C], source, target, cost.
    """
    mapping = np.arange(len(weight), dtype=np.int64)
    tie = np.random.default_rng(0)
    a, b, price = merge_edges(len(weight), source.astype(np.int64), target.astype(np.int64), cost)
    for _ in range(_MAX_ROUNDS):
        before = len(weight)
        if before <= count:
            break
        joined = _handshake(weight, a, b, price, max_weight, tie)
        _, number = np.unique(joined, return_inverse=True)
        mapping = number[mapping]
        weight = np.bincount(number, weight).astype(np.float64)
        a, b, price = merge_edges(len(weight), number[a], number[b], price)
        if len(weight) > _MIN_SHRINK * before:
            break
    return mapping, weight, a, b, price


def merge_edges(count: int, source: Ints, target: Ints, cost: Floats) -> tuple[Ints, Ints, Floats]:
    """One undirected edge per pair of different vertices, costs added; the smaller number first."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    keep = low != high
    code, inverse = np.unique(low[keep] * count + high[keep], return_inverse=True)
    summed = np.bincount(inverse, cost[keep], len(code)).astype(np.float64)
    return code // count, code % count, summed


def _handshake(
    weight: Floats, a: Ints, b: Ints, cost: Floats, max_weight: float, tie: np.random.Generator
) -> Ints:
    """int64 [V]: the vertex that each becomes part of; itself for most."""
    fits = weight[a] + weight[b] <= max_weight
    a, b, cost = a[fits], b[fits], cost[fits]
    # Light vertices first: coarse vertices stay of similar weight. Equal edges in random order, as in a
    # long chain of them nearly nobody would name whom it is named by.
    unit = max(float(weight.mean()), 1e-30)
    pull = cost / (1.0 + np.maximum(weight[a], weight[b]) / unit)
    rank = np.argsort(pull * (1.0 + 0.1 * tie.random(len(pull))))
    wish = np.full(len(weight), -1, np.int64)
    # Of repeated indices the last assignment stays: that of the strongest edge.
    wish[np.stack([a[rank], b[rank]], axis=1).ravel()] = np.repeat(rank, 2)
    mutual = np.flatnonzero((wish[a] == np.arange(len(a))) & (wish[b] == np.arange(len(a))))
    joined = np.arange(len(weight), dtype=np.int64)
    joined[b[mutual]] = a[mutual]
    return joined
