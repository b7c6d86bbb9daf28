"""Types and helpers shared by the third-party program builders."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# Equinox-based libraries check values at run time through host callbacks, which are no part of
# a pure program. Equinox reads this variable once, when it is first imported.
os.environ.setdefault("EQX_ON_ERROR", "off")

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Builder = Callable[[], Program]


def as_arrays(tree: Any) -> Any:
    """Turn every leaf (also Python scalars) into a strongly typed jax array."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.asarray(leaf).dtype), tree)


def normal(seed: int, *shape: int) -> jax.Array:
    """Standard normal values that depend on the seed and the shape alone."""
    return jax.random.normal(jax.random.PRNGKey(seed), shape)


def uniform(seed: int, *shape: int) -> jax.Array:
    """Values in [0, 1) that depend on the seed and the shape alone."""
    return jax.random.uniform(jax.random.PRNGKey(seed), shape)


def mlp_params(seed: int, sizes: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases of a plain multilayer perceptron with the given layer sizes."""
    return [
        (normal(seed + layer, fan_in, fan_out) / fan_in**0.5, 0.1 * normal(seed + layer, fan_out))
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes))
    ]


def mlp_apply(params: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """Apply the perceptron of ``mlp_params`` with tanh between its layers."""
    for weight, bias in params[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = params[-1]
    return x @ weight + bias
