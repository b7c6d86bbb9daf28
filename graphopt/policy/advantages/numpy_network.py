"""The network of advantages in numpy, for use inside XLA's compile; `flax_network` is what is trained.

Axis letters: N nodes, C computations, A alternatives, H hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from graphopt.policy.advantages.config import FIRST_DEVIATION, AdvantageConfig
from graphopt.policy.advantages.encoding import GraphInput, StateInput
from graphopt.policy.network.numpy_ops import Array, Groups, norm, product


class NumpyAdvantages:
    """Scores the alternatives of states.

    Attributes:
        config: sizes.
        parameters: float32 arrays by name.
    """

    def __init__(
        self, config: AdvantageConfig, parameters: Mapping[str, NDArray[np.float32]]
    ) -> None:
        """Takes parameters as they are."""
        self.config = config
        self.parameters = dict(parameters)

    def of(self, graph: GraphInput) -> GraphScorer:
        """A scorer of the states of one graph."""
        return GraphScorer(self, graph)

    def dense(self, name: str, x: Array) -> Array:
        """[rows, inputs] -> [rows, outputs] of a dense layer."""
        out = product(np.ascontiguousarray(x), self.parameters[f"{name}.kernel"])
        out += self.parameters[f"{name}.bias"]
        return out

    def normed(self, name: str, x: Array) -> Array:
        """Layer normalisation over the last axis."""
        return norm(x, self.parameters[f"{name}.scale"], self.parameters[f"{name}.bias"])


class GraphScorer:
    """Scores states of one graph; what they share is computed once."""

    def __init__(self, network: NumpyAdvantages, graph: GraphInput) -> None:
        """Sorts edges and computations, and embeds what no decision changes."""
        self.network, self.graph = network, graph
        count = len(graph)
        by_sender = np.argsort(graph.senders, kind="stable")
        self._from_operands = Groups(graph.senders, graph.receivers, count)
        self._from_users = Groups(graph.receivers[by_sender], graph.senders[by_sender], count)
        self._first = np.searchsorted(graph.computation, np.arange(len(graph.caller)))
        sizes = np.diff(np.append(self._first, count))
        self._inverse = (1.0 / np.maximum(sizes, 1)).astype(np.float32)[:, None]
        self._called = np.flatnonzero(graph.caller >= 0)
        parameters = network.parameters
        columns = (
            graph.numeric,
            parameters["op_embedding"][graph.opcode],
            parameters["dtype_embedding"][graph.dtype],
        )
        kernel, fixed = parameters["embed.kernel"], graph.numeric.shape[1]
        states = len(kernel) - sum(column.shape[1] for column in columns)
        self._state_kernel = np.ascontiguousarray(kernel[fixed : fixed + states])
        rest = np.concatenate([kernel[:fixed], kernel[fixed + states :]])
        self._embedded = product(np.concatenate(columns, axis=1), rest) + parameters["embed.bias"]

    def score(self, state: StateInput) -> tuple[Array, Array]:
        """Mean and standard deviation of every alternative's log ratio, float32 [A] each."""
        network = self.network
        if not len(state):
            nothing = np.zeros(0, np.float32)
            return nothing, nothing
        x = self._nodes(state)
        pooled = np.concatenate([self.graph.share @ x, self.graph.program])
        summary = np.tanh(network.dense("summary", pooled[None]))
        z = self._alternatives(x, summary, state)
        if network.config.attention:
            z += network.dense(
                "mix", self._attend(network.dense("qkv", network.normed("attend_norm", z)))
            )
        hidden = np.maximum(network.dense("head_hidden", network.normed("head_norm", z)), 0.0)
        out = network.dense("head", hidden)
        return out[:, 0], np.exp(np.clip(out[:, 1] + FIRST_DEVIATION, -20.0, 20.0))

    def _nodes(self, state: StateInput) -> Array:
        """States of nodes, [N, H]."""
        network = self.network
        x = product(state.state, self._state_kernel)
        x += self._embedded
        np.maximum(x, 0.0, out=x)
        for layer in range(network.config.depth):
            sent = network.dense(f"messages.{layer}", x)
            np.maximum(sent, 0.0, out=sent)
            update = network.dense(f"updates.{layer}", np.concatenate([x, *self._receive(sent)], 1))
            x += np.maximum(update, 0.0, out=update)
            x = network.normed(f"message_norms.{layer}", x)
        return x

    def _receive(self, sent: Array) -> list[Array]:
        """What every node receives, four arrays [N, H], given what it sends, [N, 3H]."""
        graph = self.graph
        to_users, to_operands, shared = np.split(sent, 3, axis=1)
        inside = np.add.reduceat(shared, self._first, axis=0) * self._inverse
        called = np.zeros_like(shared)
        np.add.at(called, graph.caller[self._called], inside[self._called])
        return [
            self._from_operands.reduce(to_users, np.maximum),
            self._from_users.reduce(to_operands, np.maximum),
            inside[graph.computation],
            called,
        ]

    def _alternatives(self, x: Array, summary: Array, state: StateInput) -> Array:
        """States of alternatives before they know of each other, [A, H]."""
        network = self.network
        starts = np.flatnonzero(np.diff(state.edit_row, prepend=-1))
        changed = x[state.edit_node]
        counts = np.diff(np.append(starts, len(state.edit_row))).astype(np.float32)
        mean = np.add.reduceat(changed, starts, axis=0) / counts[:, None]
        columns = (
            state.numeric,
            network.parameters["kind_embedding"][state.kind],
            x[state.site],
            mean,
            np.maximum.reduceat(changed, starts, axis=0),
            np.broadcast_to(summary, (len(state), summary.shape[1])),
        )
        wide = network.dense("alternative", np.concatenate(columns, axis=1))
        narrow = network.dense("narrow", np.maximum(wide, 0.0))
        out: Array = np.maximum(narrow, 0.0)
        return out

    def _attend(self, qkv: Array) -> Array:
        """Every alternative attends to all, [A, 3H] -> [A, H]."""
        heads, count = self.network.config.heads, len(qkv)
        query, keys, values = qkv.reshape(count, 3, heads, -1).transpose(1, 2, 0, 3)
        scores = query @ keys.swapaxes(-1, -2)
        scores /= np.float32(np.sqrt(query.shape[-1]))
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        found: Array = (scores @ values).transpose(1, 0, 2).reshape(count, -1)
        return found
