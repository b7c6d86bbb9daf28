"""Every elementwise function on special values, op by op and compiled, against NumPy."""

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.lazy.core.infer import KIND_SETS
from graphopt.lazy.namespace.elementwise import _BINARY, _UNARY
from graphopt.lazy.ops.elementwise import _ROWS, OPS

ALLOWED = {row[0]: row[1] for row in _ROWS}
KIND = {"b": "bool", "i": "signed", "u": "unsigned", "f": "float", "c": "complex"}
REALS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-3, -7.25,
    100.0, 1e10, -1e10, 1.5, 2.5, -1.5, 0.3, 20.7,
]  # fmt: skip
PARTS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5]
UNSPECIFIED_SIGN = {
    "maximum": "the standard leaves the sign of max(0, -0) open",
    "minimum": "the standard leaves the sign of min(0, -0) open",
    "cos": "C99 leaves the sign of a zero next to NaN open",
    "cosh": "C99 leaves the sign of a zero next to NaN open",
    "atan": "C99 leaves the sign of the zero of atan(inf + nan i) open",
    "acos": "C99 leaves the sign next to NaN open",
    "acosh": "C99 leaves the sign next to NaN open",
}
FINITE_ONLY = {
    "divide": "the standard leaves complex division by infinities and zeros to the implementation",
    "reciprocal": "as division",
    "multiply": "the standard leaves complex products with infinities to the implementation",
    "pow": "the standard leaves complex powers of special values to the implementation",
    "sign": "x / abs(x) is NaN for infinite x in exact reading; NumPy returns unit values",
    "square": "as products",
}


def values(dtype):
    kind = np.dtype(dtype).kind
    if kind == "f":
        return np.array(REALS, dtype)
    if kind == "c":
        return np.array([complex(a, b) for a in PARTS for b in PARTS], dtype)
    if kind == "b":
        return np.array([True, False])
    info = np.iinfo(dtype)
    wanted = (0, 1, 2, 3, 7, -1, -2, -5, 100, info.max, info.min)
    return np.array([v for v in wanted if info.min <= v <= info.max], dtype)


def operands(name, dtype):
    grid = values(dtype)
    args = (grid,) if name in _UNARY else tuple(np.broadcast_arrays(grid[:, None], grid[None, :]))
    if grid.dtype.kind == "c" and name in FINITE_ONLY:
        usual = np.isfinite(args[0])
        for x in args:
            usual = usual & np.isfinite(x) & (x != 0)
        args = tuple(x[usual] for x in args)
    return args


def differences(name, result, expected):
    """Positions where a result is neither close to nor the same special value as NumPy's."""
    if expected.dtype.kind not in "fc":
        return np.argwhere(result != expected)
    parts = [(result, expected)]
    if expected.dtype.kind == "c":
        parts = [(result.real, expected.real), (result.imag, expected.imag)]
    tolerance = 2e-5 if expected.dtype.itemsize in (4,) or expected.dtype == np.complex64 else 1e-11
    bad = np.zeros(expected.shape, bool)
    for a, b in parts:
        close = np.isclose(a, b, rtol=tolerance, atol=0) | (
            np.abs(a - b) <= tolerance * np.abs(expected)
        )
        signs = (b != 0) | (np.signbit(a) == np.signbit(b)) | (name in UNSPECIFIED_SIGN)
        if expected.dtype.kind == "c" and name in FINITE_ONLY:
            signs = True  # of zero parts
        bad |= (np.isnan(a) != np.isnan(b)) | ~(np.isnan(b) | (close & signs))
    return np.argwhere(bad)


DTYPES = "bool int8 int64 uint8 uint64 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("tier", ["op-by-op", "compiled"])
@pytest.mark.parametrize("name", [n for n in (*_UNARY, *_BINARY) if OPS[n].np is not None])
def test_special_values(name, tier):
    checked = 0
    arguments = {
        dtype: operands(name, dtype)
        for dtype in DTYPES
        if KIND[np.dtype(dtype).kind] in KIND_SETS[ALLOWED[name]]
    }
    with lt.config(tier=tier), np.errstate(all="ignore"):
        results = {
            dtype: getattr(lt, name)(*map(lt.asarray, args)) for dtype, args in arguments.items()
        }
        lt.sync()  # one graph for all dtypes
        for dtype, args in arguments.items():
            result, expected = np.asarray(results[dtype]), np.asarray(OPS[name].np(*args))
            assert result.dtype == expected.dtype
            bad = differences(name, result, expected)
            where = [
                (*(a[tuple(k)] for a in args), result[tuple(k)], expected[tuple(k)]) for k in bad
            ]
            assert not where, f"{dtype}: {where[:5]}"
            checked += result.size
    assert checked
