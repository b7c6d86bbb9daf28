"""Unrolled recurrent models: a language model and GNMT with attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from graphopt.corpus.placement.shapes import Build, cross_entropy, shape


@jax.jit
def _cell(params: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    w, u, b = params
    i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


@jax.jit
def _attend(query: Any, keys: Any) -> Any:
    """Dot attention: f32[B, H] over f32[B, S, H]."""
    weight = jax.nn.softmax(jnp.einsum("bh,bsh->bs", query, keys) / query.shape[-1] ** 0.5)
    return jnp.einsum("bs,bsh->bh", weight, keys)


@jax.jit
def _step_loss(out: Any, h: Any, label: Any) -> Any:
    return cross_entropy(h @ out, label)


def _cell_shapes(width_in: int, width: int) -> Any:
    return shape(width_in, 4 * width), shape(width, 4 * width), shape(4 * width)


def _unroll(params: Any, xs: list[Any], width: int, reverse: bool = False) -> list[Any]:
    h = c = jnp.zeros((xs[0].shape[0], width))
    states = []
    for x in reversed(xs) if reverse else xs:
        h, c = _cell(params, x, h, c)
        states.append(h)
    return states[::-1] if reverse else states


def language_model(layers: int, steps: int = 40, batch: int = 64, width: int = 2048) -> Build:
    """RNN language model (Jozefowicz et al. 2016) of `layers` unrolled LSTM layers."""
    vocabulary = 32_000

    def loss(params: Any, inputs: Any) -> Any:
        tokens, labels = inputs
        with jax.named_scope("layer0"):
            xs = [params["embedding"][tokens[:, t]] for t in range(steps)]
        for layer, cell in enumerate(params["cells"]):
            with jax.named_scope(f"layer{layer}"):
                xs = _unroll(cell, xs, width)
        with jax.named_scope(f"layer{layers - 1}"):
            return sum(_step_loss(params["out"], x, labels[:, t]) for t, x in enumerate(xs))

    def build() -> Any:
        params = {
            "embedding": shape(vocabulary, width),
            "cells": [_cell_shapes(width, width) for _ in range(layers)],
            "out": shape(width, vocabulary),
        }
        tokens = shape(batch, steps, dtype=jnp.int32)
        return loss, params, (tokens, tokens)

    return build


def translation(layers: int, steps: int = 40, batch: int = 128, width: int = 1024) -> Build:
    """GNMT (Wu et al. 2016): bidirectional first encoder layer, residual stacks, attention."""
    vocabulary = 32_000

    def encode(params: Any, tokens: Any) -> list[Any]:
        with jax.named_scope("layer0"):
            xs = [params["source"][tokens[:, t]] for t in range(steps)]
            forward = _unroll(params["encoder"][0], xs, width)
            backward = _unroll(params["backward"], xs, width, reverse=True)
            xs = [f + b for f, b in zip(forward, backward, strict=True)]
        for layer, cell in enumerate(params["encoder"][1:], start=1):
            with jax.named_scope(f"layer{layer}"):
                hidden = _unroll(cell, xs, width)
                xs = [h + x for h, x in zip(hidden, xs, strict=True)] if layer > 1 else hidden
        return xs

    def loss(params: Any, inputs: Any) -> Any:
        source, target, labels = inputs
        encoded = encode(params, source)
        with jax.named_scope("layer0"):
            keys = jnp.stack(encoded, axis=1)
            h = c = jnp.zeros((batch, width))
            context = jnp.zeros((batch, width))
            xs, contexts = [], []
            for t in range(steps):
                word = params["target"][target[:, t]]
                h, c = _cell(params["decoder"][0], jnp.concatenate([word, context], 1), h, c)
                context = _attend(h, keys)
                xs.append(h)
                contexts.append(context)
        for layer, cell in enumerate(params["decoder"][1:], start=1):
            with jax.named_scope(f"layer{layer}"):
                joined = [jnp.concatenate([x, a], 1) for x, a in zip(xs, contexts, strict=True)]
                hidden = _unroll(cell, joined, width)
                xs = [h + x for h, x in zip(hidden, xs, strict=True)]
        with jax.named_scope(f"layer{layers - 1}"):
            return sum(_step_loss(params["out"], x, labels[:, t]) for t, x in enumerate(xs))

    def build() -> Any:
        params = {
            "source": shape(vocabulary, width),
            "target": shape(vocabulary, width),
            "encoder": [_cell_shapes(width, width) for _ in range(layers)],
            "backward": _cell_shapes(width, width),
            "decoder": [_cell_shapes(2 * width, width) for _ in range(layers)],
            "out": shape(width, vocabulary),
        }
        tokens = shape(batch, steps, dtype=jnp.int32)
        return loss, params, (tokens, tokens, tokens)

    return build
