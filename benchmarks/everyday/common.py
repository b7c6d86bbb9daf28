"""Arrays and parts that several programs share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

Program = tuple[Callable[..., Any], tuple[Any, ...]]
"""A pure function and its arguments."""

Sizes = Mapping[tuple[str, Callable[[int, int], Program]], tuple[tuple[int, int], ...]]
"""(Name, builder) -> (size, steps or another measure) of each of its programs."""


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> jax.Array:
    return jnp.asarray(scale * np.random.default_rng(seed).normal(size=shape), jnp.float32)


def uniform(*shape: int, seed: int = 0, low: float = 0.0, high: float = 1.0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).uniform(low, high, shape), jnp.float32)


def integers(high: int, *shape: int, seed: int = 0, low: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).integers(low, high, shape), jnp.int32)


def words(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).integers(0, 2**32, shape, dtype=np.uint32))


def a_key(seed: int = 0) -> jax.Array:
    return random.PRNGKey(seed)


def labels_of(x: jax.Array) -> jax.Array:
    w = np.linspace(-1, 1, x.shape[1])
    return jnp.asarray(np.asarray(x) @ w > 0, jnp.float32)


def layers_of(*widths: int, seed: int = 0) -> list[tuple[jax.Array, jax.Array]]:
    pairs = enumerate(itertools.pairwise(widths))
    return [
        (normal(m, n, seed=seed + i, scale=m**-0.5), jnp.zeros(n, jnp.float32))
        for i, (m, n) in pairs
    ]


def picture(size: int) -> jax.Array:
    """Smooth waves, an edge, and noise, in [0, 1]."""
    y, x = np.mgrid[:size, :size] / size
    waves = (
        0.4 + 0.2 * np.sin(9 * x) * np.cos(7 * y) + 0.3 * ((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.08)
    )
    return jnp.asarray(
        np.clip(waves + np.random.default_rng(0).normal(0, 0.04, x.shape), 0, 1), jnp.float32
    )


def mlp(params: Any, x: jax.Array, activation: Callable[[Any], Any] = jax.nn.relu) -> jax.Array:
    for w, b in params[:-1]:
        x = activation(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array) -> jax.Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * gain + bias
