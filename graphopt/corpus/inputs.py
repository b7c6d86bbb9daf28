"""Deterministic inputs for programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np


def normal(*shape: int, seed: int = 0) -> Any:
    """Draw f32[*shape] from a normal distribution; other shapes or seeds give unrelated values."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, dtype: Any = np.int32) -> Any:
    """Draw an array of integers in [0, high) of the given shape and dtype."""
    return np.random.default_rng([high, *shape]).integers(0, high, shape).astype(dtype)


class Draws:
    """A stream of numpy arrays: the same seed and the same calls give the same values."""

    def __init__(self, seed: int = 0) -> None:
        """Start the stream."""
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        """f32[*shape], normal with standard deviation ``scale``."""
        return (scale * self._rng.standard_normal(shape)).astype(np.float32)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Any:
        """f32[*shape], uniform in [low, high)."""
        return self._rng.uniform(low, high, shape).astype(np.float32)

    def integers(self, high: int, *shape: int, low: int = 0, dtype: Any = np.int32) -> Any:
        """Integers of [low, high), of the given shape and dtype."""
        return self._rng.integers(low, high, shape).astype(dtype)

    def dense(self, inputs: int, outputs: int) -> Any:
        """f32[inputs, outputs] weights that keep the scale of what they are applied to."""
        return self.normal(inputs, outputs, scale=inputs**-0.5)

    def kernel(self, height: int, width: int, inputs: int, outputs: int) -> Any:
        """f32[height, width, inputs, outputs] convolution weights that keep the scale."""
        scale = (2.0 / (height * width * inputs)) ** 0.5
        return self.normal(height, width, inputs, outputs, scale=scale)

    def layers(self, *widths: int) -> Any:
        """A list of (weights, bias), one for each pair of neighbouring widths."""
        pairs = itertools.pairwise(widths)
        return [(self.dense(i, o), self.normal(o, scale=0.1)) for i, o in pairs]

    def parameters(self, init: Callable[..., Any], *args: Any) -> Any:
        """Fill the shapes that ``init(*args)`` would return, without running it.

        Entries called ``scale`` or ``var`` are near one, vectors are small, everything else is
        normal, scaled by its number of inputs.
        """
        import jax

        shapes = jax.eval_shape(init, *args)
        leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
        values = [self._fill(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
        return jax.tree_util.tree_unflatten(tree, values)

    def _fill(self, path: str, leaf: Any) -> Any:
        if any(word in path for word in _NEAR_ONE):
            return (1.0 + self.normal(*leaf.shape, scale=0.1) ** 2).astype(leaf.dtype)
        if len(leaf.shape) < 2:
            return self.normal(*leaf.shape, scale=0.1).astype(leaf.dtype)
        inputs = int(np.prod(leaf.shape[:-1]))
        return self.normal(*leaf.shape, scale=inputs**-0.5).astype(leaf.dtype)


_NEAR_ONE: Final = ("scale", "'var'")
