"""Transformer-XL: segments with cached states, relative attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from graphopt.corpus.placement.shapes import Build, cross_entropy, shape


@jax.jit
def _norm(x: Any, scale: Any) -> Any:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) * scale


@jax.jit
def _head(q: Any, k: Any, v: Any, r: Any) -> Any:
    """One head's relative attention: f32[B, T, E] over f32[B, S, E], positions f32[S, E]."""
    scores = jnp.einsum("bte,bse->bts", q, k) + jnp.einsum("bte,se->bts", q, r)
    weights = jax.nn.softmax(scores * q.shape[-1] ** -0.5)
    return jnp.einsum("bts,bse->bte", weights, v)


def transformer_xl(
    layers: int, segments: int = 4, batch: int = 16, width: int = 1024, heads: int = 8
) -> Build:
    """Transformer-XL (Dai et al. 2019), `segments` segments of 128 tokens per step, heads apart."""
    vocabulary, steps, size = 32_000, 128, width // heads

    def block(p: Any, x: Any, memory: Any) -> Any:
        context = jnp.concatenate([memory, x], axis=1)
        results = [
            _head(x @ p["q"][h], context @ p["k"][h], context @ p["v"][h], p["r"][h])
            for h in range(heads)
        ]
        x = _norm(x + jnp.concatenate(results, axis=-1) @ p["o"], p["norm1"])
        return _norm(x + jax.nn.relu(x @ p["up"]) @ p["down"], p["norm2"])

    def loss(params: Any, inputs: Any) -> Any:
        tokens, labels = inputs
        memories = [jnp.zeros((batch, steps, width)) for _ in range(layers)]
        total = jnp.zeros(())
        for segment in range(segments):
            with jax.named_scope("layer0"):
                x = params["embedding"][tokens[segment]]
            for layer, p in enumerate(params["blocks"]):
                with jax.named_scope(f"layer{layer}"):
                    kept, x = x, block(p, x, memories[layer])
                    memories[layer] = jax.lax.stop_gradient(kept)
            with jax.named_scope(f"layer{layers - 1}"):
                total += cross_entropy(x @ params["out"], labels[segment])
        return total

    def build() -> Any:
        block_shapes = {
            "q": [shape(width, size)] * heads, "k": [shape(width, size)] * heads,
            "v": [shape(width, size)] * heads, "r": [shape(2 * steps, size)] * heads,
            "o": shape(width, width), "norm1": shape(width), "norm2": shape(width),
            "up": shape(width, 4 * width), "down": shape(4 * width, width),
        }  # fmt: skip
        params = {
            "embedding": shape(vocabulary, width),
            "blocks": [block_shapes] * layers,
            "out": shape(width, vocabulary),
        }
        tokens = shape(segments, batch, steps, dtype=jnp.int32)
        return loss, params, (tokens, tokens)

    return build
