"""Random arrays, and the same function of them in graphopt.lazy and in array-api-strict."""

import warnings

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphopt.lazy as lt

with warnings.catch_warnings():  # the newest version is still marked as a draft
    warnings.simplefilter("ignore")
    strict.set_array_api_strict_flags(api_version="2025.12")

FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
INTS = ("int8", "int32", "int64", "uint8", "uint64")
REALS = (*FLOATS, *INTS)
NUMERIC = (*REALS, *COMPLEX)
ALL = ("bool", *NUMERIC)

MODEST = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def elements(dtype):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        low = 0 if kind == "u" else -20
        return st.integers(low, 20)
    real = st.integers(-64, 64).map(lambda v: v / 8)
    return real if kind == "f" else st.builds(complex, real, real)


@st.composite
def arrays(draw, dtypes=NUMERIC, min_dims=0, max_dims=3, min_side=0, shape=None):
    dtype = draw(st.sampled_from(dtypes))
    if shape is None:
        shape = draw(
            hnp.array_shapes(min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=4)
        )
    return draw(hnp.arrays(dtype, shape, elements=elements(dtype)))


def both(function, *arrays_, compiled=False):
    """Runs `function(xp, *arrays)` in both namespaces and compares everything it returns."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            expected = function(strict, *map(strict.asarray, arrays_))
        except TypeError:
            # Mixed kinds are what the standard leaves open and array-api-strict refuses, signed with
            # unsigned integers of 64 bits among them.
            assert len({a.dtype.kind for a in arrays_}) > 1
            return
        except (ValueError, IndexError, OverflowError):
            with pytest.raises((ValueError, TypeError, IndexError, OverflowError)):
                lt.eval(function(lt, *map(lt.asarray, arrays_)))
            return
    # Small arrays are computed by NumPy, as the reference does: one example of each test is compiled.
    first = function.__code__ not in _COMPILED
    _COMPILED.add(function.__code__)
    for tier in {"compiled" if compiled else "op-by-op", "compiled" if first else "op-by-op"}:
        with lt.config(tier=tier):
            same(function(lt, *map(lt.asarray, arrays_)), expected)


_COMPILED = set()
"""Code of the tests that compared a compiled program."""


def same(result, expected):
    if isinstance(expected, (tuple, list)):
        assert len(result) == len(expected)
        for a, b in zip(result, expected, strict=True):
            same(a, b)
        return
    if not isinstance(expected, strict._array_object.Array):
        assert result == expected
        return
    a, b = np.asarray(result), np.asarray(expected._array)
    assert result.shape == expected.shape
    assert str(result.dtype) == str(b.dtype)
    assert a.dtype == b.dtype
    if b.dtype.kind in "fc":
        tolerance = 3e-5 if b.dtype in (np.float32, np.complex64) else 1e-10
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + _scale(b)))
    else:
        np.testing.assert_array_equal(a, b)


def _scale(b):
    finite = np.abs(b[np.isfinite(b)])
    return float(finite.max()) if finite.size else 0.0


def axis_of(data, x, several=False, none=True):
    choices = [st.integers(-x.ndim, x.ndim - 1)] if x.ndim else []
    if several and x.ndim:
        choices.append(
            st.lists(st.integers(0, x.ndim - 1), unique=True, max_size=x.ndim).map(tuple)
        )
    if none or not choices:
        choices.append(st.none())
    return data.draw(st.one_of(choices))


def same_as_numpy(result, expected):
    assert result.shape == expected.shape
    assert np.asarray(result).dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result), expected)
