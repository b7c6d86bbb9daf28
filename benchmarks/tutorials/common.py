"""Types and helpers shared by the builders."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

os.environ.setdefault("EQX_ON_ERROR", "off")

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Builder = Callable[[], Program]


def as_arrays(tree: Any) -> Any:
    """Turn every leaf (also Python scalars) into a strongly typed jax array."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.asarray(leaf).dtype), tree)


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.PRNGKey(seed), shape)


def uniform(seed: int, *shape: int) -> jax.Array:
    return jax.random.uniform(jax.random.PRNGKey(seed), shape)
