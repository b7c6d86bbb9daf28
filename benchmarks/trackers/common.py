"""Helpers shared by the builders."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reported.programs import Built, Reported

__all__ = ["Built", "Reported", "generator", "normal", "uniform"]


def generator(seed: int = 0) -> np.random.Generator:
    """The source of a builder's numbers."""
    return np.random.default_rng(seed)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> jax.Array:
    """Normal numbers in the default precision."""
    return jnp.asarray(scale * rng.standard_normal(shape))


def uniform(rng: np.random.Generator, *shape: int, low: float = 0.0, high: float = 1.0) -> Any:
    """Uniform numbers in the default precision."""
    return jnp.asarray(rng.uniform(low, high, shape))
