"""Arrays without contents, for models that are only traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Build = Callable[[], tuple[Callable[..., Any], Any, Any]]
"""Returns (loss, params, inputs): loss(params, inputs) is a scalar; the others are pytrees of shapes."""


_shape: Any = jax.ShapeDtypeStruct  # its constructor is not annotated


def shape(*dims: int, dtype: Any = jnp.float32) -> Any:
    """An array without contents."""
    return _shape(dims, dtype)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean negative log-likelihood of labels i32[...] under logits f32[..., V]."""
    log = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(log, labels[..., None], axis=-1)
    return -jnp.mean(picked)
