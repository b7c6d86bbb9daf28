"""Programs that run in milliseconds on two CPU devices.

`BRANCHING` have independent branches of sequential small operations, which one device runs one after
another; `CHAINS` have none, or only operations that fill all cores by themselves.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from graphopt.corpus.program import Built, ProgramSet

BRANCHING = ProgramSet()
"""Programs with branches that do not depend on each other."""

CHAINS = ProgramSet()
"""Programs in which every operation needs the one before."""

Params = tuple[Array, ...]


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return jnp.asarray((scale * rng.standard_normal(shape)).astype(np.float32))


def _lstm_params(rng: np.random.Generator, width_in: int, width: int) -> Params:
    return (
        _normal(rng, width_in, 4 * width, scale=width_in**-0.5),
        _normal(rng, width, 4 * width, scale=width**-0.5),
        jnp.zeros(4 * width),
    )


def _lstm(params: Params, xs: Array, reverse: bool = False) -> Array:
    """LSTM over f32[T, B, I]; returns the hidden states f32[T, B, H]."""
    w, u, b = params
    zero = jnp.zeros((xs.shape[1], u.shape[0]))

    def step(carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    hidden: Array = jax.lax.scan(step, (zero, zero), xs, reverse=reverse)[1]
    return hidden


def _gru_params(rng: np.random.Generator, width_in: int, width: int) -> Params:
    return (
        _normal(rng, width_in, 3 * width, scale=width_in**-0.5),
        _normal(rng, width, 3 * width, scale=width**-0.5),
    )


def _gru(params: Params, xs: Array) -> Array:
    """GRU over f32[T, B, I]; returns the last hidden state f32[B, H]."""
    w, u = params

    def step(h: Array, x: Array) -> tuple[Array, None]:
        a, r = x @ w, h @ u
        z = jax.nn.sigmoid(a[:, : h.shape[1]] + r[:, : h.shape[1]])
        reset = jax.nn.sigmoid(
            a[:, h.shape[1] : 2 * h.shape[1]] + r[:, h.shape[1] : 2 * h.shape[1]]
        )
        new = jnp.tanh(a[:, 2 * h.shape[1] :] + reset * r[:, 2 * h.shape[1] :])
        return (1 - z) * h + z * new, None

    last: Array = jax.lax.scan(step, jnp.zeros((xs.shape[1], u.shape[0])), xs)[0]
    return last


@BRANCHING.register(
    "bidirectional_lstm",
    family="recurrent",
    description="Bidirectional LSTM, 256 steps, batch 16, width 96, with a projection, f32.",
)
def _bidirectional() -> Built:
    rng = np.random.default_rng(0)
    params = (_lstm_params(rng, 96, 96), _lstm_params(rng, 96, 96), _normal(rng, 192, 10))

    def fn(params: Any, xs: Array) -> Array:
        forward, backward, out = params
        both = jnp.concatenate([_lstm(forward, xs), _lstm(backward, xs, reverse=True)], axis=-1)
        return jax.nn.log_softmax(both.mean(axis=0) @ out)

    return fn, (params, _normal(rng, 256, 16, 96))


@BRANCHING.register(
    "two_tower_gru",
    family="retrieval",
    description="Two GRU towers of 200 steps, batch 8, width 96, scored by inner products, f32.",
)
def _two_tower() -> Built:
    rng = np.random.default_rng(1)
    params = (_gru_params(rng, 64, 96), _gru_params(rng, 64, 96))

    def fn(params: Any, queries: Array, items: Array) -> Array:
        left, right = _gru(params[0], queries), _gru(params[1], items)
        return jax.nn.log_softmax(left @ right.T)

    return fn, (params, _normal(rng, 200, 8, 64), _normal(rng, 200, 8, 64))


@BRANCHING.register(
    "ensemble_lstm",
    family="ensemble",
    description="Four LSTMs of 150 steps, batch 8, width 64, averaged, f32.",
)
def _ensemble() -> Built:
    rng = np.random.default_rng(2)
    params = tuple((_lstm_params(rng, 32, 64), _normal(rng, 64, 5)) for _ in range(4))

    def fn(params: Any, xs: Array) -> Array:
        votes = [_lstm(cell, xs)[-1] @ out for cell, out in params]
        return jnp.stack([jax.nn.softmax(v) for v in votes]).mean(axis=0)

    return fn, (params, _normal(rng, 150, 8, 32))


@BRANCHING.register(
    "recurrent_experts",
    family="mixture",
    description="Dense mixture of four recurrent experts, 120 steps, batch 12, width 80, gated, f32.",
)
def _experts() -> Built:
    rng = np.random.default_rng(3)
    params = (tuple(_gru_params(rng, 48, 80) for _ in range(4)), _normal(rng, 48, 4))

    def fn(params: Any, xs: Array) -> Array:
        experts, gate = params
        weight = jax.nn.softmax(xs.mean(axis=0) @ gate)
        results = jnp.stack([_gru(expert, xs) for expert in experts], axis=1)
        return jnp.einsum("be,beh->bh", weight, results)

    return fn, (params, _normal(rng, 120, 12, 48))


@BRANCHING.register(
    "bidirectional_gradient",
    family="recurrent",
    description="Gradient of a bidirectional LSTM, 100 steps, batch 8, width 64, f32.",
)
def _bidirectional_gradient() -> Built:
    rng = np.random.default_rng(4)
    params = (_lstm_params(rng, 32, 64), _lstm_params(rng, 32, 64), _normal(rng, 128, 4))

    def loss(params: Any, xs: Array, target: Array) -> Array:
        forward, backward, out = params
        both = jnp.concatenate([_lstm(forward, xs), _lstm(backward, xs, reverse=True)], axis=-1)
        return jnp.mean((both.mean(axis=0) @ out - target) ** 2)

    return jax.value_and_grad(loss), (params, _normal(rng, 100, 8, 32), _normal(rng, 8, 4))


@BRANCHING.register(
    "two_simulations",
    family="simulation",
    description="Two damped pendulum swarms of 500 steps, 512 bodies each, compared, f32.",
)
def _simulations() -> Built:
    rng = np.random.default_rng(5)

    def swarm(state: Array, length: Array) -> Array:
        def step(_: Any, s: Array) -> Array:
            angle, speed = s
            speed = 0.999 * speed - 0.01 * jnp.sin(angle) / length
            return jnp.stack([angle + 0.01 * speed, speed])

        done: Array = jax.lax.fori_loop(0, 500, step, state)
        return done

    def fn(a: Array, b: Array, lengths: Array) -> Array:
        return jnp.abs(swarm(a, lengths[0]) - swarm(b, lengths[1])).mean(axis=1)

    return fn, (_normal(rng, 2, 512), _normal(rng, 2, 512), jnp.asarray([1.0, 1.3]))


@CHAINS.register(
    "deep_mlp",
    family="dense",
    description="Six dense layers of width 512 at batch 256: every product fills all cores, f32.",
)
def _deep_mlp() -> Built:
    rng = np.random.default_rng(6)
    weights = tuple(_normal(rng, 512, 512, scale=512**-0.5) for _ in range(6))

    def fn(weights: Any, x: Array) -> Array:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x

    return fn, (weights, _normal(rng, 256, 512))


@CHAINS.register(
    "stacked_lstm",
    family="recurrent",
    description="Three stacked LSTM layers of 80 steps, batch 8, width 64: a chain of loops, f32.",
)
def _stacked() -> Built:
    rng = np.random.default_rng(7)
    layers = tuple(_lstm_params(rng, 64, 64) for _ in range(3))

    def fn(layers: Any, xs: Array) -> Array:
        for layer in layers:
            xs = _lstm(layer, xs)
        return xs[-1]

    return fn, (layers, _normal(rng, 80, 8, 64))


@CHAINS.register(
    "wide_towers",
    family="retrieval",
    description="Two towers of large products, 512 by 512 at batch 512, which share the cores, f32.",
)
def _wide_towers() -> Built:
    rng = np.random.default_rng(8)
    towers = tuple(
        tuple(_normal(rng, 512, 512, scale=512**-0.5) for _ in range(3)) for _ in range(2)
    )

    def fn(towers: Any, a: Array, b: Array) -> Array:
        for w in towers[0]:
            a = jnp.tanh(a @ w)
        for w in towers[1]:
            b = jnp.tanh(b @ w)
        return jnp.einsum("bi,bi->b", a, b)

    return fn, (towers, _normal(rng, 512, 512), _normal(rng, 512, 512))


@CHAINS.register(
    "layer_norm_block",
    family="normalization",
    description="Layer normalization and a gated product on f32[1024, 512].",
)
def _layer_norm() -> Built:
    rng = np.random.default_rng(9)

    def fn(x: Array, gate: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return scaled * jax.nn.sigmoid(x @ gate)

    return fn, (_normal(rng, 1024, 512), _normal(rng, 512, 512, scale=0.05))


@CHAINS.register(
    "tiny_mlp",
    family="dense",
    description="Two dense layers of width 32 at batch 8: too small for anything, f32.",
)
def _tiny() -> Built:
    rng = np.random.default_rng(10)
    weights = (_normal(rng, 32, 32, scale=0.2), _normal(rng, 32, 32, scale=0.2))

    def fn(weights: Any, x: Array) -> Array:
        out: Array = jax.nn.relu(x @ weights[0]) @ weights[1]
        return out

    return fn, (weights, _normal(rng, 8, 32))


PLACEMENT = BRANCHING | CHAINS
"""Both: what placement over two CPU devices is measured on."""
