"""What trained models do: decoding, quantized products, drawing of tokens."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.common import Program, Sizes, integers, normal


def rotate(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary embedding of (..., position, head, feature)."""
    half = x.shape[-1] // 2
    angles = positions[..., None, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def rms_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6) * gain


def cached_decode(width: int, steps: int) -> Program:
    """Greedy decoding with two layers, rotary positions, and a cache of keys and values."""
    heads, vocabulary, layers = 4, 256, 2
    size = width // heads

    def attend(p: Any, x: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array) -> Any:
        q, k, v = (jnp.dot(x, p[name]).reshape(1, heads, size) for name in ("q", "k", "v"))
        q, k = rotate(q, at[None]), rotate(k, at[None])
        keys = lax.dynamic_update_slice(keys, k, (at, 0, 0))
        values = lax.dynamic_update_slice(values, v, (at, 0, 0))
        scores = jnp.einsum("hd,shd->hs", q[0], keys) / jnp.sqrt(size)
        scores = jnp.where(jnp.arange(steps) <= at, scores, -jnp.inf)
        out = jnp.einsum("hs,shd->hd", jax.nn.softmax(scores, axis=-1), values)
        return out.reshape(width) @ p["o"], keys, values

    def decode(params: Any, token: jax.Array) -> jax.Array:
        def step(carry: Any, at: jax.Array) -> Any:
            token, cache = carry
            x = params["embed"][token]
            new = []
            for p, (keys, values) in zip(params["layers"], cache, strict=True):
                out, keys, values = attend(p, rms_norm(x, p["n1"]), keys, values, at)
                x = x + out
                y = rms_norm(x, p["n2"])
                x = x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]
                new.append((keys, values))
            token = jnp.argmax(x @ params["embed"].T).astype(jnp.int32)
            return (token, new), token

        empty = [
            (jnp.zeros((steps, heads, size)), jnp.zeros((steps, heads, size)))
            for _ in range(layers)
        ]
        return lax.scan(step, (token, empty), jnp.arange(steps))[1]

    def layer(seed: int) -> dict[str, jax.Array]:
        square = {
            name: normal(width, width, seed=seed + i, scale=width**-0.5)
            for i, name in enumerate("qkvo")
        }
        wide = {
            name: normal(width, 2 * width, seed=seed + 5, scale=width**-0.5)
            for name in ("gate", "up")
        }
        down = {"down": normal(2 * width, width, seed=seed + 6, scale=width**-0.5)}
        return square | wide | down | {n: jnp.ones(width, jnp.float32) for n in ("n1", "n2")}

    params = {"embed": normal(vocabulary, width), "layers": [layer(10 * i) for i in range(layers)]}
    return decode, (params, jnp.int32(1))


def quantized(width: int, batch: int) -> Program:
    """Three layers of int8 weights, activations quantized by row, accumulation in int32."""

    def quantize(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True) / 127.0 + 1e-8
        return jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8), scale

    def run(layers: Any, x: jax.Array) -> jax.Array:
        for w, w_scale, bias in layers:
            q, x_scale = quantize(x)
            total = lax.dot_general(
                q, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
            )
            x = jax.nn.gelu(total.astype(jnp.float32) * x_scale * w_scale + bias)
        return x

    def layer(seed: int) -> Any:
        w = np.random.default_rng(seed).integers(-127, 128, (width, width))
        return (
            jnp.asarray(w, jnp.int8),
            normal(width, seed=seed, scale=1e-4) + 1e-3,
            normal(width, seed=seed),
        )

    return run, ([layer(i) for i in range(3)], normal(batch, width))


def window_attention(length: int, window: int) -> Program:
    """Grouped queries, rotary positions, a causal window, and padding."""
    size = 16

    def run(q: jax.Array, k: jax.Array, v: jax.Array, lengths: jax.Array) -> jax.Array:
        at = jnp.arange(length)
        q, k = rotate(q, at), rotate(k, at)
        k, v = jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * size**-0.5
        scores = 30.0 * jnp.tanh(scores / 30.0)
        causal = (at[:, None] >= at[None, :]) & (at[:, None] - at[None, :] < window)
        present = at[None, :] < lengths[:, None]
        mask = causal[None, None] & present[:, None, None, :]
        weights = jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(jnp.float32).min), axis=-1)
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return jnp.where(present[..., None, None], out, 0.0)

    q, k, v = (normal(2, length, heads, size, seed=heads + i) for i, heads in enumerate((4, 2, 2)))
    return run, (q, k, v, jnp.asarray([length, length // 2], jnp.int32))


def sampling(vocabulary: int, batch: int) -> Program:
    """Temperature, penalty of repetition, top k, top p, and a draw."""

    def run(logits: jax.Array, history: jax.Array, seed: jax.Array) -> Any:
        def single(logits: jax.Array, history: jax.Array, key: jax.Array) -> Any:
            seen = jnp.zeros(vocabulary, bool).at[history].set(True)
            logits = (
                jnp.where(seen, jnp.where(logits > 0, logits / 1.2, logits * 1.2), logits) / 0.8
            )
            threshold = lax.top_k(logits, 50)[0][-1]
            logits = jnp.where(logits < threshold, -jnp.inf, logits)
            order = jnp.argsort(-logits)
            probs = jax.nn.softmax(logits[order])
            keep = jnp.cumsum(probs) - probs < 0.9
            logits = (
                jnp.full_like(logits, -jnp.inf)
                .at[order]
                .set(jnp.where(keep, logits[order], -jnp.inf))
            )
            token = jax.random.categorical(key, logits)
            return token, jax.nn.log_softmax(logits)[token]

        keys = jax.random.split(jax.random.PRNGKey(seed), batch)
        return jax.vmap(single)(logits, history, keys)

    return run, (
        normal(batch, vocabulary, scale=3.0),
        integers(vocabulary, batch, 32),
        jnp.int32(0),
    )


def beam(vocabulary: int, steps: int) -> Program:
    """Beam search with a recurrent cell: states and histories follow their beams."""
    width, hidden = 8, 64

    def run(p: Any, h: jax.Array) -> Any:
        def step(t: Any, state: Any) -> Any:
            tokens, h, scores, history, done = state
            x = p["embed"][tokens]
            z = jax.nn.sigmoid(x @ p["wz"] + h @ p["uz"])
            h = (1 - z) * h + z * jnp.tanh(x @ p["wh"] + h @ p["uh"])
            log_probs = jax.nn.log_softmax(h @ p["out"])
            ended = jnp.where(jnp.arange(vocabulary) == 0, 0.0, -1e9)
            total = scores[:, None] + jnp.where(done[:, None], ended[None], log_probs)
            scores, flat = lax.top_k(total.reshape(-1), width)
            parents, tokens = flat // vocabulary, flat % vocabulary
            history = history[parents].at[:, t].set(tokens)
            return tokens, h[parents], scores, history, done[parents] | (tokens == 0)

        scores = jnp.where(jnp.arange(width) == 0, 0.0, -1e9)
        blank = jnp.zeros((width, steps), jnp.int32)
        start = (
            jnp.ones(width, jnp.int32),
            jnp.tile(h, (width, 1)),
            scores,
            blank,
            jnp.zeros(width, bool),
        )
        _, _, scores, history, _ = lax.fori_loop(0, steps, step, start)
        return history, scores

    names = ("wz", "uz", "wh", "uh")
    params = {
        name: normal(hidden, hidden, seed=i, scale=hidden**-0.5) for i, name in enumerate(names)
    }
    params |= {
        "embed": normal(vocabulary, hidden, seed=8),
        "out": normal(hidden, vocabulary, seed=9),
    }
    return run, (params, normal(hidden))


SIZES: Final[Sizes] = {
    ("cached-decode", cached_decode): ((64, 64), (128, 128)),
    ("quantized", quantized): ((320, 64), (512, 64), (1024, 64)),
    ("window-attention", window_attention): ((128, 32), (256, 64), (512, 128)),
    ("sampling", sampling): ((1_000, 8), (16_000, 8)),
    ("beam", beam): ((200, 40), (4_000, 30)),
}
