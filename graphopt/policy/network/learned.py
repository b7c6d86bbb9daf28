"""The learned policy: features, network and decision rule put together, in numpy only.

Axis letters: N nodes, B samples, V values of a field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.machine import Machine
from graphopt.policy.network.decision_space import ALL_ROWS, FieldInput, KnownRows
from graphopt.policy.network.features import extract
from graphopt.policy.network.numpy_network import Decoded, Encoded, Ints, NumpyPolicy
from graphopt.policy.network.numpy_ops import Array, log_softmax


@dataclass(frozen=True, eq=False)
class Proposal:
    """The policy's most likely decisions for a graph.

    Attributes:
        decisions: the decisions; legal.
        gain: expected log speed-up over the decisions that the policy starts from, the heuristic's.
        low_gain: low quantile of the log speed-up: what can be counted on.
        changes: decisions that differ from those.
    """

    decisions: Decisions
    gain: float
    low_gain: float
    changes: int


@dataclass(frozen=True, eq=False)
class Samples:
    """B decision vectors drawn for one graph, with what training needs to know of the draw.

    Attributes:
        actions: field name -> int64 [B, N].
        log_probs: field name -> float32 [B, N]; log-probability of each action at temperature 1.
        drawn: field name -> bool [B, N]; True where the policy drew the action: the field had a
            choice, counted for the node, and the node was free to explore.
        gains: float32 [B]; predicted log speed-up of each vector over the start.
    """

    actions: dict[str, Ints]
    log_probs: dict[str, Array]
    drawn: dict[str, NDArray[np.bool_]]
    gains: Array

    def __len__(self) -> int:
        """Number of vectors B."""
        return len(self.gains)

    def decisions(self, graph: Graph) -> DecisionBatch:
        """The vectors as a batch for a scorer."""
        return DecisionBatch(
            {
                name: action.astype(getattr(graph.default, name).dtype)
                for name, action in self.actions.items()
            }
        )


class LearnedPolicy:
    """A policy network with its decision rule: a `graphopt.policy.Policy`.

    Attributes:
        network: the network in numpy.
        min_gain: log speed-up over the heuristic that the low quantile must promise; else that stands.
        machine: machine whose caches the features refer to; None for this one.
        rows: what the network knows of `restructure`.
    """

    def __init__(
        self,
        network: NumpyPolicy,
        min_gain: float,
        machine: Machine | None = None,
        rows: KnownRows = ALL_ROWS,
    ) -> None:
        """Takes a network as it is."""
        self.network = network
        self.min_gain = min_gain
        self.machine = machine
        self.rows = rows

    def __call__(self, graph: Graph) -> Decisions | None:
        """The most likely decisions where a clear gain is expected, else the heuristic's; None for XLA's."""
        if len(graph) == 0:
            return None
        encoded = self.encode(graph)
        found = self._propose(graph, encoded)
        clear = found.changes > 0 and found.low_gain > self.min_gain  # False for NaN
        chosen = found.decisions if clear else encoded.features.start
        return None if chosen.same_as(graph.default) else chosen

    def encode(self, graph: Graph, start: Decisions | None = None) -> Encoded:
        """A graph as the network sees it; `start` is what it starts from, None for the heuristic's."""
        with np.errstate(all="ignore"):  # a broken checkpoint must not warn in a user's program
            return self.network.encode(extract(graph, self.machine, start, self.rows))

    def propose(self, graph: Graph) -> Proposal:
        """The most likely decisions with their expected gain, whatever it is."""
        if len(graph) == 0:
            return Proposal(graph.default, 0.0, 0.0, 0)
        return self._propose(graph, self.encode(graph))

    def _propose(self, graph: Graph, encoded: Encoded) -> Proposal:
        with np.errstate(all="ignore"):
            return proposal(graph, encoded, self.network.decode(encoded, most_likely))

    def suggestions(self, graph: Graph, count: int, seed: int = 0) -> list[Decisions]:
        """The most likely decisions, then different draws: starting points of a search; legal.

        Args:
            graph: what is to be searched.
            count: most vectors; fewer if draws repeat.
            seed: of the draws.
        """
        if not len(graph):
            return [graph.default]
        encoded = self.encode(graph)
        found = [self._propose(graph, encoded).decisions]
        if count > 1:
            with np.errstate(all="ignore"):
                free = np.ones((count - 1, len(graph)), np.bool_)
                rng = np.random.default_rng(seed)
                batch = sample(self.network, encoded, rng, free).decisions(graph)
            for index in range(len(batch)):
                if not any(batch[index].same_as(other) for other in found):
                    found.append(batch[index].copy())
        return found


def most_likely(field: FieldInput, logits: Array, relevant: NDArray[np.bool_]) -> Ints:
    """The likeliest value where the field counts, the start's elsewhere."""
    return np.where(relevant, logits.argmax(axis=1), field.start)


def proposal(graph: Graph, encoded: Encoded, decoded: Decoded) -> Proposal:
    """A decoded decision vector as a `Proposal`."""
    arrays = {
        field.name: decoded.actions[field.name].astype(getattr(graph.default, field.name).dtype)
        for field in encoded.fields
    }
    changes = sum(
        int((decoded.actions[field.name] != field.start).sum()) for field in encoded.fields
    )
    gain, low = decoded.gain.tolist()
    return Proposal(graph.default.with_changes(**arrays), gain, low, changes)


def sample(
    network: NumpyPolicy,
    encoded: Encoded,
    rng: np.random.Generator,
    free: NDArray[np.bool_],
    temperature: float = 1.0,
) -> Samples:
    """Draws one decision vector per row of `free`; nodes that are not free take the likeliest values.

    Args:
        network: the network that encoded the graph.
        encoded: the graph.
        rng: source of randomness.
        free: bool [B, N]; nodes that explore.
        temperature: divides the logits while drawing; log-probabilities are those of temperature 1.
    """
    names = [field.name for field in encoded.fields]
    rows: dict[str, list[list[NDArray[np.generic]]]] = {name: [[], [], []] for name in names}
    gains = []
    for nodes in free:

        def draw(
            field: FieldInput,
            logits: Array,
            relevant: NDArray[np.bool_],
            nodes: NDArray[np.bool_] = nodes,
        ) -> Ints:
            """Gumbel-max draws where nodes explore, the likeliest values elsewhere."""
            noise = rng.gumbel(size=logits.shape) * temperature
            drawn = (logits + noise * field.mask).argmax(axis=1)
            value = np.where(nodes, drawn, logits.argmax(axis=1))
            return np.where(relevant, value, field.start)

        decoded = network.decode(encoded, draw)
        gains.append(decoded.gain[0])
        for name in names:
            action = decoded.actions[name]
            logs = log_softmax(decoded.logits[name])[np.arange(len(action)), action]
            for column, value in zip(
                rows[name], (action, logs, decoded.relevant[name] & nodes), strict=True
            ):
                column.append(value)
    stacked = {name: [np.stack(column) for column in rows[name]] for name in names}
    return Samples(
        actions={name: stacked[name][0] for name in names},
        log_probs={name: stacked[name][1] for name in names},
        drawn={name: stacked[name][2] for name in names},
        gains=np.array(gains, np.float32),
    )
