"""Windows spread back over the elements that they hold: what gradients of pools are made of.

Element ``i`` of the array behind ``low`` elements of padding lies in window ``j`` if
``j * stride <= i + low < j * stride + size``, along each dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Windows:
    """Windows over an array.

    Attributes:
        dims: shape of the array.
        sizes: elements of a window along each dimension.
        strides: from one window to the next.
        lows: padding in front, not negative.
    """

    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    lows: tuple[int, ...]

    @property
    def covers(self) -> list[int]:
        """Windows that hold an element, along each dimension, at most."""
        return [-(-size // stride) for size, stride in zip(self.sizes, self.strides, strict=True)]


def spread(windows: Windows, values: Any, winners: Any) -> Any:
    """Adds up, for each element, the values of windows that it won, in the order of the windows.

    Elements are told apart by the phase in which the stride meets them: [.., blocks, phase, ..].

    Args:
        windows: which.
        values: of each window; float array with one dimension for each of the windows.
        winners: place of the winner in each window, in the order of memory; int32, shape of `values`.

    Returns:
        An array of shape `windows.dims`.
    """
    strides, covers = windows.strides, windows.covers
    # Block b of the padded array begins at b * stride; windows b - covers + 1 .. b reach into it.
    blocks = [
        -(-(low + n) // s) for low, n, s in zip(windows.lows, windows.dims, strides, strict=True)
    ]
    edges = [
        (cover - 1, block - count, 0)
        for cover, block, count in zip(covers, blocks, values.shape, strict=True)
    ]
    values = lax.pad(values, np.zeros((), values.dtype), edges)
    winners = lax.pad(winners, np.full((), -1, np.int32), edges)
    shape: list[int] = []
    kept = []
    for block, stride in zip(blocks, strides, strict=True):
        kept.append(len(shape))
        shape += [block, stride] if stride > 1 else [block]
    total: Any = None
    for back in product(*(range(cover - 1, -1, -1) for cover in covers)):
        starts = [cover - 1 - b for cover, b in zip(covers, back, strict=True)]
        ends = [start + block for start, block in zip(starts, blocks, strict=True)]
        part = lax.broadcast_in_dim(lax.slice(values, starts, ends), shape, kept)
        number, held = _places(windows, shape, kept, back)
        won = lax.broadcast_in_dim(lax.slice(winners, starts, ends), shape, kept) == number
        # A zero of either sign adds nothing: sums begin with a positive zero.
        won = won & (part != 0)
        if held is not None:
            won = won & held
        part = lax.select(won, part, jnp.zeros_like(part))
        total = part if total is None else total + part
    ends = [low + n for low, n in zip(windows.lows, windows.dims, strict=True)]
    joined = lax.reshape(total, [b * s for b, s in zip(blocks, strides, strict=True)])
    return lax.slice(joined, windows.lows, ends)


def _places(
    windows: Windows, shape: Sequence[int], kept: Sequence[int], back: Sequence[int]
) -> tuple[Any, Any]:
    """Place of each element in the window so many blocks before, and which windows still hold it."""
    number = lax.full(shape, 0, np.int32)
    held = None
    for axis, (size, stride, b) in enumerate(
        zip(windows.sizes, windows.strides, back, strict=True)
    ):
        if stride == 1:
            number = number * size + b
            continue
        place = lax.broadcasted_iota(np.int32, shape, kept[axis] + 1) + b * stride
        number = number * size + place
        if (b + 1) * stride > size:
            here = place < size
            held = here if held is None else held & here
    return number, held
