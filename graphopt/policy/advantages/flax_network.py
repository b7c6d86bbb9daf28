"""The network of advantages in flax and jraph, for training; `numpy_network` is the same in numpy.

Messages pass along operands, users, computations and calls (maximum over neighbours, mean over a
computation); an alternative is read from its own columns, the states of its site and of the nodes that it
changes, and the program's summary; then the alternatives of a state attend to each other.

Axis letters: N nodes, E edges, C computations, B states of a batch, A alternatives, K edits, H hidden width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph
from flax import nnx

from graphopt.policy.advantages.config import FIRST_DEVIATION, OUTPUTS, RECEIVED, AdvantageConfig
from graphopt.policy.advantages.node_columns import DTYPE_NAMES, OP_NAMES, PROGRAM_COLUMNS

FORBIDDEN = -1e9


class Choices(NamedTuple):
    """The alternatives of the states of a batch.

    Attributes:
        numeric: float32 [A, columns].
        kind: int32 [A].
        site: int32 [A]; node.
        state: int32 [A]; which state of the batch.
        real: bool [A]; False for padding.
        edit_row: int32 [K]; alternative of each edit.
        edit_node: int32 [K]; node of it.
    """

    numeric: Any
    kind: Any
    site: Any
    state: Any
    real: Any
    edit_row: Any
    edit_node: Any


def _linear(inputs: int, outputs: int, rngs: nnx.Rngs, zero: bool = False) -> Any:
    init = nnx.initializers.zeros_init() if zero else nnx.initializers.lecun_normal()
    return nnx.Linear(inputs, outputs, kernel_init=init, rngs=rngs)


def _norm(width: int, rngs: nnx.Rngs) -> Any:
    return nnx.LayerNorm(width, epsilon=1e-6, use_fast_variance=False, rngs=rngs)


class AdvantageNetwork(nnx.Module):
    """States with their alternatives in, mean and log standard deviation of each one's log ratio out."""

    def __init__(self, config: AdvantageConfig, rngs: nnx.Rngs) -> None:
        """Creates the parameters named in `graphopt.policy.advantages.config.parameter_shapes`."""
        from graphopt.policy.advantages.alternative_columns import KIND_NAMES

        h = config.hidden
        normal = nnx.initializers.normal(0.3)
        self.config = config
        self.op_embedding = nnx.Param(normal(rngs.params(), (len(OP_NAMES), config.op_width)))
        self.dtype_embedding = nnx.Param(
            normal(rngs.params(), (len(DTYPE_NAMES), config.dtype_width))
        )
        self.kind_embedding = nnx.Param(normal(rngs.params(), (len(KIND_NAMES), config.kind_width)))
        self.embed = _linear(config.node_inputs, h, rngs)
        self.messages = nnx.List(_linear(h, 3 * h, rngs) for _ in range(config.depth))
        self.updates = nnx.List(_linear((1 + RECEIVED) * h, h, rngs) for _ in range(config.depth))
        self.message_norms = nnx.List(_norm(h, rngs) for _ in range(config.depth))
        self.summary = _linear(h + len(PROGRAM_COLUMNS), h, rngs)
        self.alternative = _linear(config.alternative_inputs, 2 * h, rngs)
        self.narrow = _linear(2 * h, h, rngs)
        if config.attention:
            self.attend_norm = _norm(h, rngs)
            self.qkv = _linear(h, 3 * h, rngs)
            self.mix = _linear(h, h, rngs, zero=True)
        self.head_norm = _norm(h, rngs)
        self.head_hidden = _linear(h, h, rngs)
        self.head = _linear(h, OUTPUTS, rngs, zero=True)

    def __call__(
        self, graph: jraph.GraphsTuple, choices: Choices, drop: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Mean and log standard deviation of every alternative, [A] each.

        Args:
            graph: B states, the last of them padding. Nodes hold ``numeric`` and ``state`` [N, columns],
                ``opcode``, ``dtype``, ``share``, ``member`` (which state), ``computation``; globals hold
                ``program`` [B, G] and ``caller`` [C], the node that calls each computation, N - 1 for none.
            choices: the alternatives.
            drop: float32 [A, H]; what hidden states are multiplied by in training; None for ones.
        """
        x = self._nodes(graph)
        states = len(graph.n_node)
        nodes = graph.nodes
        pooled = jraph.segment_sum(nodes["share"][:, None] * x, nodes["member"], states)
        program = jnp.concatenate([pooled, graph.globals["program"]], axis=1)
        summary = jnp.tanh(self.summary(program))
        z = self._alternatives(x, summary, choices)
        if drop is not None:
            z = z * drop
        if self.config.attention:
            z = z + self.mix(self._attend(self.qkv(self.attend_norm(z)), choices))
        out = self.head(jax.nn.relu(self.head_hidden(self.head_norm(z))))
        return out[:, 0], out[:, 1] + FIRST_DEVIATION

    def _nodes(self, graph: jraph.GraphsTuple) -> jax.Array:
        """States of nodes, [N, H]."""
        nodes = graph.nodes
        columns = (
            nodes["numeric"],
            nodes["state"],
            self.op_embedding[...][nodes["opcode"]],
            self.dtype_embedding[...][nodes["dtype"]],
        )
        x: jax.Array = jax.nn.relu(self.embed(jnp.concatenate(columns, axis=1)))
        for message, update, norm in zip(
            self.messages, self.updates, self.message_norms, strict=True
        ):
            received = self._receive(graph, jax.nn.relu(message(x)))
            x = norm(x + jax.nn.relu(update(jnp.concatenate([x, *received], axis=1))))
        return x

    def _receive(self, graph: jraph.GraphsTuple, sent: jax.Array) -> list[jax.Array]:
        """What every node receives, four arrays [N, H], given what it sends, [N, 3H], not negative."""
        nodes, count = graph.nodes, len(sent)
        caller = graph.globals["caller"]
        to_users, to_operands, shared = jnp.split(sent, 3, axis=1)
        inside = jraph.segment_mean(shared, nodes["computation"], len(caller))
        called = jraph.segment_sum(inside, caller, count).at[count - 1].set(0.0)
        return [
            _segment_max(to_users[graph.senders], graph.receivers, count),
            _segment_max(to_operands[graph.receivers], graph.senders, count),
            inside[nodes["computation"]],
            called,
        ]

    def _alternatives(self, x: jax.Array, summary: jax.Array, choices: Choices) -> jax.Array:
        """States of alternatives before they know of each other, [A, H]."""
        count = len(choices.kind)
        changed = x[choices.edit_node]
        mean = jraph.segment_mean(changed, choices.edit_row, count)
        most = jraph.segment_max(changed, choices.edit_row, count)
        columns = (
            choices.numeric,
            self.kind_embedding[...][choices.kind],
            x[choices.site],
            mean,
            jnp.where(jnp.isfinite(most), most, 0.0),
            summary[choices.state],
        )
        wide = jax.nn.relu(self.alternative(jnp.concatenate(columns, axis=1)))
        out: jax.Array = jax.nn.relu(self.narrow(wide))
        return out

    def _attend(self, qkv: jax.Array, choices: Choices) -> jax.Array:
        """Every alternative attends to those of its state, [A, 3H] -> [A, H]."""
        heads, count = self.config.heads, len(qkv)
        query, keys, values = jnp.moveaxis(qkv.reshape(count, 3, heads, -1), 1, 0)
        scores = jnp.einsum("qhd,khd->hqk", query, keys) / jnp.sqrt(float(query.shape[-1]))
        seen = (choices.state[:, None] == choices.state) & choices.real
        weights = jax.nn.softmax(jnp.where(seen, scores, FORBIDDEN))
        return jnp.einsum("hqk,khd->qhd", weights, values).reshape(count, -1)


def _segment_max(data: jax.Array, segments: jax.Array, count: int) -> jax.Array:
    """Maximum of non-negative rows per segment, 0 where a segment is empty; [count, H]."""
    return jnp.maximum(jraph.segment_max(data, segments, count), 0.0)
