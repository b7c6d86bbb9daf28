"""The policy network in flax, for training.

GraphSAGE-style messages with max-pool aggregation along both edge directions and over computations
(Hamilton et al. 2017; Zhou et al., "Transferable Graph Optimizers for ML Compilers", NeurIPS 2020,
section 3), then one recurrent attention stack that every decision field runs through in turn: its state, and
the decisions taken so far, feed the next field. All nodes are decided in one pass per field; the joint
probability of a decision vector is the product of p(field | fields decoded before it).
`graphopt.policy.network.numpy_network` is the same network in numpy.

Axis letters: N padded nodes, E padded edges, H hidden width, B decision vectors, V values of a field.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import jraph
from flax import nnx

from graphopt.policy.network.config import GAINS, ModelConfig
from graphopt.policy.network.decision_space import DECODED, VALUE_FEATURES

FORBIDDEN: Final = -1e9
"""Logit of a forbidden value."""

Actions = dict[str, jax.Array]
"""Field name -> int32 [N]."""


def _linear(
    inputs: int, outputs: int, rngs: nnx.Rngs, zero: bool = False, bias: bool = True
) -> Any:
    init = nnx.initializers.zeros_init() if zero else nnx.initializers.lecun_normal()
    return nnx.Linear(inputs, outputs, use_bias=bias, kernel_init=init, rngs=rngs)


def _norm(width: int, rngs: nnx.Rngs) -> Any:
    return nnx.LayerNorm(width, epsilon=1e-6, use_fast_variance=False, rngs=rngs)


class Block(nnx.Module):
    """One pre-norm attention layer over segments, its inputs modulated by the graph's embedding."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs) -> None:
        """Creates the parameters; the layer starts as the identity modulation."""
        width = config.hidden
        self.config = config
        self.attend_norm = _norm(width, rngs)
        self.dense_norm = _norm(width, rngs)
        self.modulation = _linear(width, width, rngs, zero=True)
        self.qkv = _linear(width, 3 * width, rngs)
        self.mix = _linear(width, width, rngs)
        self.dense_in = _linear(width, 2 * width, rngs)
        self.dense_out = _linear(2 * width, width, rngs)

    def __call__(self, x: jax.Array, summary: jax.Array, real: jax.Array) -> jax.Array:
        """States [N, H] -> [N, H]; summary [H]; real bool [N]."""
        scale = jnp.ones_like(summary)
        if self.config.superposition:
            scale = 1.0 + jnp.tanh(self.modulation(summary))
        if self.config.attention:
            x = x + self.mix(self._attend(self.qkv(self.attend_norm(x) * scale), real))
        out: jax.Array = x + self.dense_out(jax.nn.relu(self.dense_in(self.dense_norm(x) * scale)))
        return out

    def _attend(self, qkv: jax.Array, real: jax.Array) -> jax.Array:
        """Each segment attends to itself and the one before; [N, 3H] -> [N, H]."""
        config = self.config
        length, heads = config.segment, config.heads
        segments, width = len(qkv) // length, config.hidden // heads
        split = qkv.reshape(segments, length, 3, heads, width)
        query, keys, values = split[:, :, 0], split[:, :, 1], split[:, :, 2]
        keys, values = _with_previous(keys), _with_previous(values)
        seen = _with_previous(real.reshape(segments, length))
        scores = jnp.einsum("sqhd,skhd->shqk", query, keys) / jnp.sqrt(float(width))
        scores = jnp.where(seen[:, None, None, :], scores, FORBIDDEN)
        out = jnp.einsum("shqk,skhd->sqhd", jax.nn.softmax(scores), values)
        return out.reshape(len(qkv), config.hidden)


def _with_previous(x: jax.Array) -> jax.Array:
    """[segments, length, ...] -> [segments, 2 length, ...]; zeros before the first."""
    before = jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    return jnp.concatenate([before, x], axis=1)


class Head(nnx.Module):
    """Scores the values of one field against node states; starts indifferent."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs) -> None:
        """Creates the parameters."""
        self.query = _linear(config.hidden, config.key, rngs, zero=True)
        self.keys = _linear(len(VALUE_FEATURES), config.key, rngs)
        self.bias = _linear(len(VALUE_FEATURES), 1, rngs, zero=True, bias=False)

    def __call__(self, state: jax.Array, values: jax.Array) -> jax.Array:
        """State [N, H], values [V, features] -> scores [N, V]."""
        scores: jax.Array = self.query(state) @ self.keys(values).T + self.bias(values)[:, 0]
        return scores


def deviation_logits(
    scores: jax.Array, mask: jax.Array, start: jax.Array, start_logit: jax.Array
) -> jax.Array:
    """Logits [N, V] of a field from scores, such that zero scores mean the decision that is started from.

    That value gets `start_logit`; the other allowed values share the rest evenly, so that
    their number does not matter.
    """
    is_start = jnp.arange(scores.shape[1]) == start[:, None]
    others = jnp.maximum((mask & ~is_start).sum(1, keepdims=True), 1)
    logits = jnp.where(is_start, scores + start_logit, scores - jnp.log(others))
    return jnp.where(mask, logits, FORBIDDEN)


class PolicyNetwork(nnx.Module):
    """Node features in, logits of every field, a value and a gain out."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs) -> None:
        """Creates the parameters named in `graphopt.policy.network.config.parameter_shapes`."""
        from graphopt.policy.network.features import DTYPE_NAMES, OP_NAMES, numeric_names

        h, values = config.hidden, len(VALUE_FEATURES)
        normal = nnx.initializers.normal(0.3)
        self.config = config
        self.op_embedding = nnx.Param(normal(rngs.params(), (len(OP_NAMES), config.op_width)))
        self.dtype_embedding = nnx.Param(
            normal(rngs.params(), (len(DTYPE_NAMES), config.dtype_width))
        )
        self.stage_embedding = nnx.Param(normal(rngs.params(), (len(DECODED), h)))
        self.start_logit = nnx.Param(jnp.full((len(DECODED),), config.start_logit))
        inputs = len(numeric_names()) + config.op_width + config.dtype_width
        self.embed = _linear(inputs, h, rngs)
        self.messages = nnx.List(_linear(h, 3 * h, rngs) for _ in range(config.layers))
        self.updates = nnx.List(_linear(6 * h, h, rngs) for _ in range(config.layers))
        self.message_norms = nnx.List(_norm(h, rngs) for _ in range(config.layers))
        self.summary = _linear(3 * h, h, rngs)
        self.blocks = nnx.List(Block(config, rngs) for _ in range(config.depth))
        self.head_norm = _norm(h, rngs)
        self.heads = nnx.List(Head(config, rngs) for _ in DECODED)
        self.draft = _linear(values, h, rngs)
        self.decision_in = _linear(values + 1, config.decision, rngs)
        self.decision_out = _linear(3 * config.decision, h, rngs)
        self.value_hidden = _linear(h, h, rngs)
        self.value_out = _linear(h, 1, rngs, zero=True)
        self.gain_in = _linear(3 * h, h, rngs)
        self.gain_hidden = _linear(2 * h, h, rngs, bias=False)
        self.gain_out = _linear(h, GAINS, rngs, zero=True, bias=False)

    def trunk(self, graph: jraph.GraphsTuple) -> tuple[jax.Array, jax.Array]:
        """Node states [N, H] and the graph's summary [H], before any decision."""
        nodes = graph.nodes
        columns = (
            nodes["numeric"],
            self.op_embedding[...][nodes["opcode"]],
            self.dtype_embedding[...][nodes["dtype"]],
        )
        x = jax.nn.relu(self.embed(jnp.concatenate(columns, axis=1)))
        for message, update, norm in zip(
            self.messages, self.updates, self.message_norms, strict=True
        ):
            received = self._receive(graph, jax.nn.relu(message(x)))
            x = norm(x + jax.nn.relu(update(jnp.concatenate([x, *received], axis=1))))
        x = jnp.where(nodes["real"][:, None], x, 0.0)
        mean = x.sum(0) / nodes["real"].sum()
        top = jnp.where(nodes["real"][:, None], x, -jnp.inf).max(0)
        pooled = jnp.concatenate([mean, nodes["share"] @ x, top])
        return x, jnp.tanh(self.summary(pooled))

    def _receive(self, graph: jraph.GraphsTuple, sent: jax.Array) -> list[jax.Array]:
        """What each node receives, given the messages [N, 3H] (not negative) that every node sends.

        Five arrays [N, H]: from operands, from users, from the node's computation, from the computations
        that it calls, and from the node that calls its computation.
        """
        count = len(sent)
        nodes = graph.nodes
        to_users, to_operands, shared = jnp.split(sent, 3, axis=1)
        shared = jnp.where(nodes["real"][:, None], shared, 0.0)
        inside = _segment_max(shared, nodes["first"], count)
        callee = _segment_max(inside, nodes["caller"], count)
        callee = jnp.where(nodes["real"][:, None], callee, 0.0)
        calling = jnp.where(nodes["real"][:, None], to_users, 0.0)[nodes["caller"]]
        return [
            _segment_max(to_users[graph.senders], graph.receivers, count),
            _segment_max(to_operands[graph.receivers], graph.senders, count),
            inside[nodes["first"]],
            callee,
            calling[nodes["first"]],
        ]

    def value(self, summary: jax.Array) -> jax.Array:
        """Expected reward of sampled decisions, a scalar."""
        out: jax.Array = self.value_out(jax.nn.relu(self.value_hidden(summary)))
        return out[0]

    def decode(
        self, graph: jraph.GraphsTuple, x: jax.Array, summary: jax.Array, actions: Actions
    ) -> tuple[Actions, jax.Array]:
        """Logits of every field, [N, V] each, given the decisions of earlier fields; and the gains [2].

        Args:
            graph: the padded graph.
            x: node states [N, H] of `trunk`.
            summary: [H] of `trunk`.
            actions: the decisions taken; a field's logits depend on the fields decoded before it.
        """
        nodes = graph.nodes
        state = x + self._draft(graph, x) if self.config.joint else x
        logits: Actions = {}
        told = jnp.zeros_like(x)
        deviates = jnp.zeros(len(x), bool)
        for index, name in enumerate(DECODED):
            stage = state + self.stage_embedding[...][index]
            for block in self.blocks:
                stage = block(stage, summary, nodes["real"])
            logits[name] = self._logits(graph, index, stage)
            message = self._tell(graph, name, actions[name])
            told = told + message
            deviates = deviates | (actions[name] != nodes[f"start.{name}"])
            state = stage + message if self.config.joint else x
        return logits, self._gain(graph, x, summary, told, deviates)

    def _logits(self, graph: jraph.GraphsTuple, index: int, stage: jax.Array) -> jax.Array:
        name = DECODED[index]
        nodes = graph.nodes
        scores = self.heads[index](self.head_norm(stage), graph.globals[f"values.{name}"])
        return deviation_logits(
            scores, nodes[f"mask.{name}"], nodes[f"start.{name}"], self.start_logit[...][index]
        )

    def _draft(self, graph: jraph.GraphsTuple, x: jax.Array) -> jax.Array:
        """Where each node would run before anything is fused, [N, H]: the value of a fusion depends on it."""
        draft = jax.nn.softmax(self._logits(graph, DECODED.index("unit"), x))
        out: jax.Array = self.draft(draft @ graph.globals["values.unit"])
        return out

    def _tell(self, graph: jraph.GraphsTuple, name: str, action: jax.Array) -> jax.Array:
        """A field's decisions as messages [N, H]: the node's own, its operands' mean, its users' mean."""
        nodes = graph.nodes
        differs = (action != nodes[f"start.{name}"]).astype(jnp.float32)
        described = graph.globals[f"values.{name}"][action]
        code = jax.nn.relu(self.decision_in(jnp.concatenate([described, differs[:, None]], axis=1)))
        count = len(code)
        from_operands = jraph.segment_mean(code[graph.senders], graph.receivers, count)
        from_users = jraph.segment_mean(code[graph.receivers], graph.senders, count)
        out: jax.Array = self.decision_out(
            jnp.concatenate([code, from_operands, from_users], axis=1)
        )
        return out

    def _gain(
        self,
        graph: jraph.GraphsTuple,
        x: jax.Array,
        summary: jax.Array,
        told: jax.Array,
        deviates: jax.Array,
    ) -> jax.Array:
        """Expected log speed-up over the start and its low quantile, [2]; exactly 0 for the start itself."""
        wide = jnp.broadcast_to(summary, x.shape)
        z = jax.nn.relu(self.gain_in(jnp.concatenate([x, told, wide], axis=1)))
        z = jnp.where((deviates & graph.nodes["real"])[:, None], z, 0.0)
        pooled = jnp.concatenate([graph.nodes["share"] @ z, z.max(0)])
        out: jax.Array = self.gain_out(jax.nn.relu(self.gain_hidden(pooled)))
        return out


def _segment_max(data: jax.Array, segments: jax.Array, count: int) -> jax.Array:
    """Maximum of non-negative rows per segment, 0 where a segment is empty; [count, H]."""
    return jnp.maximum(jraph.segment_max(data, segments, count), 0.0)


def log_probabilities(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Log-probability of every node's action, [N]."""
    logs = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(logs, action[:, None], axis=1)[:, 0]


def entropies(logits: jax.Array) -> jax.Array:
    """Entropy of every node's choice, [N]; forbidden values add nothing."""
    logs = jax.nn.log_softmax(logits)
    return -(jnp.exp(logs) * jnp.where(logits > FORBIDDEN / 2, logs, 0.0)).sum(1)
