"""The policy network in numpy: no compilation, no framework, a few milliseconds per graph.

The same function as `graphopt.policy.network.flax_network`, to rounding, on unpadded arrays. It is what
runs inside XLA's compile, and what draws samples in training.

Axis letters: N nodes, E edges, C computations, H hidden width, V values of a field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions
from graphopt.policy.network.config import ModelConfig
from graphopt.policy.network.decision_space import DECODED, FieldInput
from graphopt.policy.network.features import Features
from graphopt.policy.network.numpy_ops import (
    FORBIDDEN,
    Array,
    Folded,
    Groups,
    attend,
    folded,
    log_softmax,
    norm,
    normed_product,
    product,
    relu,
)

Ints = NDArray[np.int64]
Parameters = Mapping[str, Array]
"""Parameter name -> float32 array; names and shapes of `graphopt.policy.network.config.parameter_shapes`."""

Choose = Callable[[FieldInput, Array, NDArray[np.bool_]], Ints]
"""(field, logits [N, V], relevant bool [N]) -> chosen values [N]."""


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
        kept: what every field's decoding needs again: folded kernels, and codes of a field's decisions.
    """

    features: Features
    edges: Edges
    x: Array
    summary: Array
    scales: tuple[Array, ...]
    start: Array
    kept: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)

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
        self._operands = Groups(features.senders, features.receivers, count)
        self._users = Groups(features.receivers[order], features.senders[order], count)

    def over_operands(self, x: Array) -> Array:
        """Maximum over each node's operands, [N, H]; 0 without any."""
        return self._operands.reduce(x, np.maximum)

    def over_users(self, x: Array) -> Array:
        """Maximum over each node's users, [N, H]; 0 without any."""
        return self._users.reduce(x, np.maximum)

    def means(self, x: Array) -> tuple[Array, Array]:
        """Means over operands and over users, [N, H] each; 0 without any."""
        operands = self._operands.reduce(x, np.add) * self._operands.inverse
        return operands, self._users.reduce(x, np.add) * self._users.inverse


class NumpyPolicy:
    """The network of one checkpoint.

    Attributes:
        config: the network's sizes.
        parameters: its parameters.
    """

    def __init__(self, config: ModelConfig, parameters: Parameters) -> None:
        """Takes parameters as they are; `graphopt.policy.network.checkpoint` checks what it loads."""
        self.config = config
        self.parameters = parameters
        self._folded: dict[str, Folded] = {}

    def encode(self, features: Features) -> Encoded:
        """Runs the trunk once."""
        p = self.parameters
        columns = (
            features.numeric,
            p["op_embedding"][features.opcode],
            p["dtype_embedding"][features.dtype],
        )
        x = relu(self._dense("embed", np.concatenate(columns, axis=1)))
        edges = Edges(features)
        for layer in range(self.config.layers):
            moved = relu(self._update(layer, features, edges, x))
            moved += x
            x = self._norm(f"message_norms.{layer}", moved)
        pooled = np.concatenate([x.mean(axis=0), features.share @ x, x.max(axis=0)])
        summary = np.tanh(self._dense("summary", pooled))
        scales = tuple(self._scale(layer, summary) for layer in range(self.config.depth))
        start = x + self._draft(features, x) if self.config.joint else x
        return Encoded(features, edges, x, summary, scales, start)

    def value(self, encoded: Encoded) -> float:
        """Expected reward of sampled decisions."""
        hidden = relu(self._dense("value_hidden", encoded.summary))
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
                stage = self._block(layer, stage, encoded)
            name = field.name
            relevant[name] = field.free
            if field.roots_only and "fuse" in actions:
                relevant[name] = relevant[name] & (actions["fuse"] == 0)
            logits[name] = self._logits(index, field, stage)
            actions[name] = choose(field, logits[name], relevant[name])
            differs = actions[name] != field.start
            message = self._tell(encoded, field, actions[name], differs)
            told = told + message
            deviates |= differs
            state = stage + message if self.config.joint else encoded.x
        return Decoded(actions, logits, relevant, self._gain(encoded, told, deviates))

    def gain(self, encoded: Encoded, decisions: Decisions) -> Array:
        """Expected log speed-up over the start and its low quantile, float32 [2], of given decisions."""
        told = np.zeros_like(encoded.x)
        deviates = np.zeros(len(encoded.x), np.bool_)
        if decisions.same_as(encoded.features.start):
            return self._gain(encoded, told, deviates)
        for field in encoded.fields:
            action = getattr(decisions, field.name).astype(np.int64)
            differs = action != field.start
            told = told + self._tell(encoded, field, action, differs)
            deviates |= differs
        return self._gain(encoded, told, deviates)

    def _update(self, layer: int, features: Features, edges: Edges, x: Array) -> Array:
        """The dense layer over the node's own state and five messages, each by its part of the kernel.

        The messages come from operands, users, the computation, called computations and the calling node.
        What is the same for a whole computation is multiplied once.
        """
        sent = relu(self._dense(f"messages.{layer}", x))
        to_users, to_operands, shared = np.split(sent, 3, axis=1)
        kernel = self.parameters[f"updates.{layer}.kernel"]
        own, of_operands, of_users, of_computation, of_callee, of_caller = kernel.reshape(
            6, -1, kernel.shape[1]
        )
        out = product(x, own)
        out += product(edges.over_operands(to_users), of_operands)
        out += product(edges.over_users(to_operands), of_users)
        inside = np.maximum.reduceat(shared, features.first, axis=0)
        once = inside @ of_computation
        called = np.flatnonzero(features.caller >= 0)
        callers, places = np.unique(features.caller[called], return_inverse=True)
        once[called] += (to_users[callers] @ of_caller)[places]
        out += np.repeat(once, np.diff(np.append(features.first, len(x))), axis=0)
        reached = np.zeros(
            (len(callers), shared.shape[1]), np.float32
        )  # as maxima over nothing are
        np.maximum.at(reached, places, inside[called])
        out[callers] += reached @ of_callee
        out += self.parameters[f"updates.{layer}.bias"]
        return out

    def _dense(self, name: str, x: Array) -> Array:
        kernel = self.parameters[f"{name}.kernel"]
        out = product(x, kernel) if x.ndim == 2 else x @ kernel
        bias = self.parameters.get(f"{name}.bias")
        if bias is not None:
            out += bias
        return out

    def _norm(self, name: str, x: Array) -> Array:
        return norm(x, self.parameters[f"{name}.scale"], self.parameters[f"{name}.bias"])

    def _normed(
        self,
        norm_name: str,
        name: str,
        x: Array,
        kept: dict[str, Folded],
        modulation: Array | None = None,
    ) -> Array:
        """A dense layer of normalised states, which `modulation` [H] multiplies before.

        Its kernel is folded once, into `kept`: for a graph, or without a modulation for all.
        """
        p = self.parameters
        by = kept.get(name)
        if by is None:
            scale, shift = p[f"{norm_name}.scale"], p[f"{norm_name}.bias"]
            if modulation is not None:
                scale, shift = scale * modulation, shift * modulation
            by = kept[name] = folded(scale, shift, p[f"{name}.kernel"])
        out = normed_product(x, by)
        bias = p.get(f"{name}.bias")
        if bias is not None:
            out += bias
        return out

    def _scale(self, layer: int, summary: Array) -> Array:
        if not self.config.superposition:
            return np.ones_like(summary)
        scale: Array = 1.0 + np.tanh(self._dense(f"blocks.{layer}.modulation", summary))
        return scale

    def _block(self, layer: int, x: Array, encoded: Encoded) -> Array:
        name, scale, kept = f"blocks.{layer}", encoded.scales[layer], encoded.kept
        if self.config.attention:
            qkv = self._normed(f"{name}.attend_norm", f"{name}.qkv", x, kept, scale)
            x = x + self._dense(f"{name}.mix", attend(qkv, self.config.heads, self.config.segment))
        hidden = relu(self._normed(f"{name}.dense_norm", f"{name}.dense_in", x, kept, scale))
        out = self._dense(f"{name}.dense_out", hidden)
        out += x
        return out

    def _logits(self, index: int, field: FieldInput, stage: Array) -> Array:
        query = self._normed("head_norm", f"heads.{index}.query", stage, self._folded)
        keys = self._dense(f"heads.{index}.keys", field.values)
        scores = query @ keys.T + self._dense(f"heads.{index}.bias", field.values)[:, 0]
        return deviation_logits(scores, field, float(self.parameters["start_logit"][index]))

    def _draft(self, features: Features, x: Array) -> Array:
        index = DECODED.index("unit")
        field = features.fields[index]
        draft = np.exp(log_softmax(self._logits(index, field, x)))
        return self._dense("draft", draft @ field.values)

    def _tell(
        self, encoded: Encoded, field: FieldInput, action: Ints, differs: NDArray[np.bool_]
    ) -> Array:
        count = len(field.values)
        known = encoded.kept.get(field.name)
        if known is None:
            described = np.zeros((2, count, field.values.shape[1] + 1), np.float32)  # kept, changed
            described[:, :, :-1] = field.values
            described[1, :, -1] = 1.0
            known = relu(self._dense("decision_in", described.reshape(2 * count, -1)))
            encoded.kept[field.name] = known
        code = known.take(action + count * differs, axis=0)
        parts = [code, *encoded.edges.means(code)]
        return self._dense("decision_out", np.concatenate(parts, axis=1))

    def _gain(self, encoded: Encoded, told: Array, deviates: NDArray[np.bool_]) -> Array:
        rows = np.flatnonzero(deviates)
        if not len(rows):
            return np.zeros(self.parameters["gain_out.kernel"].shape[1], np.float32)
        wide = np.broadcast_to(encoded.summary, (len(rows), len(encoded.summary)))
        z = relu(
            self._dense("gain_in", np.concatenate([encoded.x[rows], told[rows], wide], axis=1))
        )
        pooled = np.concatenate([encoded.features.share[rows] @ z, z.max(axis=0)])
        return self._dense("gain_out", relu(self._dense("gain_hidden", pooled)))


def deviation_logits(scores: Array, field: FieldInput, start_logit: float) -> Array:
    """See `graphopt.policy.network.flax_network.deviation_logits`."""
    nodes = np.arange(len(scores))
    others = field.mask.sum(axis=1) - field.mask[nodes, field.start]
    logits: Array = scores - np.log(np.maximum(others, 1)).astype(np.float32)[:, None]
    logits[nodes, field.start] = scores[nodes, field.start] + np.float32(start_logit)
    logits[~field.mask] = FORBIDDEN
    return logits
