"""What the program modules share: families, and layers that several of them use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from graphopt.corpus.program import Builder, Built, Program, ProgramSet

Tree = Any
"""A pytree of arrays."""


class Family:
    """Programs of one kind; the corpus is split by family."""

    def __init__(self, name: str) -> None:
        """Start with no programs."""
        self.name = name
        self._programs = ProgramSet()

    def program(
        self,
        name: str,
        description: str,
        *,
        gradient: bool = False,
        loops: bool = False,
        chaotic: bool = False,
    ) -> Callable[[Builder], Builder]:
        """Return a decorator that adds a builder as a program and leaves it unchanged.

        The arguments that the builder makes are placed on the device once, so that no call of the
        program pays for a transfer.

        Raises:
            ValueError: When applied, if the name is taken or an argument is malformed.
        """

        def add(build: Builder) -> Builder:
            def placed() -> Built:
                fn, args = build()
                on_device: tuple[Any, ...] = jax.tree.map(jnp.asarray, args)
                return fn, on_device

            # Where the program is defined: part of what a capture depends on.
            placed.__module__ = build.__module__
            self._programs.add(
                Program(name, self.name, placed, description, chaotic, gradient, loops)
            )
            return build

        return add

    def __iter__(self) -> Iterator[Program]:
        """Iterate over the programs in the order in which they were added."""
        return iter(self._programs)


def layer_norm(x: Array, scale: Array | float = 1.0, bias: Array | float = 0.0) -> Array:
    """Normalize [..., D] over its last axis."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale + bias


def rms_norm(x: Array, scale: Array) -> Array:
    """Divide [..., D] by its root mean square over the last axis."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return the f32[] mean cross entropy of [..., V] logits with i32[...] labels."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
    return -jnp.mean(picked)


def mlp(layers: Sequence[tuple[Array, Array]], x: Array, activation: Any = jax.nn.relu) -> Array:
    """Apply dense layers with an activation between them."""
    for weights, bias in layers[:-1]:
        x = activation(x @ weights + bias)
    weights, bias = layers[-1]
    return x @ weights + bias


def conv(x: Array, kernel: Array, stride: int = 1, **options: Any) -> Array:
    """Convolve [B, H, W, C] with [h, w, C, D] and equal padding."""
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        options.pop("padding", "SAME"),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        **options,
    )


def pool(x: Array, window: int, stride: int, kind: str = "max") -> Tree:
    """Pool [B, H, W, C] over square windows with equal padding; ``kind`` is max or mean."""
    dims, strides = (1, window, window, 1), (1, stride, stride, 1)
    if kind == "max":
        return lax.reduce_window(x, -jnp.inf, lax.max, dims, strides, "SAME")
    total = lax.reduce_window(x, 0.0, lax.add, dims, strides, "SAME")
    return total / (window * window)


def split_heads(x: Array, heads: int) -> Tree:
    """Turn [B, T, D] into [B, H, T, D / H]."""
    batch, steps, width = x.shape
    return x.reshape(batch, steps, heads, width // heads).swapaxes(1, 2)


def join_heads(x: Array) -> Array:
    """Turn [B, H, T, D] into [B, T, H * D]."""
    batch, heads, steps, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, steps, heads * width)
