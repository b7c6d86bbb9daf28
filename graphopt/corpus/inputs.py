"""Deterministic inputs for programs."""

from __future__ import annotations

from typing import Any

import numpy as np


def normal(*shape: int, seed: int = 0) -> Any:
    """Draw f32[*shape] from a normal distribution; other shapes or seeds give unrelated values."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, dtype: Any = np.int32) -> Any:
    """Draw an array of integers in [0, high) of the given shape and dtype."""
    return np.random.default_rng([high, *shape]).integers(0, high, shape).astype(dtype)
