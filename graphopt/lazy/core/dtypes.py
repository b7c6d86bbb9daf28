"""Dtypes, their promotion, and what may be cast to what (array API standard, "Data types")."""

from __future__ import annotations

import builtins
import os
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from graphopt.errors import ConfigError
from graphopt.lazy.errors import LazyTypeError

VARIABLE: Final = "GRAPHOPT_LAZY_FLOAT"
"""Of the environment: the default type of real numbers. Read once, as what is remembered of operations
depends on it."""


class DType:
    """A data type: one object per type, so that identity is equality.

    Compares equal to the NumPy dtype and scalar type of the same meaning, and to nothing else.

    Attributes:
        name: its name in the array API standard.
        np: NumPy's dtype.
        kind: ``bool``, ``signed``, ``unsigned``, ``float`` or ``complex``.
        bits: size in bits.
        is_float: a real or complex floating-point type.
    """

    __slots__ = ("bits", "dtype", "is_float", "kind", "name", "np", "type")

    def __init__(self, name: str, kind: str, numpy_type: Any) -> None:
        self.name = name
        self.np: np.dtype[Any] = np.dtype(numpy_type)
        self.dtype = self.np  # NumPy and jax take any object with this attribute as a dtype
        self.type = self.np.type
        self.kind = kind
        self.bits = self.np.itemsize * 8
        self.is_float = kind in ("float", "complex")

    @property
    def itemsize(self) -> int:
        """Size in bytes."""
        return self.np.itemsize

    def __eq__(self, other: object) -> builtins.bool:
        if self is other:
            return True
        if isinstance(other, (np.dtype, type)):
            try:
                return builtins.bool(self.np == np.dtype(other))
            except TypeError:
                return False
        return False

    def __hash__(self) -> int:
        return hash(self.np)

    def __repr__(self) -> str:
        return f"graphopt.lazy.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)


bool_: Final = DType("bool", "bool", np.bool_)
"""True or False."""
int8: Final = DType("int8", "signed", np.int8)
"""Integers of 8 bits with a sign."""
int16: Final = DType("int16", "signed", np.int16)
"""Integers of 16 bits with a sign."""
int32: Final = DType("int32", "signed", np.int32)
"""Integers of 32 bits with a sign."""
int64: Final = DType("int64", "signed", np.int64)
"""Integers of 64 bits with a sign: the default integer type."""
uint8: Final = DType("uint8", "unsigned", np.uint8)
"""Integers of 8 bits."""
uint16: Final = DType("uint16", "unsigned", np.uint16)
"""Integers of 16 bits."""
uint32: Final = DType("uint32", "unsigned", np.uint32)
"""Integers of 32 bits."""
uint64: Final = DType("uint64", "unsigned", np.uint64)
"""Integers of 64 bits."""
float32: Final = DType("float32", "float", np.float32)
"""Single precision."""
float64: Final = DType("float64", "float", np.float64)
"""Double precision."""
complex64: Final = DType("complex64", "complex", np.complex64)
"""Two of `float32`."""
complex128: Final = DType("complex128", "complex", np.complex128)
"""Two of `float64`."""
# Beyond the standard, for models.
float16: Final = DType("float16", "float", np.float16)
"""Half precision: 5 bits of exponent, 10 of fraction."""
bfloat16: Final = DType("bfloat16", "float", ml_dtypes.bfloat16)
"""The upper half of `float32`: 8 bits of exponent, 7 of fraction."""

STANDARD: Final = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float32, float64, complex64, complex128,
)  # fmt: skip
ALL: Final = (*STANDARD, float16, bfloat16)
_BY_NAME: Final = {dtype.name: dtype for dtype in ALL}
_BY_NUMPY: Final = {dtype.np: dtype for dtype in ALL}


def _default_float() -> DType:
    name = os.environ.get(VARIABLE, "") or "float32"
    if name not in ("float32", "float64"):
        raise ConfigError(
            what=f"no default dtype: {name}",
            where=VARIABLE,
            fix="Set it to float32 or float64.",
        )
    return _BY_NAME[name]


DEFAULT_FLOAT: Final = _default_float()
DEFAULT_INT: Final = int64
DEFAULT_COMPLEX: Final = complex128 if DEFAULT_FLOAT is float64 else complex64
DEFAULT_INDEX: Final = int64


def by_name(name: str) -> DType:
    """The dtype of this name."""
    return _BY_NAME[name]


def from_numpy(dtype: Any) -> DType:
    """The dtype that means the same as a NumPy one.

    Raises:
        LazyTypeError: there is none.
    """
    found = _BY_NUMPY.get(np.dtype(dtype))
    if found is None:
        raise LazyTypeError(
            what=f"dtype {np.dtype(dtype)} is not supported",
            where="dtype",
            fix=f"Use one of {', '.join(_BY_NAME)}.",
        )
    return found


_PYTHON: Final = {bool: bool_, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}


def as_dtype(dtype: Any) -> DType:
    """A dtype from one of ours, a NumPy dtype or scalar type, a name, or a Python number type.

    Raises:
        LazyTypeError: it means no dtype.
    """
    if type(dtype) is DType:
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    if dtype is None:
        raise LazyTypeError(what="None is no dtype", where="dtype", fix="Name a dtype.")
    try:
        return from_numpy(dtype)
    except TypeError as error:
        if isinstance(error, LazyTypeError):
            raise
        raise LazyTypeError(
            what=f"{dtype!r} is no dtype", where="dtype", fix=f"Use one of {', '.join(_BY_NAME)}."
        ) from error


KINDS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("bool",),
    "signed integer": ("signed",),
    "unsigned integer": ("unsigned",),
    "integral": ("signed", "unsigned"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("signed", "unsigned", "float", "complex"),
}
"""Kind names of the standard -> the kinds they hold."""


def _float_pair(first: DType, second: DType) -> DType:
    if first.bits == second.bits:  # float16 and bfloat16
        return float32
    return first if first.bits > second.bits else second


def _complex_of(dtype: DType) -> DType:
    return complex128 if dtype in (float64, complex128) else complex64


def _integers(first: DType, second: DType) -> DType:
    if first.kind == second.kind:
        return first if first.bits >= second.bits else second
    signed, unsigned = (first, second) if first.kind == "signed" else (second, first)
    bits = max(signed.bits, 2 * unsigned.bits)
    # The standard leaves uint64 with a signed integer undefined; NumPy and jax agree on a float.
    return _BY_NAME[f"int{bits}"] if bits <= 64 else DEFAULT_FLOAT


_RANK: Final = {"bool": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}


def _promote(first: DType, second: DType) -> DType:
    if first is second:
        return first
    low, high = sorted((first, second), key=lambda d: _RANK[d.kind])
    if low.kind == "bool":
        return high
    if high.kind == "complex":
        wide = low if low.kind == "float" or low.kind == "complex" else float32
        return complex128 if complex128 in (_complex_of(wide), high) else complex64
    if high.kind == "float":
        return _float_pair(low, high) if low.kind == "float" else high
    return _integers(low, high)


PROMOTION: Final[dict[tuple[DType, DType], DType]] = {
    (first, second): _promote(first, second) for first in ALL for second in ALL
}
"""Result of mixing two dtypes. Mixed kinds, which the standard leaves open, follow jax: the float
type wins over any integer type."""


def promote(dtypes: Any) -> DType:
    """The dtype that several promote to; at least one."""
    found: DType | None = None
    for dtype in dtypes:
        found = dtype if found is None else PROMOTION[found, dtype]
    if found is None:
        raise LazyTypeError(what="nothing to promote", where="result_type", fix="Pass an array.")
    return found


def scalar_dtype(scalar: Any, array: DType) -> DType:
    """The dtype a Python number takes next to an array (standard, "Mixing arrays with scalars").

    A number of a higher kind than the array's gives the default dtype of its own kind, with the
    array's precision where that is a floating-point one.
    """
    kind = array.kind
    if isinstance(scalar, bool):
        return array
    if isinstance(scalar, int):
        return DEFAULT_INT if kind == "bool" else array
    if isinstance(scalar, float):
        return array if array.is_float else DEFAULT_FLOAT
    if array.is_float:
        return array if kind == "complex" else _complex_of(array)
    return DEFAULT_COMPLEX


def can_cast(from_: DType, to: DType) -> builtins.bool:
    """Whether promotion may turn `from_` into `to`."""
    if from_ is to:
        return True
    if from_.kind == "bool" or _RANK[from_.kind] > _RANK[to.kind]:
        return False
    if _RANK[from_.kind] < _RANK[to.kind] and not (from_.is_float and to.is_float):
        return False
    return PROMOTION[from_, to] is to


@dataclass(frozen=True)
class FInfo:
    """Limits of a floating-point dtype; every number is a Python float.

    Attributes:
        bits: bits per (real) number.
        eps: difference between 1 and the next larger number.
        max: largest number.
        min: smallest (most negative) number.
        smallest_normal: smallest positive number of full precision.
        dtype: the real dtype.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IInfo:
    """Limits of an integer dtype.

    Attributes:
        bits: bits per number.
        max: largest number.
        min: smallest number.
        dtype: the dtype.
    """

    bits: int
    max: int
    min: int
    dtype: DType


REAL_OF: Final = {complex64: float32, complex128: float64}


def finfo_of(dtype: DType) -> FInfo:
    """Limits of a floating-point dtype; for complex ones, those of their parts."""
    if not dtype.is_float:
        raise LazyTypeError(
            what=f"{dtype} is no floating-point dtype", where="finfo", fix="Use iinfo for integers."
        )
    real = REAL_OF.get(dtype, dtype)
    info: Any = ml_dtypes.finfo(real.np)
    return FInfo(
        real.bits, float(info.eps), float(info.max), float(info.min),
        float(info.smallest_normal), real,
    )  # fmt: skip


def iinfo_of(dtype: DType) -> IInfo:
    """Limits of an integer dtype."""
    if dtype.kind not in ("signed", "unsigned"):
        raise LazyTypeError(
            what=f"{dtype} is no integer dtype", where="iinfo", fix="Use finfo for floats."
        )
    info = np.iinfo(dtype.np)
    return IInfo(info.bits, int(info.max), int(info.min), dtype)
