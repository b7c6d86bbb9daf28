"""Sorts of one integer per element: the key in its high bits, the element's place in its low bits.

XLA:CPU calls a compiled comparator for every comparison of floating-point keys or of several operands.
Plain integers it sorts without one. Bits of a key that order as jax orders it, and the place behind them,
make all integers different, so that any sort of them is the stable one; operands are then read at the
places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.form import Array, Form, Operation, Times
from graphopt.machine import CpuCosts

WORD: Final = 64
"""Bits of the integers that are sorted."""

FLOATS: Final = ("float32", "float16")
"""Types of floating-point keys that leave room for a place."""

SHORT: Final = 16
"""Shorter axes are sorted by comparing all pairs elsewhere."""

RULES: Final = {
    "packed-sort-short": "the axis is short, or there is nothing to sort",
    "packed-sort-plain": "one operand of integers: XLA sorts those without a comparator",
    "packed-sort-type": "a key is no real number that jax compares by value",
    "packed-sort-nan": "XLA may sort these elements in single precision, which changes bits of NaNs",
    "packed-sort-wide": "keys and the place do not fit into one integer",
}


def forbids(operation: Operation) -> str | None:
    """Why a sort cannot be one of integers."""
    keys = _keys(operation)
    if keys[0].size == 0 or keys[0].dims[operation.params["dimension"]] < SHORT:
        return "packed-sort-short"
    if any(key.dtype.name not in FLOATS and key.dtype.kind not in "biu" for key in keys):
        return "packed-sort-type"
    if any(x.dtype.name == "bfloat16" for x in operation.operands):
        return "packed-sort-nan"
    if len(operation.operands) == 1 and keys[0].dtype.kind in "biu":
        return "packed-sort-plain"
    length = keys[0].dims[operation.params["dimension"]]
    bits = sum(_bits(key.dtype) for key in keys) + (length - 1).bit_length()
    return None if bits <= WORD else "packed-sort-wide"


def times(operation: Operation, costs: CpuCosts) -> Times:
    """Levels of comparisons, with XLA's comparator and without; packing, and reading at places."""
    x = operation.operands[0]
    levels = log2(x.dims[operation.params["dimension"]])
    many = len(operation.operands)
    default = costs.compared_level_ns * levels
    form = costs.packed_level_ns * levels + costs.packed_ns + many * costs.packed_operand_ns
    return Times(default * x.size, form * x.size + 2 * costs.library_call_ns)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """Packs, sorts and reads every operand at the places that come out."""
    axis = operation.params["dimension"]
    shape = operands[0].shape
    place_bits = (shape[axis] - 1).bit_length()
    keys = [_ordered(key) for key in operands[: operation.params["num_keys"]]]
    widths = [_bits(key.dtype) for key in _keys(operation)]
    with jax.enable_x64(True):
        packed = keys[0].astype(np.int64)
        for key, width in zip(keys[1:], widths[1:], strict=True):
            # Behind the first key, the lowest one of a type must be 0.
            above_lowest = key.astype(np.int64) + np.int64(1 << (width - 1))
            packed = lax.shift_left(packed, np.int64(width)) | above_lowest
        packed = lax.shift_left(packed, np.int64(place_bits))
        packed = packed | lax.broadcasted_iota(np.dtype(np.int64), shape, axis)
        # XLA copies every row of another axis in and out with strides.
        packed = jnp.moveaxis(packed, axis, -1)
        packed = lax.sort(packed, dimension=packed.ndim - 1, is_stable=False)
        packed = jnp.moveaxis(packed, -1, axis)
        mask = np.int64((1 << place_bits) - 1)
        places = (packed & mask).astype(np.int32)
    return [_read(x, places, axis) for x in operands]


def _read(x: Any, places: Any, axis: int) -> Any:
    """Elements of an operand at places along an axis."""
    return jnp.take_along_axis(x, places, axis=axis, mode="promise_in_bounds")


def _ordered(key: Any) -> Any:
    """Signed integers in the order of jax's comparator: both zeros alike, all NaNs alike and last."""
    dtype = np.dtype(key.dtype)
    if dtype.kind == "b":
        return key.astype(np.int8) - np.int8(1)
    if dtype.kind == "u":
        signed = np.dtype(f"int{_bits(dtype)}")
        return lax.bitcast_convert_type(key, signed) ^ np.array(np.iinfo(signed).min, signed)
    if dtype.kind == "i":
        return key
    signed = np.dtype(f"int{_bits(dtype)}")
    bits = lax.bitcast_convert_type(key, signed)
    largest = np.iinfo(signed).max
    ordered = jnp.where(bits < 0, bits ^ np.array(largest, signed), bits)
    ordered = jnp.where(key == 0, np.array(0, signed), ordered)
    return jnp.where(key != key, np.array(largest, signed), ordered)


def _keys(operation: Operation) -> tuple[Array, ...]:
    return operation.operands[: operation.params["num_keys"]]


def _bits(dtype: np.dtype[Any]) -> int:
    return 1 if dtype.kind == "b" else dtype.itemsize * 8


FORM: Final = Form(
    "packed-sort",
    ("sort",),
    "keys and places packed into integers, sorted without a comparator, operands read at the places",
    forbids,
    times,
    compute,
    exact=True,
)
