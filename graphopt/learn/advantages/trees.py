"""Boosted trees on the columns that the network reads: the rival that any network has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped, unused-ignore]

from graphopt.learn.advantages.config import FitConfig
from graphopt.learn.advantages.data import Labelled, folds_of
from graphopt.learn.advantages.fit import Said

LEAST_DEVIATION: Final = 0.005

_INNER: Final = 3
"""Parts of the families for residuals of trees that have not seen them."""

Matrix = NDArray[np.float32]


def columns_of(state: Labelled) -> Matrix:
    """float32 [A, columns]; columns of an alternative, of its site, the mean of its edits', the program's."""
    graph, inner = state.graph, state.state
    nodes = np.concatenate([graph.numeric, inner.state], axis=1)
    starts = np.flatnonzero(np.diff(inner.edit_row, prepend=-1))
    counts = np.diff(np.append(starts, len(inner.edit_row)))[:, None]
    mean = np.add.reduceat(nodes[inner.edit_node], starts, axis=0) / counts
    site = [nodes[inner.site], graph.opcode[inner.site, None], graph.dtype[inner.site, None]]
    program = np.broadcast_to(graph.program, (len(inner), len(graph.program)))
    parts = [inner.numeric, inner.kind[:, None], *site, mean, program]
    return np.concatenate(parts, axis=1).astype(np.float32)


def fit_trees(
    states: Sequence[Labelled], judged: Sequence[Labelled], config: FitConfig, seed: int
) -> list[Said]:
    """What trees say of states, learned from others.

    Means are learned from labels, standard deviations from what trees miss on families that they have not
    seen.

    Args:
        states: to learn from.
        judged: to be judged.
        config: whose largest log ratio counts.
        seed: of the inner parts.
    """
    x = [columns_of(one) for one in states]
    y = [np.clip(one.target, -config.clip, config.clip) for one in states]
    missed = [np.zeros(0)] * len(states)
    folds = folds_of(states, min(_INNER, len({one.family for one in states})), seed)
    for fold in np.unique(folds).tolist():
        inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        model = _trees(seed).fit(_stacked(x, outside), np.concatenate([y[i] for i in outside]))
        for i in inside.tolist():
            missed[i] = np.abs(y[i] - model.predict(x[i]))
    everything = np.arange(len(states))
    mean = _trees(seed).fit(_stacked(x, everything), np.concatenate(y))
    wide = _trees(seed).fit(_stacked(x, everything), np.concatenate(missed))
    out: list[Said] = []
    for one in judged:
        rows = columns_of(one)
        deviation = np.maximum(
            1.2533 * wide.predict(rows), LEAST_DEVIATION
        )  # of a normal distribution
        out.append((mean.predict(rows).astype(np.float32), deviation.astype(np.float32)))
    return out


def _stacked(parts: Sequence[Matrix], places: NDArray[np.int64]) -> Matrix:
    return np.concatenate([parts[i] for i in places.tolist()])


def _trees(seed: int) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(
        max_iter=100,
        learning_rate=0.05,
        min_samples_leaf=10,
        l2_regularization=1.0,
        random_state=seed,
    )
