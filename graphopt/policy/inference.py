"""The policy network in numpy: no compilation, no framework, a few milliseconds per graph.

The same function as `graphopt.policy.network`, to rounding, on unpadded arrays. It is what runs inside
XLA's compile, and what draws samples in training.

Axis letters: N nodes, E edges, C computations, H hidden width, V values of a field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions
from graphopt.policy.features import Features
from graphopt.policy.model import ModelConfig
from graphopt.policy.space import DECODED, FieldInput

Array = NDArray[Any]
"""float32 throughout."""

Ints = NDArray[np.int64]
Parameters = Mapping[str, Array]
"""Parameter name -> float32 array; names and shapes of `graphopt.policy.model.parameter_shapes`."""

Choose = Callable[[FieldInput, Array, NDArray[np.bool_]], Ints]
"""(field, logits [N, V], relevant bool [N]) -> chosen values [N]."""

FORBIDDEN: Final = np.float32(-1e9)
_CHUNK: Final = 16
"""Attention segments computed at once: their scores stay in cache."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A graph after the trunk, ready to be decoded any number of times.

    Attributes:
        features: what was encoded.
        edges: aggregation over its edges.
        x: float32 [N, H]; node states.
        summary: float32 [H]; the graph's summary.
        scales: float32 [H] per attention layer; graph-conditioned modulation.
        start: float32 [N, H]; state from which the first field is decoded.
    """

    features: Features
    edges: Edges
    x: Array
    summary: Array
    scales: tuple[Array, ...]
    start: Array

    @property
    def fields(self) -> tuple[FieldInput, ...]:
        """The decision fields, in decoding order."""
        return self.features.fields


@dataclass(frozen=True, eq=False)
class Decoded:
    """One decision vector with all that the network says about it.

    Attributes:
        actions: field name -> int64 [N].
        logits: field name -> float32 [N, V], given the earlier fields' actions.
        relevant: field name -> bool [N]; the field counts for the node and has a choice.
        gain: float32 [2]; expected log speed-up over the start, and its low quantile.
    """

    actions: dict[str, Ints]
    logits: dict[str, Array]
    relevant: dict[str, NDArray[np.bool_]]
    gain: Array


class Edges:
    """Maximum and mean over operands and over users."""

    def __init__(self, features: Features) -> None:
        """Sorts the edges both ways."""
        count = len(features)
        order = np.argsort(features.senders, kind="stable")
        self.operand_of = features.senders
        self.user_of = features.receivers[order]
        self._by_user = _Groups(features.receivers, count)
        self._by_operand = _Groups(features.senders[order], count)

    def from_operands(self, x: Array, reduce: np.ufunc) -> Array:
        """`reduce` over each node's operands, [N, H]; 0 without any."""
        return self._by_user.reduce(x[self.operand_of], reduce)

    def from_users(self, x: Array, reduce: np.ufunc) -> Array:
        """`reduce` over each node's users, [N, H]; 0 without any."""
        return self._by_operand.reduce(x[self.user_of], reduce)

    def means(self, x: Array) -> tuple[Array, Array]:
        """Means over operands and over users, [N, H] each."""
        operands = self.from_operands(x, np.add) * self._by_user.inverse
        return operands, self.from_users(x, np.add) * self._by_operand.inverse


class _Groups:
    """Consecutive rows reduced to one row per group."""

    def __init__(self, ids: NDArray[np.int32], count: int) -> None:
        sizes = np.bincount(ids, minlength=count)
        self.count = count
        self.filled = np.flatnonzero(sizes)
        self.starts = (np.cumsum(sizes) - sizes)[self.filled]
        self.inverse = (1.0 / np.maximum(sizes, 1)).astype(np.float32)[:, None]

    def reduce(self, rows: Array, reduce: np.ufunc) -> Array:
        out = np.zeros((self.count, rows.shape[1]), np.float32)
        if len(self.filled):
            out[self.filled] = reduce.reduceat(rows, self.starts, axis=0)
        return out


class NumpyPolicy:
    """The network of one checkpoint.

    Attributes:
        config: the network's sizes.
        parameters: its parameters.
    """

    def __init__(self, config: ModelConfig, parameters: Parameters) -> None:
        """Takes parameters as they are; `graphopt.policy.checkpoint` checks what it loads."""
        self.config = config
        self.parameters = parameters

    def encode(self, features: Features) -> Encoded:
        """Runs the trunk once."""
        p = self.parameters
        columns = (
            features.numeric,
            p["op_embedding"][features.opcode],
            p["dtype_embedding"][features.dtype],
        )
        x = _relu(self._dense("embed", np.concatenate(columns, axis=1)))
        edges = Edges(features)
        for layer in range(self.config.layers):
            received = _receive(features, edges, _relu(self._dense(f"messages.{layer}", x)))
            joined = np.concatenate([x, *received], axis=1)
            x = self._norm(
                f"message_norms.{layer}", x + _relu(self._dense(f"updates.{layer}", joined))
            )
        pooled = np.concatenate([x.mean(axis=0), features.share @ x, x.max(axis=0)])
        summary = np.tanh(self._dense("summary", pooled))
        scales = tuple(self._scale(layer, summary) for layer in range(self.config.depth))
        start = x + self._draft(features, x) if self.config.joint else x
        return Encoded(features, edges, x, summary, scales, start)

    def value(self, encoded: Encoded) -> float:
        """Expected reward of sampled decisions."""
        hidden = _relu(self._dense("value_hidden", encoded.summary))
        return float(self._dense("value_out", hidden)[0])

    def decode(self, encoded: Encoded, choose: Choose) -> Decoded:
        """Decides field after field; `choose` picks the values."""
        state, told = encoded.start, np.zeros_like(encoded.x)
        actions: dict[str, Ints] = {}
        logits: dict[str, Array] = {}
        relevant: dict[str, NDArray[np.bool_]] = {}
        deviates = np.zeros(len(state), np.bool_)
        for index, field in enumerate(encoded.fields):
            stage = state + self.parameters["stage_embedding"][index]
            for layer in range(self.config.depth):
                stage = self._block(layer, stage, encoded.scales[layer])
            name = field.name
            relevant[name] = field.free
            if field.roots_only and "fuse" in actions:
                relevant[name] = relevant[name] & (actions["fuse"] == 0)
            logits[name] = self._logits(index, field, stage)
            actions[name] = choose(field, logits[name], relevant[name])
            differs = actions[name] != field.start
            message = self._tell(encoded.edges, field, actions[name], differs)
            told = told + message
            deviates |= differs
            state = stage + message if self.config.joint else encoded.x
        return Decoded(actions, logits, relevant, self._gain(encoded, told, deviates))

    def gain(self, encoded: Encoded, decisions: Decisions) -> Array:
        """Expected log speed-up over the start and its low quantile, float32 [2], of given decisions."""
        told = np.zeros_like(encoded.x)
        deviates = np.zeros(len(encoded.x), np.bool_)
        for field in encoded.fields:
            action = getattr(decisions, field.name).astype(np.int64)
            differs = action != field.start
            told = told + self._tell(encoded.edges, field, action, differs)
            deviates |= differs
        return self._gain(encoded, told, deviates)

    def _dense(self, name: str, x: Array) -> Array:
        out = x @ self.parameters[f"{name}.kernel"]
        bias = self.parameters.get(f"{name}.bias")
        if bias is not None:
            out += bias
        return out

    def _norm(self, name: str, x: Array) -> Array:
        centred: Array = x - x.mean(axis=-1, keepdims=True)
        variance = np.einsum("nh,nh->n", centred, centred)[:, None] / np.float32(x.shape[-1])
        centred *= 1.0 / np.sqrt(variance + np.float32(1e-6))
        centred *= self.parameters[f"{name}.scale"]
        centred += self.parameters[f"{name}.bias"]
        return centred

    def _scale(self, layer: int, summary: Array) -> Array:
        if not self.config.superposition:
            return np.ones_like(summary)
        scale: Array = 1.0 + np.tanh(self._dense(f"blocks.{layer}.modulation", summary))
        return scale

    def _block(self, layer: int, x: Array, scale: Array) -> Array:
        name = f"blocks.{layer}"
        if self.config.attention:
            qkv = self._dense(f"{name}.qkv", self._norm(f"{name}.attend_norm", x) * scale)
            x = x + self._dense(f"{name}.mix", attend(qkv, self.config))
        hidden = _relu(self._dense(f"{name}.dense_in", self._norm(f"{name}.dense_norm", x) * scale))
        return x + self._dense(f"{name}.dense_out", hidden)

    def _logits(self, index: int, field: FieldInput, stage: Array) -> Array:
        query = self._dense(f"heads.{index}.query", self._norm("head_norm", stage))
        keys = self._dense(f"heads.{index}.keys", field.values)
        scores = query @ keys.T + self._dense(f"heads.{index}.bias", field.values)[:, 0]
        return deviation_logits(scores, field, float(self.parameters["start_logit"][index]))

    def _draft(self, features: Features, x: Array) -> Array:
        index = DECODED.index("unit")
        field = features.fields[index]
        draft = np.exp(log_softmax(self._logits(index, field, x)))
        return self._dense("draft", draft @ field.values)

    def _tell(
        self, edges: Edges, field: FieldInput, action: Ints, differs: NDArray[np.bool_]
    ) -> Array:
        described = np.empty((len(action), field.values.shape[1] + 1), np.float32)
        described[:, :-1] = field.values[action]
        described[:, -1] = differs
        code = _relu(self._dense("decision_in", described))
        return self._dense("decision_out", np.concatenate([code, *edges.means(code)], axis=1))

    def _gain(self, encoded: Encoded, told: Array, deviates: NDArray[np.bool_]) -> Array:
        rows = np.flatnonzero(deviates)
        if not len(rows):
            return np.zeros(self.parameters["gain_out.kernel"].shape[1], np.float32)
        wide = np.broadcast_to(encoded.summary, (len(rows), len(encoded.summary)))
        z = _relu(
            self._dense("gain_in", np.concatenate([encoded.x[rows], told[rows], wide], axis=1))
        )
        pooled = np.concatenate([encoded.features.share[rows] @ z, z.max(axis=0)])
        return self._dense("gain_out", _relu(self._dense("gain_hidden", pooled)))


def attend(qkv: Array, config: ModelConfig) -> Array:
    """Each segment attends to itself and the one before; [N, 3H] -> [N, H]."""
    count, length, heads = len(qkv), config.segment, config.heads
    width = config.hidden // heads
    segments = -(-count // length)
    padded = np.zeros((segments + 1, length, 3, heads, width), np.float32)  # one of zeros before
    padded[1:].reshape(segments * length, -1)[:count] = qkv
    places = np.arange(-length, segments * length).reshape(segments + 1, length)
    seen = (places >= 0) & (places < count)
    out = np.empty((segments, length, heads, width), np.float32)
    for begin in range(0, segments, _CHUNK):
        end = min(begin + _CHUNK, segments)
        # [segments, heads, length, width] each
        query = padded[begin + 1 : end + 1, :, 0].transpose(0, 2, 1, 3) / np.float32(
            math.sqrt(width)
        )
        keys = _window(padded[:, :, 1], begin, end).transpose(0, 2, 3, 1)
        values = _window(padded[:, :, 2], begin, end).transpose(0, 2, 1, 3)
        scores = query @ keys
        hidden = ~_window(seen, begin, end)
        if hidden.any():
            scores += np.where(hidden, FORBIDDEN, np.float32(0.0))[:, None, None, :]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        total = scores.sum(axis=-1, keepdims=True)
        out[begin:end] = ((scores @ values) / total).transpose(0, 2, 1, 3)
    return out.reshape(segments * length, -1)[:count]


def _window(x: NDArray[Any], begin: int, end: int) -> NDArray[Any]:
    """Segments begin..end-1, each after its predecessor, along axis 1."""
    return np.concatenate([x[begin:end], x[begin + 1 : end + 1]], axis=1)


def deviation_logits(scores: Array, field: FieldInput, start_logit: float) -> Array:
    """See `graphopt.policy.network.deviation_logits`."""
    nodes = np.arange(len(scores))
    others = field.mask.sum(axis=1) - field.mask[nodes, field.start]
    logits: Array = scores - np.log(np.maximum(others, 1)).astype(np.float32)[:, None]
    logits[nodes, field.start] = scores[nodes, field.start] + np.float32(start_logit)
    logits[~field.mask] = FORBIDDEN
    return logits


def log_softmax(logits: Array) -> Array:
    """Log-probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def _relu(x: Array) -> Array:
    np.maximum(x, np.float32(0.0), out=x)
    return x


def _receive(features: Features, edges: Edges, sent: Array) -> list[Array]:
    """Messages of operands, users, the computation, called computations, and the calling node."""
    count = len(features)
    to_users, to_operands, shared = np.split(sent, 3, axis=1)
    sizes = np.diff(np.append(features.first, count))
    inside = np.maximum.reduceat(shared, features.first, axis=0)
    callee = np.zeros_like(shared)
    calling = np.zeros_like(inside)
    called = np.flatnonzero(features.caller >= 0)
    np.maximum.at(callee, features.caller[called], inside[called])
    calling[called] = to_users[features.caller[called]]
    return [
        edges.from_operands(to_users, np.maximum),
        edges.from_users(to_operands, np.maximum),
        np.repeat(inside, sizes, axis=0),
        callee,
        np.repeat(calling, sizes, axis=0),
    ]
