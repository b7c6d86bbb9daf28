"""Types and helpers shared by the builders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Program", "integers", "normal", "strong", "uniform"]

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def normal(seed: int, *shape: int) -> jax.Array:
    """Standard normal numbers in the default precision."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def uniform(seed: int, *shape: int) -> jax.Array:
    """Numbers between zero and one in the default precision."""
    return jnp.asarray(np.random.default_rng(seed).uniform(size=shape))


def integers(seed: int, high: int, *shape: int) -> jax.Array:
    """Integers from zero below ``high``."""
    return jnp.asarray(np.random.default_rng(seed).integers(0, high, shape, np.int32))


def strong(tree: Any) -> Any:
    """The tree with the weak types gone that libraries leave in their initial states."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), tree)
