"""What is recorded of a module's inputs: coarse ranges, from a sample of each; values only if asked for.

Nothing here waits for a value: inputs that are still being computed are passed over. Nothing keeps an array
from being donated: a view of it is given back before the call.
"""

from __future__ import annotations

import math
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

Ends = tuple[float, float] | None
"""Smallest and largest value; None where nobody looked."""

SAMPLE: Final = 4096
"""Elements of an input that are looked at, evenly spread."""

MAX_VALUE_BYTES: Final = 64 << 20
"""Inputs of one module that are larger together are not copied."""

_HIDDEN: Final = (np.uint32, np.uint64)
"""Random keys are of these types: nobody else should know them, and their range says nothing."""


def ends_of(arguments: Sequence[Any]) -> list[Ends]:
    """Ranges of the arguments of a call, as far as they can be looked at without waiting."""
    return [_ends(argument) for argument in arguments]


def wider(one: Ends, other: Ends) -> Ends:
    """The range that holds both."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _ends(argument: Any) -> Ends:
    view = _view(argument)
    if view is None or not view.size or view.dtype.kind not in "fiu" or view.dtype.type in _HIDDEN:
        return None
    flat = view.reshape(-1)
    sample = flat[:: max(1, flat.size // SAMPLE)]
    if sample.dtype.kind == "f":
        sample = sample[np.isfinite(sample)]
        if not sample.size:
            return None
        return -_outward(-float(sample.min())), _outward(float(sample.max()))
    return float(_whole_below(int(sample.min()))), float(_whole_above(int(sample.max())))


def _outward(value: float) -> float:
    """The next power of two above a positive value, the one nearer to zero of a negative one."""
    if value == 0.0:
        return 0.0
    fraction, exponent = math.frexp(abs(value))
    if value > 0.0:
        exponent -= fraction == 0.5
    else:
        exponent -= 1
    return math.copysign(math.ldexp(1.0, min(exponent, 1000)), value)


def _whole_below(value: int) -> int:
    """The next whole number at or below that says nothing but how many bits it takes."""
    if value > 0:
        return 1 << (value.bit_length() - 1)
    return -(1 << (-value - 1).bit_length()) if value else 0


def _whole_above(value: int) -> int:
    """The next such number at or above."""
    return (1 << value.bit_length()) - 1 if value >= 0 else -_whole_below(-value)


def _view(argument: Any) -> Array | None:
    """The values of an argument in place; None where they cannot be had without waiting or copying."""
    if isinstance(argument, np.ndarray | np.generic | bool | int | float):
        return np.asarray(argument)
    try:
        if argument.is_deleted() or not argument.is_ready() or len(argument.devices()) != 1:
            return None
        return np.from_dlpack(argument)
    except Exception:  # a type that NumPy does not have, a device that it cannot read
        return None


def values_of(arguments: Sequence[Any]) -> list[Array] | None:
    """Copies of the arguments of a call; None where one cannot be had at once, or they are too large.

    Numbers of Python and arrays of NumPy have the types that jax gives them.
    """
    from jax.dtypes import canonicalize_dtype

    views = [_view(argument) for argument in arguments]
    if any(view is None for view in views):
        return None
    if sum(view.nbytes for view in views if view is not None) > MAX_VALUE_BYTES:
        return None
    return [np.array(v, canonicalize_dtype(v.dtype)) for v in views if v is not None]


def packed_values(values: Sequence[Array]) -> bytes:
    """Values as the queue keeps them: a file of `graphopt.measure.inputs`, compressed."""
    from graphopt.measure.inputs import save_inputs

    with tempfile.TemporaryDirectory(prefix="graphopt-record-") as folder:
        path = Path(folder, "inputs.npz")
        save_inputs(path, values)
        return zlib.compress(path.read_bytes(), 6)
