"""Data type functions, inspection and constants (array API standard, chapters of those names)."""

from __future__ import annotations

import math
from typing import Any, Final

import jax
import numpy as np

from graphopt.lazy.array import interop
from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType, FInfo, IInfo
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.tensor_base import TensorBase

__all__ = "__array_namespace_info__ astype can_cast finfo iinfo isdtype result_type".split()

e: Final = math.e
"""Euler's number."""
inf: Final = math.inf
"""Positive infinity."""
nan: Final = math.nan
"""Not a number."""
newaxis: Final = None
"""As an index: a new dimension of one element."""
pi: Final = math.pi
"""The ratio of a circle's circumference to its diameter."""


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """`x` with another dtype (and on another device).

    Out-of-range floats become the nearest integer there is, NaN becomes 0.

    Raises:
        LazyTypeError: from complex to real numbers.
    """
    node = operands.node_of(x, "astype")
    wanted = dtypes.as_dtype(dtype)
    if node.aval.dtype.kind == "complex" and wanted.kind not in ("complex", "bool"):
        raise LazyTypeError(
            what=f"astype from {node.aval.dtype} to {wanted}",
            where=source_lines.line_of(source_lines.here()),
            fix="Take lt.real first.",
        )
    if wanted is not node.aval.dtype:
        x = recorder.hold(operands.cast(node, wanted))
    elif copy or not isinstance(x, TensorBase):
        x = recorder.hold(node)
    return x if device is None else interop.to_device(x, device)


def _dtype_of(x: Any) -> DType:
    if isinstance(x, TensorBase):
        return x._node.aval.dtype
    if hasattr(x, "dtype") and not isinstance(x, (DType, type)):
        return dtypes.from_numpy(x.dtype)
    return dtypes.as_dtype(x)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion allows this conversion."""
    return dtypes.can_cast(_dtype_of(from_), dtypes.as_dtype(to))


def finfo(type: Any, /) -> FInfo:
    """Limits of a floating-point dtype."""
    return dtypes.finfo_of(_dtype_of(type))


def iinfo(type: Any, /) -> IInfo:
    """Limits of an integer dtype."""
    return dtypes.iinfo_of(_dtype_of(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is, or belongs to a kind such as ``"integral"``, or any of several.

    Raises:
        LazyTypeError: no such kind.
    """
    found = dtypes.as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, one) for one in kind)
    if isinstance(kind, str):
        if kind not in dtypes.KINDS:
            raise LazyTypeError(
                what=f"there is no dtype kind {kind!r}",
                where=source_lines.line_of(source_lines.here()),
                fix=f"Use one of {', '.join(dtypes.KINDS)}.",
            )
        return found.kind in dtypes.KINDS[kind]
    return found is dtypes.as_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, dtypes and Python numbers promote to; numbers alone have default dtypes.

    Raises:
        LazyTypeError: nothing is given.
    """
    numbers = [x for x in arrays_and_dtypes if _is_number(x)]
    others = [x for x in arrays_and_dtypes if not _is_number(x)]
    if not others:
        return dtypes.promote(dtypes.as_dtype(type(number)) for number in numbers)
    dtype = dtypes.promote(_dtype_of(x) for x in others)
    for number in numbers:
        dtype = dtypes.scalar_dtype(number, dtype)
    return dtype


def _is_number(x: Any) -> bool:
    return isinstance(x, operands.NUMBERS) and not isinstance(x, np.generic)


class _Info:
    """What the namespace can do (array API standard, "Inspection")."""

    def capabilities(self) -> dict[str, Any]:
        """Supported optional behaviour."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device of new arrays."""
        return operands.default_device()

    def devices(self) -> list[Any]:
        """All devices."""
        return list(jax.devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Dtypes of arrays made from Python numbers."""
        return {
            "real floating": dtypes.DEFAULT_FLOAT,
            "complex floating": dtypes.DEFAULT_COMPLEX,
            "integral": dtypes.DEFAULT_INT,
            "indexing": dtypes.DEFAULT_INDEX,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes, or those of a kind.

        Raises:
            LazyValueError: no such kind.
        """
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if any(k is not None and k not in dtypes.KINDS for k in kinds):
            raise LazyValueError(
                what=f"there is no dtype kind {kind!r}",
                where=source_lines.line_of(source_lines.here()),
                fix=f"Use one of {', '.join(dtypes.KINDS)}.",
            )
        return {
            d.name: d
            for d in dtypes.STANDARD
            if any(k is None or d.kind in dtypes.KINDS[k] for k in kinds)
        }


def __array_namespace_info__() -> _Info:
    """What this namespace supports."""
    return _Info()
