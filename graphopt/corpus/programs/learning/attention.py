"""Transformers: encoders, decoders, and variants of attention."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import (
    Family,
    Tree,
    cross_entropy,
    join_heads,
    layer_norm,
    rms_norm,
    split_heads,
)

TRANSFORMER = Family("transformer")
ATTENTION = Family("attention")
FAMILIES = (TRANSFORMER, ATTENTION)


def _block_params(draws: Draws, width: int) -> Tree:
    return {
        "qkv": draws.dense(width, 3 * width),
        "out": draws.dense(width, width),
        "up": draws.dense(width, 4 * width),
        "down": draws.dense(4 * width, width),
        "scales": 1.0 + draws.normal(2, width, scale=0.1),
    }


def _mix(query: Array, key: Array, value: Array, causal: bool) -> Array:
    """Attention on [B, H, T, D]."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(query.shape[-1])
    if causal:
        allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(allowed, scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), value)


def _block(params: Tree, x: Array, heads: int, causal: bool) -> Tree:
    qkv = jnp.split(layer_norm(x, params["scales"][0]) @ params["qkv"], 3, axis=-1)
    query, key, value = (split_heads(part, heads) for part in qkv)
    x = x + join_heads(_mix(query, key, value, causal)) @ params["out"]
    return x + jax.nn.gelu(layer_norm(x, params["scales"][1]) @ params["up"]) @ params["down"]


@TRANSFORMER.program(
    "linen_encoder_forward", "three post-norm linen encoder layers on f32[4,32,64]"
)
def _linen_encoder_forward() -> Built:
    class Encoder(linen.Module):  # type: ignore[misc, unused-ignore]
        @linen.compact  # type: ignore[untyped-decorator, unused-ignore]
        def __call__(self, x: Array) -> Tree:
            for _ in range(3):
                mixed = linen.MultiHeadDotProductAttention(num_heads=4)(x, x)
                x = linen.LayerNorm()(x + mixed)
                hidden = linen.Dense(64)(linen.relu(linen.Dense(128)(x)))
                x = linen.LayerNorm()(x + hidden)
            return x

    draws = Draws(0)
    x = draws.normal(4, 32, 64)
    key = jax.eval_shape(lambda: jax.random.key(0))
    model = Encoder()
    return model.apply, (draws.parameters(model.init, key, x), x)


def _lm_params(draws: Draws, layers: int, vocabulary: int, width: int, steps: int) -> Tree:
    return {
        "embed": draws.normal(vocabulary, width),
        "place": draws.normal(steps, width, scale=0.1),
        "blocks": [_block_params(draws, width) for _ in range(layers)],
    }


def _gpt_loss(params: Tree, tokens: Array) -> Array:
    x = params["embed"][tokens[:, :-1]] + params["place"]
    for block in params["blocks"]:
        x = _block(block, x, heads=4, causal=True)
    return cross_entropy(layer_norm(x) @ params["embed"].T / 8.0, tokens[:, 1:])


@TRANSFORMER.program(
    "gpt_train_step", "AdamW step of a 2-layer decoder on i32[4,33], width 64", gradient=True
)
def _gpt_train_step() -> Built:
    draws = Draws(1)
    params = _lm_params(draws, 2, 128, 64, 32)
    optimizer = optax.adamw(1e-3)

    def step(params: Tree, state: Tree, tokens: Array) -> Tree:
        loss, grads = jax.value_and_grad(_gpt_loss)(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    state = Draws(2).parameters(optimizer.init, params)
    state = jax.tree.map(lambda leaf: np.abs(leaf) * 0.1, state)
    return step, (params, state, draws.integers(128, 4, 33))


@TRANSFORMER.program(
    "scanned_layers_grad",
    "gradient of six encoder layers run as one scan, f32[2,24,48]",
    gradient=True,
    loops=True,
)
def _scanned_layers_grad() -> Built:
    draws = Draws(3)
    blocks = [_block_params(draws, 48) for _ in range(6)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *blocks)

    def loss(blocks: Tree, x: Array) -> Array:
        def layer(x: Array, block: Tree) -> tuple[Array, None]:
            return _block(block, x, heads=4, causal=False), None

        return jnp.mean(lax.scan(layer, x, blocks)[0] ** 2)

    return jax.value_and_grad(loss), (stacked, draws.normal(2, 24, 48))


def _rotate(x: Array) -> Array:
    """Rotary embedding of [B, H, T, D]."""
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[-2], dtype=jnp.float32)[:, None] * rate
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cosine - right * sine, left * sine + right * cosine], axis=-1)


def _llama_params(draws: Draws) -> Tree:
    return {
        "q": draws.dense(64, 64),
        "kv": draws.dense(64, 32),
        "out": draws.dense(64, 64),
        "up": draws.dense(64, 352),
        "down": draws.dense(176, 64),
        "scales": 1.0 + draws.normal(2, 64, scale=0.1),
    }


def _llama_block(params: Tree, x: Array) -> Tree:
    """Rotary grouped-query attention and a gated feed-forward layer on [B, T, 64]."""
    normed = rms_norm(x, params["scales"][0])
    query = _rotate(split_heads(normed @ params["q"], 8))
    key, value = (split_heads(part, 2) for part in jnp.split(normed @ params["kv"], 2, axis=-1))
    key = jnp.repeat(_rotate(key), 4, axis=1)
    mixed = _mix(query, key, jnp.repeat(value, 4, axis=1), causal=True)
    x = x + join_heads(mixed) @ params["out"]
    gate, up = jnp.split(rms_norm(x, params["scales"][1]) @ params["up"], 2, axis=-1)
    return x + (jax.nn.silu(gate) * up) @ params["down"]


@TRANSFORMER.program("llama_block", "rotary grouped-query block with a gated MLP, f32[2,48,64]")
def _llama_block_forward() -> Built:
    draws = Draws(4)
    return _llama_block, (_llama_params(draws), draws.normal(2, 48, 64))


@TRANSFORMER.program(
    "llama_remat_grad", "gradient of two rematerialized rotary blocks, f32[2,32,64]", gradient=True
)
def _llama_remat_grad() -> Built:
    draws = Draws(5)

    def loss(blocks: Tree, x: Array) -> Array:
        for block in blocks:
            x = jax.checkpoint(_llama_block)(block, x)
        return jnp.mean(x**2)

    blocks = [_llama_params(draws), _llama_params(draws)]
    return jax.value_and_grad(loss), (blocks, draws.normal(2, 32, 64))


@TRANSFORMER.program(
    "kv_cache_decode",
    "24 decoding steps with a key-value cache f32[2,2,32,64] in place",
    loops=True,
)
def _kv_cache_decode() -> Built:
    draws = Draws(6)
    params = _lm_params(draws, 2, 96, 64, 32)

    def decode(params: Tree, tokens: Array) -> Tree:
        batch = tokens.shape[0]
        cache = [(jnp.zeros((batch, 32, 64)), jnp.zeros((batch, 32, 64))) for _ in params["blocks"]]

        def step(carry: Tree, place: Array) -> tuple[Tree, Tree]:
            cache, token = carry
            x, fresh = params["embed"][token] + params["place"][place], []
            for block, (keys, values) in zip(params["blocks"], cache, strict=True):
                qkv = jnp.split(layer_norm(x, block["scales"][0]) @ block["qkv"], 3, axis=-1)
                keys, values = keys.at[:, place].set(qkv[1]), values.at[:, place].set(qkv[2])
                scores = jnp.einsum("bd,btd->bt", qkv[0], keys) / 8.0
                scores = jnp.where(jnp.arange(32) <= place, scores, -1e9)
                mixed = jnp.einsum("bt,btd->bd", jax.nn.softmax(scores, axis=-1), values)
                x = x + mixed @ block["out"]
                hidden = jax.nn.gelu(layer_norm(x, block["scales"][1]) @ block["up"])
                x = x + hidden @ block["down"]
                fresh.append((keys, values))
            logits = layer_norm(x) @ params["embed"].T
            token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
            return (fresh, token), (token, jax.nn.logsumexp(logits, axis=-1))

        return lax.scan(step, (cache, tokens), jnp.arange(24))[1]

    return decode, (params, draws.integers(96, 2))


@TRANSFORMER.program(
    "encoder_decoder_grad",
    "translation loss and gradient, encoder and decoder layers, f32[2,20,48]",
    gradient=True,
)
def _encoder_decoder_grad() -> Built:
    draws = Draws(7)
    params = {
        "embed": draws.normal(96, 48),
        "encoder": _block_params(draws, 48),
        "decoder": _block_params(draws, 48),
        "query": draws.dense(48, 48),
        "memory": draws.dense(48, 96),
    }

    def loss(params: Tree, source: Array, target: Array) -> Array:
        memory = _block(params["encoder"], params["embed"][source], heads=4, causal=False)
        x = _block(params["decoder"], params["embed"][target[:, :-1]], heads=4, causal=True)
        key, value = jnp.split(layer_norm(memory) @ params["memory"], 2, axis=-1)
        parts = [split_heads(part, 4) for part in (x @ params["query"], key, value)]
        x = x + join_heads(_mix(parts[0], parts[1], parts[2], causal=False))
        return cross_entropy(layer_norm(x) @ params["embed"].T, target[:, 1:])

    tokens = (draws.integers(96, 2, 20), draws.integers(96, 2, 17))
    return jax.value_and_grad(loss), (params, *tokens)


def _qkv(seed: int, *shape: int) -> Tree:
    draws = Draws(seed)
    return tuple(draws.normal(*shape) for _ in range(3))


@ATTENTION.program("linear_attention", "causal linear attention with elu features, f32[2,4,64,16]")
def _linear_attention() -> Built:
    def attend(query: Array, key: Array, value: Array) -> Array:
        query, key = jax.nn.elu(query) + 1.0, jax.nn.elu(key) + 1.0
        outer = jnp.cumsum(jnp.einsum("bhtk,bhtv->bhtkv", key, value), axis=2)
        total = jnp.cumsum(key, axis=2)
        above = jnp.einsum("bhtk,bhtkv->bhtv", query, outer)
        return above / (jnp.sum(query * total, axis=-1, keepdims=True) + 1e-6)

    return attend, _qkv(0, 2, 4, 64, 16)


def _online_softmax(query: Array, key: Array, value: Array) -> Array:
    """Attention over key blocks with a running maximum; [B, H, T, D]."""
    blocks = [x.reshape(*x.shape[:2], -1, 16, x.shape[3]) for x in (key, value)]
    scaled = query / math.sqrt(query.shape[-1])

    def step(carry: Tree, block: Tree) -> tuple[Tree, None]:
        top, total, mixed = carry
        scores = jnp.einsum("bhqd,bhkd->bhqk", scaled, block[0])
        fresh = jnp.maximum(top, jnp.max(scores, axis=-1))
        weights, shrink = jnp.exp(scores - fresh[..., None]), jnp.exp(top - fresh)
        mixed = shrink[..., None] * mixed + jnp.einsum("bhqk,bhkd->bhqd", weights, block[1])
        return (fresh, shrink * total + jnp.sum(weights, axis=-1), mixed), None

    start = (jnp.full(query.shape[:3], -1e30), jnp.zeros(query.shape[:3]), jnp.zeros_like(query))
    moved = tuple(jnp.moveaxis(block, 2, 0) for block in blocks)
    (_, total, mixed), _ = lax.scan(step, start, moved)
    return mixed / total[..., None]


@ATTENTION.program(
    "online_softmax_attention",
    "attention by key blocks with a running maximum, f32[2,4,96,16]",
    loops=True,
)
def _online_softmax_attention() -> Built:
    return _online_softmax, _qkv(1, 2, 4, 96, 16)


@ATTENTION.program(
    "online_softmax_grad",
    "gradient of attention by key blocks, f32[1,4,64,16]",
    gradient=True,
    loops=True,
)
def _online_softmax_grad() -> Built:
    def loss(*parts: Array) -> Array:
        return jnp.sum(jnp.sin(_online_softmax(*parts)))

    return jax.grad(loss, argnums=(0, 1, 2)), _qkv(2, 1, 4, 64, 16)


@ATTENTION.program(
    "banded_attention_grad",
    "gradient of attention within a band and with ALiBi slopes, f32[2,4,64,16]",
    gradient=True,
)
def _banded_attention_grad() -> Built:
    def loss(query: Array, key: Array, value: Array) -> Array:
        steps = query.shape[2]
        gap = jnp.arange(steps)[:, None] - jnp.arange(steps)[None]
        slope = 2.0 ** -jnp.arange(1.0, 5.0)
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / 4.0
        scores = scores - slope[:, None, None] * jnp.abs(gap).astype(jnp.float32)
        scores = jnp.where(jnp.abs(gap) < 12, scores, -1e9)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), value)
        return jnp.mean(mixed**2)

    return jax.value_and_grad(loss, argnums=(0, 1, 2)), _qkv(3, 2, 4, 64, 16)


@ATTENTION.program("cosine_attention", "cosine attention with learned temperatures, f32[4,4,48,24]")
def _cosine_attention() -> Built:
    def attend(query: Array, key: Array, value: Array, heat: Array) -> Array:
        query = query * lax.rsqrt(jnp.sum(query**2, axis=-1, keepdims=True) + 1e-6)
        key = key * lax.rsqrt(jnp.sum(key**2, axis=-1, keepdims=True) + 1e-6)
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) * jnp.exp(heat)[:, None, None]
        scores = scores - jnp.max(scores, axis=-1, keepdims=True)
        weights = jnp.exp(scores)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, value)
        return mixed / jnp.sum(weights, axis=-1)[..., None]

    return attend, (*_qkv(4, 4, 4, 48, 24), Draws(5).normal(4))
