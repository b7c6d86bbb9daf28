"""States packed into batches of one size each, so that one compilation serves them all.

Axis letters: N nodes, E edges, C computations, B states, A alternatives, K edits: those of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jraph
import numpy as np
from numpy.typing import NDArray

from graphopt.learn.advantages.config import FitConfig
from graphopt.learn.advantages.data import Labelled
from graphopt.policy.advantages.flax_network import Choices


class Batch(NamedTuple):
    """What a step of training takes.

    Attributes:
        graph: see `AdvantageNetwork`; the last state is padding.
        choices: the alternatives.
        target: float32 [A]; log ratios, cut.
        noise: float32 [A]; their standard deviations.
        taught: float32 [A, 2]; mean and standard deviation that an ensemble gives; zeros without one.
    """

    graph: Any
    choices: Choices
    target: Any
    noise: Any
    taught: Any


@dataclass(frozen=True)
class Sizes:
    """Sizes of a batch, padding included: at least one of everything is padding."""

    nodes: int
    edges: int
    computations: int
    states: int
    alternatives: int
    edits: int


def sizes_of(states: Sequence[Labelled], config: FitConfig) -> Sizes:
    """Sizes that hold the largest state, and else what the settings say."""
    nodes = max([config.nodes, *(len(s.graph) for s in states)])
    alternatives = max([config.alternatives, *(len(s) for s in states)])
    edges = max([2 * nodes, *(len(s.graph.senders) for s in states)])
    computations = max([nodes // 8, *(len(s.graph.caller) for s in states)])
    edits = max([4 * alternatives, *(len(s.state.edit_row) for s in states)])
    return Sizes(nodes + 1, edges + 1, computations + 1, 65, alternatives + 1, edits + 1)


def packed(states: Sequence[Labelled], sizes: Sizes, order: Sequence[int]) -> Iterator[list[int]]:
    """Places of states, in an order, as batches that fit."""
    batch: list[int] = []
    used = np.zeros(6, np.int64)
    room = np.array(
        [sizes.nodes, sizes.edges, sizes.computations, sizes.states, sizes.alternatives, sizes.edits]
    )  # fmt: skip
    for place in order:
        one = states[place]
        needs = np.array(
            [
                len(one.graph), len(one.graph.senders), len(one.graph.caller), 1, len(one),
                len(one.state.edit_row),
            ]
        )  # fmt: skip
        if batch and ((used + needs) >= room).any():
            yield batch
            batch, used = [], np.zeros(6, np.int64)
        batch.append(place)
        used += needs
    if batch:
        yield batch


def _joined(parts: list[NDArray[Any]], size: int, value: float = 0) -> NDArray[Any]:
    """Arrays one after the other, filled up with a value."""
    found = np.concatenate(parts)
    out = np.full((size, *found.shape[1:]), value, found.dtype)
    out[: len(found)] = found
    return out


def _shifted(parts: list[NDArray[Any]], by: NDArray[Any], size: int, fill: int) -> Any:
    """The same of numbers of nodes or rows, which begin at `by` in the batch."""
    moved = [p + b for p, b in zip(parts, by[:-1], strict=True)]
    return _joined(moved, size, fill).astype(np.int32)


@dataclass(frozen=True)
class _Starts:
    """Where each state begins in a batch, and after the last one where it would end; int64 [states + 1].

    Attributes:
        nodes: among all nodes.
        computations: among all computations.
        rows: among all alternatives.
    """

    nodes: NDArray[Any]
    computations: NDArray[Any]
    rows: NDArray[Any]

    @staticmethod
    def of(states: Sequence[Labelled]) -> _Starts:
        """Counts what the states have."""
        return _Starts(
            np.cumsum([0, *(len(s.graph) for s in states)]),
            np.cumsum([0, *(len(s.graph.caller) for s in states)]),
            np.cumsum([0, *(len(s) for s in states)]),
        )


def _graphs(states: Sequence[Labelled], sizes: Sizes, starts: _Starts) -> jraph.GraphsTuple:
    """The graphs of all states as one."""
    graphs, last = [s.graph for s in states], sizes.nodes - 1
    number = [np.full(len(g), i, np.int32) for i, g in enumerate(graphs)]
    callers = [
        np.where(g.caller < 0, last - b, g.caller)
        for g, b in zip(graphs, starts.nodes, strict=False)
    ]
    return jraph.GraphsTuple(
        nodes={
            "numeric": _joined([g.numeric for g in graphs], sizes.nodes),
            "state": _joined([s.state.state for s in states], sizes.nodes),
            "opcode": _joined([g.opcode for g in graphs], sizes.nodes),
            "dtype": _joined([g.dtype for g in graphs], sizes.nodes),
            "share": _joined([g.share for g in graphs], sizes.nodes),
            "member": _joined(number, sizes.nodes, sizes.states - 1),
            "computation": _shifted(
                [g.computation for g in graphs],
                starts.computations,
                sizes.nodes,
                sizes.computations - 1,
            ),
        },
        edges=None,
        senders=_shifted([g.senders for g in graphs], starts.nodes, sizes.edges, last),
        receivers=_shifted([g.receivers for g in graphs], starts.nodes, sizes.edges, last),
        n_node=_counts([len(g) for g in graphs], sizes.states, sizes.nodes),
        n_edge=_counts([len(g.senders) for g in graphs], sizes.states, sizes.edges),
        globals={
            "program": _joined([np.stack([g.program for g in graphs])], sizes.states),
            "caller": _shifted(callers, starts.nodes, sizes.computations, last),
        },
    )


def _choices(states: Sequence[Labelled], sizes: Sizes, starts: _Starts) -> Choices:
    """The alternatives of all states."""
    state = [s.state for s in states]
    last = sizes.nodes - 1
    return Choices(
        numeric=_joined([s.numeric for s in state], sizes.alternatives),
        kind=_joined([s.kind for s in state], sizes.alternatives),
        site=_shifted([s.site for s in state], starts.nodes, sizes.alternatives, last),
        state=_joined(
            [np.full(len(s), i, np.int32) for i, s in enumerate(state)],
            sizes.alternatives,
            sizes.states - 1,
        ),
        real=np.arange(sizes.alternatives) < starts.rows[-1],
        edit_row=_shifted(
            [s.edit_row for s in state], starts.rows, sizes.edits, sizes.alternatives - 1
        ),
        edit_node=_shifted([s.edit_node for s in state], starts.nodes, sizes.edits, last),
    )


def make_batch(
    states: Sequence[Labelled],
    sizes: Sizes,
    clip: float,
    taught: Sequence[NDArray[np.float32]] | None = None,
) -> Batch:
    """One batch.

    Args:
        states: that fit.
        sizes: of the batch.
        clip: largest absolute target.
        taught: float32 [alternatives, 2] of each state; None without an ensemble.
    """
    starts = _Starts.of(states)
    graph, choices = _graphs(states, sizes, starts), _choices(states, sizes, starts)
    given = [np.zeros((len(s), 2), np.float32) for s in states] if taught is None else list(taught)
    target = [np.clip(s.target, -clip, clip).astype(np.float32) for s in states]
    return Batch(
        graph,
        choices,
        _joined(target, sizes.alternatives),
        _joined([s.noise.astype(np.float32) for s in states], sizes.alternatives),
        _joined(given, sizes.alternatives),
    )


def _counts(parts: list[int], size: int, total: int) -> NDArray[np.int32]:
    """int32 [size]; counts of each state, what is padding with the last."""
    out = np.zeros(size, np.int32)
    out[: len(parts)] = parts
    out[-1] = total - sum(parts)
    return out
