"""Functions on random arrays: the same values and dtypes as array-api-strict, whatever the tier."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.conformance import (
    ALL,
    COMPLEX,
    FLOATS,
    INTS,
    MODEST,
    NUMERIC,
    REALS,
    arrays,
    axis_of,
    both,
    same_as_numpy,
)

import graphopt.lazy as lt

REDUCTIONS = {
    "sum": NUMERIC, "prod": NUMERIC, "max": REALS, "min": REALS, "mean": FLOATS, "std": FLOATS,
    "var": FLOATS, "any": ALL, "all": ALL, "count_nonzero": ALL,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@MODEST
@given(data=st.data())
def test_reductions(name, data):
    x = data.draw(arrays(REDUCTIONS[name]))
    axis, keepdims = axis_of(data, x, several=True), data.draw(st.booleans())
    both(lambda xp, a: getattr(xp, name)(a, axis=axis, keepdims=keepdims), x)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@MODEST
@given(data=st.data())
def test_positions_of_extrema(name, data):
    x = data.draw(arrays(REALS))
    axis, keepdims = axis_of(data, x), data.draw(st.booleans())
    both(lambda xp, a: getattr(xp, name)(a, axis=axis, keepdims=keepdims), x)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@MODEST
@given(data=st.data())
def test_cumulative(name, data):
    x = data.draw(arrays(NUMERIC, min_dims=1))
    axis, initial = axis_of(data, x, none=x.ndim == 1), data.draw(st.booleans())
    both(lambda xp, a: getattr(xp, name)(a, axis=axis, include_initial=initial), x)


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum"])
@MODEST
@given(
    x=arrays(INTS, min_dims=1, max_dims=1), dtype=st.sampled_from(["int64", "uint64", "float64"])
)
def test_a_given_dtype_is_used(name, x, dtype):
    both(lambda xp, a: getattr(xp, name)(a, dtype=getattr(xp, dtype)), x)


@pytest.mark.parametrize("name", ["sort", "argsort"])
@MODEST
@given(data=st.data())
def test_sorting(name, data):
    x = data.draw(arrays(REALS, min_dims=1))
    axis, descending = axis_of(data, x, none=False), data.draw(st.booleans())
    both(lambda xp, a: getattr(xp, name)(a, axis=axis, descending=descending), x)


BINARY = {
    "add": NUMERIC, "subtract": NUMERIC, "multiply": NUMERIC, "divide": (*FLOATS, *COMPLEX),
    "floor_divide": REALS, "remainder": REALS, "maximum": REALS, "minimum": REALS, "equal": ALL,
    "not_equal": ALL, "less": REALS, "greater_equal": REALS, "atan2": FLOATS, "hypot": FLOATS,
    "logaddexp": FLOATS, "bitwise_and": ("bool", *INTS), "bitwise_xor": ("bool", *INTS),
    "logical_or": ("bool",), "copysign": FLOATS,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@MODEST
@given(data=st.data())
def test_broadcasting_and_promotion(name, data):
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    x = data.draw(arrays(BINARY[name], shape=shapes.input_shapes[0]))
    y = data.draw(arrays(BINARY[name], shape=shapes.input_shapes[1]))
    both(lambda xp, a, b: getattr(xp, name)(a, b), x, y)


@MODEST
@given(data=st.data(), scalar=st.sampled_from([2, 0, 1, 3, -1, 2.5, 0.0, 1.0]))
def test_python_scalars(data, scalar):
    dtypes = FLOATS if isinstance(scalar, float) else ("int8", "int64", *FLOATS)
    x = data.draw(arrays(dtypes))

    def program(xp, a):
        return a + scalar, scalar - a, a * scalar, a > scalar, scalar <= a, a == scalar

    both(program, x)


@pytest.mark.parametrize("compiled", [False, True])
@MODEST
@given(x=arrays((*FLOATS, "int64"), shape=(3, 4)))
def test_operators(compiled, x):
    def program(xp, a):
        y = a + 0
        y += 1
        y *= a
        return y, -a, abs(a), a - y, y // (abs(a) + 1), y % (abs(a) + 1), a @ a.T, a**2, a.mT

    both(program, x, compiled=compiled)


def basic_index(data, shape):
    """Any basic index: integers, slices, new axes, an ellipsis, fewer entries than axes."""
    return data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True, max_dims=6))


@pytest.mark.parametrize("compiled", [False, True])
@settings(MODEST, max_examples=40)
@given(data=st.data())
def test_basic_indexing(compiled, data):
    x = data.draw(arrays(("int64", "float32"), min_dims=1, max_dims=3, shape=None))
    index = basic_index(data, x.shape)
    with lt.config(tier="compiled" if compiled else "op-by-op"):
        same_as_numpy(lt.asarray(x)[index], x[index])


@pytest.mark.parametrize("compiled", [False, True])
@settings(MODEST, max_examples=40)
@given(data=st.data())
def test_assignment_to_a_basic_index(compiled, data):
    x = data.draw(arrays(("int64", "float32"), min_dims=1, max_dims=3))
    index = basic_index(data, x.shape)
    value = data.draw(st.one_of(st.just(7), st.just(0), st.none()))
    if value is None:
        value = data.draw(arrays((str(x.dtype),), shape=x[index].shape))
    tensor, before = lt.asarray(x), x.copy()
    view = tensor[...]
    tensor[index] = value if isinstance(value, int) else lt.asarray(value)
    expected = x.copy()
    if None not in (index if isinstance(index, tuple) else (index,)) or np.ndim(value) == 0:
        expected[index] = value
        with lt.config(tier="compiled" if compiled else "op-by-op"):
            same_as_numpy(tensor, expected)
    same_as_numpy(view, before)


@pytest.mark.parametrize("compiled", [False, True])
@settings(MODEST, max_examples=40)
@given(data=st.data())
def test_integer_array_indexing(compiled, data):
    x = data.draw(arrays(("int64", "float32"), min_dims=1, max_dims=3, min_side=1))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    count = data.draw(st.integers(1, x.ndim))
    index = tuple(
        data.draw(hnp.arrays("int64", shape, elements=st.integers(-n, n - 1)))
        for n in x.shape[:count]
    )
    tensors = tuple(map(lt.asarray, index))
    with lt.config(tier="compiled" if compiled else "op-by-op"):
        same_as_numpy(lt.asarray(x)[tensors], x[index])
        tensor, expected = lt.asarray(x), x.copy()
        tensor[tensors], expected[index] = 5, 5
        same_as_numpy(tensor, expected)


@MODEST
@given(data=st.data())
def test_boolean_indexing(data):
    x = data.draw(arrays(("int64", "float32"), min_dims=1, max_dims=3))
    count = data.draw(st.integers(0, x.ndim))
    mask = data.draw(hnp.arrays("bool", x.shape[:count]))
    same_as_numpy(lt.asarray(x)[lt.asarray(mask)], x[mask])
    tensor, expected = lt.asarray(x), x.copy()
    tensor[lt.asarray(mask)] = 3
    expected[mask] = 3
    same_as_numpy(tensor, expected)
    tensor[lt.asarray(mask)] = lt.asarray(x[mask])
    expected[mask] = x[mask]
    same_as_numpy(tensor, expected)


@MODEST
@given(data=st.data())
def test_manipulation(data):
    x = data.draw(arrays(ALL, min_dims=1))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    order = data.draw(st.permutations(range(x.ndim)))
    shift = data.draw(st.integers(-5, 5))
    count = data.draw(st.integers(0, 3))

    def program(xp, a):
        return (
            xp.permute_dims(a, tuple(order)), xp.flip(a, axis=axis), xp.flip(a),
            xp.roll(a, shift, axis=axis), xp.roll(a, shift), xp.expand_dims(a, axis=axis),
            xp.squeeze(xp.expand_dims(a, axis=0), axis=0), xp.reshape(a, (-1,)),
            xp.concat([a, a], axis=axis), xp.concat([a, a], axis=None), xp.stack([a, a], axis=axis),
            xp.repeat(a, count, axis=axis), xp.tile(a, (2, 1)), xp.moveaxis(a, 0, axis),
            xp.unstack(a, axis=axis), xp.broadcast_to(a, (2, *a.shape)),
            xp.broadcast_arrays(a, xp.zeros((1,) * a.ndim, dtype=a.dtype)),
        )  # fmt: skip

    both(program, x)


@MODEST
@given(data=st.data())
def test_searching_and_sets(data):
    x = data.draw(arrays(REALS, min_dims=1, max_dims=2))
    y = data.draw(arrays((str(x.dtype),), min_dims=1, max_dims=1, min_side=1))

    def program(xp, a, b):
        ordered = xp.sort(b)
        return (
            xp.nonzero(a), xp.where(a > 1, a, a * 0), xp.unique_values(a), tuple(xp.unique_counts(a)),
            tuple(xp.unique_inverse(a)), tuple(xp.unique_all(a)), xp.searchsorted(ordered, a),
            xp.searchsorted(ordered, a, side="right"),
        )  # fmt: skip

    both(program, x, y)
    # The standard has isin of integers only, and array-api-strict 2.6.1 ignores invert.
    for invert in (False, True):
        found = lt.isin(lt.asarray(x), lt.asarray(y), invert=invert)
        np.testing.assert_array_equal(found, np.isin(x, y, invert=invert))


@MODEST
@given(data=st.data())
def test_take(data):
    x = data.draw(arrays(ALL, min_dims=1, max_dims=3, min_side=1))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    n = x.shape[axis]
    chosen = data.draw(hnp.arrays("int64", st.integers(0, 4), elements=st.integers(-n, n - 1)))
    shape = list(x.shape)
    shape[axis] = 2
    along = data.draw(hnp.arrays("int64", tuple(shape), elements=st.integers(-n, n - 1)))
    both(lambda xp, a, i: xp.take(a, i, axis=axis), x, chosen)
    both(lambda xp, a, i: xp.take_along_axis(a, i, axis=axis), x, along)


@MODEST
@given(data=st.data())
def test_utilities(data):
    x = data.draw(arrays(REALS, min_dims=1, max_dims=2))
    n = data.draw(st.integers(0, 2))
    both(lambda xp, a: (xp.diff(a), xp.diff(a, n=n, axis=0), xp.diff(a, append=a)), x)
    low, high = sorted(data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9))))
    both(lambda xp, a: (xp.clip(a, low, high), xp.clip(a, max=high), xp.clip(a, low)), x)


@MODEST
@given(
    start=st.integers(-9, 9), stop=st.integers(-9, 9), step=st.integers(-3, 3).filter(bool),
    k=st.integers(-4, 4), shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    dtype=st.sampled_from(["int64", "float32", "float64"]),
)  # fmt: skip
def test_creation(start, stop, step, k, shape, dtype):
    def program(xp):
        d = getattr(xp, dtype)
        grid = xp.reshape(xp.arange(12, dtype=d), (3, 4))
        return (
            xp.arange(start, stop, step, dtype=d), xp.arange(abs(stop), dtype=d),
            xp.zeros(shape, dtype=d), xp.ones(shape, dtype=d), xp.full(shape, 3, dtype=d),
            xp.eye(3, 4, k=k, dtype=d), xp.tril(grid, k=k), xp.triu(grid, k=k),
            xp.linspace(start, stop, 5, dtype=xp.float64),
            xp.linspace(start, stop, 4, dtype=xp.float64, endpoint=False),
            xp.meshgrid(xp.arange(2, dtype=d), xp.arange(3, dtype=d)),
            xp.meshgrid(xp.arange(2, dtype=d), xp.arange(3, dtype=d), indexing="ij"),
            xp.zeros_like(grid), xp.full_like(grid, 2), xp.ones_like(grid, dtype=xp.int8),
        )  # fmt: skip

    both(program)
