"""Multilevel graph partitioning: heavy-edge matching, greedy growing, Fiduccia-Mattheyses refinement.

The scheme of METIS (Karypis and Kumar 1998), in numpy. Axis letters: V vertices, E edges.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.coarsen import merge_edges

COARSEST: Final = 48
IMBALANCE: Final = 0.08
PASSES: Final = 4

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def partition(
    weight: Floats,
    source: NDArray[np.integer[Any]],
    target: NDArray[np.integer[Any]],
    cost: Floats,
    parts: int,
) -> Ints:
    """int64 [V]: part of every vertex, balanced in weight, with little edge cost between parts.

    Args:
        weight: float64 [V]; not negative.
        source: integer [E]; one end of each edge.
        target: integer [E]; the other end.
        cost: float64 [E]; price of cutting it.
        parts: number of parts, at least 1.
    """
    out = np.zeros(len(weight), np.int64)
    _bisect(
        weight, source.astype(np.int64), target.astype(np.int64), cost, parts, 0, out,
        np.arange(len(weight)),
    )  # fmt: skip
    return out


def _bisect(
    weight: Floats, source: Ints, target: Ints, cost: Floats, parts: int, first: int, out: Ints,
    names: Ints,
) -> None:  # fmt: skip
    if parts == 1 or len(weight) == 0:
        out[names] = first
        return
    left = parts // 2
    side = _two_way(weight, source, target, cost, left / parts)
    for which, count, start in ((0, left, first), (1, parts - left, first + left)):
        chosen = np.flatnonzero(side == which)
        number = np.full(len(weight), -1, np.int64)
        number[chosen] = np.arange(len(chosen))
        inside = (number[source] >= 0) & (number[target] >= 0)
        _bisect(
            weight[chosen], number[source[inside]], number[target[inside]], cost[inside], count,
            start, out, names[chosen],
        )  # fmt: skip


def _two_way(weight: Floats, source: Ints, target: Ints, cost: Floats, share: float) -> Ints:
    """int64 [V] of 0 and 1; side 0 gets `share` of the weight."""
    count = len(weight)
    source, target, cost = merge_edges(count, source, target, cost)
    if count > COARSEST:
        mapping, coarse = _match(count, source, target, cost)
        if coarse < 0.95 * count:
            grouped = np.bincount(mapping, weight, coarse).astype(np.float64)
            side = _two_way(grouped, mapping[source], mapping[target], cost, share)[mapping]
            return _refine(weight, source, target, cost, side, share)
    guesses = [_by_order(weight, share)]
    if count <= COARSEST:
        guesses.append(_grow(weight, source, target, cost, share))
    sides = [_refine(weight, source, target, cost, guess, share) for guess in guesses]
    return min(sides, key=lambda side: float(cost[side[source] != side[target]].sum()))


def _match(count: int, source: Ints, target: Ints, cost: Floats) -> tuple[Ints, int]:
    """Joins vertices along heavy edges; vertex -> coarse vertex, and how many of these there are."""
    mate = list(range(count))
    taken = [False] * count
    for edge in np.argsort(-cost, kind="stable").tolist():
        a, b = int(source[edge]), int(target[edge])
        if not taken[a] and not taken[b]:
            taken[a] = taken[b] = True
            mate[b] = a
    mapping = np.unique(np.array(mate, np.int64), return_inverse=True)[1]
    return mapping.astype(np.int64), int(mapping.max(initial=-1)) + 1


def _by_order(weight: Floats, share: float) -> Ints:
    """Vertices in order until side 0 is full: order is program order, a good first guess."""
    done = np.cumsum(weight) - weight / 2
    side: Ints = (done > share * weight.sum()).astype(np.int64)
    return side


def _grow(weight: Floats, source: Ints, target: Ints, cost: Floats, share: float) -> Ints:
    """Side 0 grows from the first vertex by whatever is tied to it most; for few vertices."""
    tie = np.zeros((len(weight), len(weight)))
    np.add.at(tie, (source, target), cost)
    tie += tie.T
    side = np.ones(len(weight), np.int64)
    pull = np.zeros(len(weight))
    filled, vertex = 0.0, 0
    while filled + weight[vertex] / 2 <= share * weight.sum():
        side[vertex] = 0
        filled += float(weight[vertex])
        pull += tie[vertex]
        open_ = np.flatnonzero(side == 1)
        if not len(open_):
            break
        vertex = int(open_[np.argmax(pull[open_])])
    return side


def _refine(
    weight: Floats, source: Ints, target: Ints, cost: Floats, side: Ints, share: float
) -> Ints:
    """Moves vertices of positive gain, best first, as long as balance holds or improves."""
    total = float(weight.sum())
    goal = share * total
    slack = IMBALANCE * total + float(weight.max(initial=0.0)) * 0.5
    adjacency: list[list[tuple[int, float]]] = [[] for _ in range(len(weight))]
    for a, b, c in zip(source.tolist(), target.tolist(), cost.tolist(), strict=True):
        adjacency[a].append((b, c))
        adjacency[b].append((a, c))
    state, weights = side.tolist(), weight.tolist()
    filled = sum(w for w, s in zip(weights, state, strict=True) if s == 0)
    for _ in range(PASSES):
        signs = np.where(np.array(state)[source] == np.array(state)[target], -1.0, 1.0)
        gain = np.bincount(source, signs * cost, len(weights))
        gain += np.bincount(target, signs * cost, len(weights))
        moved = 0
        for vertex in np.argsort(-gain, kind="stable").tolist():
            here = state[vertex]
            gained = sum(c if state[other] != here else -c for other, c in adjacency[vertex])
            after = filled - weights[vertex] if here == 0 else filled + weights[vertex]
            better = abs(after - goal) < abs(filled - goal)
            balanced = abs(after - goal) <= slack
            if (gained > 0 and (balanced or better)) or (
                gained == 0 and better and weights[vertex]
            ):
                state[vertex], filled, moved = 1 - here, after, moved + 1
            elif gain[vertex] < 0:
                break
        if not moved:
            break
    return np.array(state, np.int64)
