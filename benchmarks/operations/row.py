"""What one row of the benchmark is, and how its inputs are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SIZES = ("small", "medium", "large")
PLANES = ((32, 32), (256, 1024), (2048, 2048))
"""Shapes of elementwise operations and of operations on rows."""
VECTORS = (1_000, 65_536, 1_000_000)

Inputs = Sequence[np.ndarray[Any, Any]]
Maker = Callable[[np.random.Generator], Inputs]


@dataclass(frozen=True)
class Row:
    """One operation at three sizes.

    Attributes:
        name: chapter and operation, such as ``sorting.argsort rows``.
        jax: the operation on jax arrays.
        inputs: what makes the inputs of each size.
        torch: (torch, *tensors) -> the same; None where PyTorch has none.
        numpy: (*arrays) -> the same by NumPy or SciPy, where PyTorch has none.
        arranged: the arrays as PyTorch's users lay them out (channels first).
        compared: False where several results are right.
    """

    name: str
    jax: Callable[..., Any]
    inputs: tuple[Maker, Maker, Maker]
    torch: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    arranged: Callable[..., Inputs] = lambda *arrays: arrays
    compared: bool = True


def normal(*shapes: tuple[int, ...], dtype: str = "float32", scale: float = 1.0) -> Maker:
    """Normal numbers of these shapes."""
    return lambda rng: [(rng.normal(size=shape) * scale).astype(dtype) for shape in shapes]


def uniform(
    *shapes: tuple[int, ...], low: float = 0.0, high: float = 1.0, dtype: str = "float32"
) -> Maker:
    """Uniform numbers of these shapes."""
    return lambda rng: [rng.uniform(low, high, shape).astype(dtype) for shape in shapes]


def integers(*shapes: tuple[int, ...], high: int = 1000, dtype: str = "int32") -> Maker:
    """Integers from 1 on."""
    return lambda rng: [rng.integers(1, high, shape).astype(dtype) for shape in shapes]


def three(make: Callable[..., Maker], shapes: Sequence[Any], count: int = 1, **options: Any) -> Any:
    """One maker per size, each of `count` arrays of one shape."""
    small, medium, large = (
        make(*[shape if isinstance(shape, tuple) else (shape,)] * count, **options)
        for shape in shapes
    )
    return small, medium, large


def planes(count: int = 1, make: Callable[..., Maker] = normal, **options: Any) -> Any:
    """Matrices of the three usual sizes."""
    return three(make, PLANES, count, **options)


def vectors(count: int = 1, make: Callable[..., Maker] = normal, **options: Any) -> Any:
    """Vectors of the three usual sizes."""
    return three(make, VECTORS, count, **options)
