"""Transformer-XL: relative positions, and the states of the segment before as memory."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import (
    Family,
    Tree,
    cross_entropy,
    join_heads,
    layer_norm,
    split_heads,
)

TRANSFORMER_XL = Family("transformer-xl")
FAMILIES = (TRANSFORMER_XL,)


def _xl_params(draws: Draws, layers: int, width: int) -> Tree:
    def layer() -> Tree:
        return {
            "qkv": draws.dense(width, 3 * width),
            "out": draws.dense(width, width),
            "up": draws.dense(width, 4 * width),
            "down": draws.dense(4 * width, width),
            "scales": 1.0 + draws.normal(2, width, scale=0.1),
            "place": draws.dense(width, width),
            "content": draws.normal(width, scale=0.1),
            "distance": draws.normal(width, scale=0.1),
        }

    return {"embed": draws.normal(96, width), "layers": [layer() for _ in range(layers)]}


def _waves(length: int, width: int) -> Array:
    place = jnp.arange(length - 1, -1, -1, dtype=jnp.float32)
    rate = 10000.0 ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle = place[:, None] * rate
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def _relative_shift(x: Array) -> Array:
    """Move row i of [B, H, Q, K] by Q - 1 - i to the left."""
    batch, heads, queries, keys = x.shape
    padded = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (1, 0)))
    return padded.reshape(batch, heads, keys + 1, queries)[:, :, 1:].reshape(x.shape)


def _xl_layer(params: Tree, x: Array, memory: Array, heads: int) -> Array:
    """One layer on [B, T, D] with memory [B, M, D]."""
    both = jnp.concatenate([memory, x], axis=1)
    width, steps, length = x.shape[-1], x.shape[1], both.shape[1]
    weights = jnp.split(params["qkv"], 3, axis=-1)
    query = x @ weights[0]
    key, value = split_heads(both @ weights[1], heads), split_heads(both @ weights[2], heads)
    place = split_heads((_waves(length, width) @ params["place"])[None], heads)
    content = split_heads(query + params["content"], heads)
    distance = split_heads(query + params["distance"], heads)
    scores = jnp.einsum("bhqd,bhkd->bhqk", content, key)
    scores += _relative_shift(jnp.einsum("bhqd,xhkd->bhqk", distance, place))
    allowed = jnp.arange(length)[None] <= jnp.arange(steps)[:, None] + (length - steps)
    scores = jnp.where(allowed, scores / math.sqrt(width // heads), -1e9)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), value)
    x = layer_norm(x + join_heads(mixed) @ params["out"], params["scales"][0])
    return layer_norm(x + jax.nn.relu(x @ params["up"]) @ params["down"], params["scales"][1])


def _xl_segment(params: Tree, memories: list[Array], tokens: Array) -> tuple[Array, list[Array]]:
    """Loss on i32[B, T + 1], and the memories for the next segment."""
    x, fresh = params["embed"][tokens[:, :-1]], []
    for layer, memory in zip(params["layers"], memories, strict=True):
        fresh.append(lax.stop_gradient(x))
        x = _xl_layer(layer, x, memory, heads=4)
    return cross_entropy(x @ params["embed"].T / 8.0, tokens[:, 1:]), fresh


def _xl_inputs(seed: int, layers: int, batch: int, steps: int) -> Tree:
    draws = Draws(seed)
    params = _xl_params(draws, layers, 64)
    memories = [draws.normal(batch, steps, 64) for _ in range(layers)]
    return params, memories, draws.integers(96, batch, steps + 1)


@TRANSFORMER_XL.program("transformer_xl_2_grad", "2 layers, batch 2, segments of 24", gradient=True)
def _transformer_xl_2_grad() -> Built:
    return jax.value_and_grad(_xl_segment, has_aux=True), _xl_inputs(0, 2, 2, 24)


@TRANSFORMER_XL.program("transformer_xl_4_forward", "4 layers, batch 2, segments of 32")
def _transformer_xl_4_forward() -> Built:
    return _xl_segment, _xl_inputs(1, 4, 2, 32)


@TRANSFORMER_XL.program(
    "transformer_xl_segments", "3 layers over six segments of i32[2,16] in turn", loops=True
)
def _transformer_xl_segments() -> Built:
    def evaluate(params: Tree, memories: list[Array], segments: Array) -> Array:
        def step(memories: list[Array], tokens: Array) -> tuple[list[Array], Array]:
            loss, memories = _xl_segment(params, memories, tokens)
            return memories, loss

        losses: Array = lax.scan(step, memories, segments)[1]
        return losses

    params, memories, _ = _xl_inputs(2, 3, 2, 16)
    return evaluate, (params, memories, Draws(3).integers(96, 6, 2, 17))
