"""Functions beyond the array API standard that NumPy, jax, PyTorch and CuPy have all the same.

Libraries for arrays of any kind (SciPy) use them where they know that an array is not a strict one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.errors import LazyValueError
from graphopt.lazy.namespace.creation import asarray, eye, zeros
from graphopt.lazy.namespace.elementwise import FUNCTIONS
from graphopt.lazy.namespace.linalg import diagonal
from graphopt.lazy.namespace.manipulation import concat, reshape
from graphopt.lazy.namespace.searching import where
from graphopt.lazy.namespace.statistics import all as _all
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import operands
from graphopt.lazy.record.recorder import record

__all__ = "allclose diag isclose logspace pad split".split()

_PADDINGS: Final = ("constant", "edge", "reflect", "symmetric", "wrap")


def _fail(what: str, fix: str) -> LazyValueError:
    return LazyValueError(what=what, where=source_lines.line_of(source_lines.here()), fix=fix)


def diag(x: Any, /, k: int = 0) -> Any:
    """A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix.

    Raises:
        LazyValueError: neither a vector nor a matrix.
    """
    x = asarray(x)
    if x.ndim == 2:
        return diagonal(x, offset=k)
    if x.ndim != 1:
        raise _fail(f"diag of a tensor with {x.ndim} axes", "Pass a vector or a matrix.")
    size = x.size + abs(k)
    filled = concat([x, zeros(abs(k), dtype=x.dtype, device=x.device)])
    along = reshape(filled, (size, 1) if k >= 0 else (1, size))
    on_diagonal = eye(size, k=k, dtype=bool, device=x.device)
    return where(on_diagonal, along, zeros((), dtype=x.dtype, device=x.device))


def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: complex = 0) -> Any:
    """`x` with more elements before and after each axis.

    Args:
        x: a tensor.
        pad_width: a number, (before, after), or such a pair per axis.
        mode: what they are: "constant", or elements of `x`: "edge", "reflect", "symmetric", "wrap".
        constant_values: the constant.

    Raises:
        LazyValueError: an unknown mode, or widths that do not fit the axes or are negative.
    """
    node = operands.node_of(x, "pad")
    if mode not in _PADDINGS:
        raise _fail(f"pad with mode {mode!r}", f"Use one of {', '.join(_PADDINGS)}.")
    try:
        widths = np.broadcast_to(pad_width, (len(node.aval.shape), 2))
    except ValueError:
        widths = None
    if widths is None or widths.dtype.kind not in "iu" or (widths < 0).any():
        raise _fail(f"pad of {node.aval!r} by {pad_width!r}", "Give (before, after) per axis.")
    pairs = tuple((int(before), int(after)) for before, after in widths)
    return record(OPS["pad"], (node,), (pairs, mode, constant_values))


def split(x: Any, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Any]:
    """Parts of `x` along an axis: so many equal ones, or those between indices.

    Raises:
        LazyValueError: the axis is not divisible.
    """
    x = asarray(x)
    position = operands.axis_of(axis, x.ndim, "split")
    length = x.shape[position]
    if isinstance(indices_or_sections, int | np.integer):
        parts = int(indices_or_sections)
        if parts < 1 or length % parts:
            raise _fail(
                f"split of {length} elements into {parts} parts", "Give a divisor, or indices."
            )
        bounds = [length // parts * part for part in range(parts + 1)]
    else:
        bounds = [0, *map(int, indices_or_sections), length]
    before = (slice(None),) * position
    return [x[(*before, slice(first, end))] for first, end in pairwise(bounds)]


def logspace(
    start: Any, stop: Any, /, num: int = 50, *, base: float = 10.0, dtype: Any = None,
    device: Any = None, endpoint: bool = True,
) -> Any:  # fmt: skip
    """`num` values from ``base**start`` to ``base**stop``, evenly spaced in their logarithms."""
    values = base ** np.linspace(float(start), float(stop), num, endpoint=endpoint)
    return asarray(values, dtype=dtypes.DEFAULT_FLOAT if dtype is None else dtype, device=device)


def isclose(
    x1: Any, x2: Any, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether elements differ by at most ``atol + rtol * abs(x2)``; infinities only where equal."""
    x1, x2 = asarray(x1), asarray(x2)
    finite, equal = FUNCTIONS["isfinite"], FUNCTIONS["equal"](x1, x2)
    near = FUNCTIONS["abs"](x1 - x2) <= atol + rtol * FUNCTIONS["abs"](x2)
    close = where(finite(x1) & finite(x2), near, equal)
    if not equal_nan:
        return close
    return close | (FUNCTIONS["isnan"](x1) & FUNCTIONS["isnan"](x2))


def allclose(
    x1: Any, x2: Any, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether all elements are close, see `isclose`; a tensor without axes."""
    return _all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))
