"""Places of maxima and minima by whole numbers: XLA's place, for all numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphopt import forms
from graphopt.forms.rows import extreme_places
from graphopt.forms.switch import ALL
from graphopt.machine import CpuCosts
from tests.forms.equations import operation_of

FUNCTIONS = {"argmax": lax.argmax, "argmin": lax.argmin}
FLOATS = (jnp.bfloat16, np.float16, np.float32, np.float64)
WHOLE = (np.int8, np.uint8, np.int32, np.uint32, np.int64)
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1e-310, 1.0, -1.0, 6e4)


def check(name, x, axis):
    with jax.enable_x64(True):
        function = lambda x: FUNCTIONS[name](x, axis, np.int32)  # noqa: E731
        operation = operation_of(function, name, x)
        assert extreme_places.forbids(operation) is None
        expected = jax.jit(function)(x)
        found = jax.jit(lambda x: extreme_places.compute(operation, [x])[0])(x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((29,), 0), ((77,), 0), ((5, 40), 1), ((40, 5), 0), ((6, 27, 3), 1), ((40, 1), 0)],
)
def test_places_among_special_numbers(name, dtype, shape, axis):
    rng = np.random.default_rng(0)
    for special in (SPECIAL, SPECIAL[2:], SPECIAL[4:9], SPECIAL[9:]):
        with np.errstate(over="ignore"):
            x = np.asarray(rng.choice(special, shape)).astype(dtype)
        check(name, jnp.asarray(x) if dtype is not np.float64 else x, axis)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_places_among_whole_numbers(name, dtype):
    span = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    few = np.array([span.min, span.max, 0, 1], dtype)
    for shape, axis in (((50, 26), 1), ((50, 6), 0), ((64,), 0)):
        check(name, rng.choice(few, shape), axis)
        check(name, rng.integers(span.min, span.max, shape, dtype), axis)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_places_among_any_numbers(data):
    width = data.draw(st.sampled_from([25, 40]))
    floats = st.floats(width=32, allow_nan=True)
    x = np.array(data.draw(st.lists(floats, min_size=width, max_size=width)), np.float32)
    for name in FUNCTIONS:
        check(name, np.stack([x, x[::-1]]), 1)
        check(name, np.stack([x, x[::-1]], axis=1), 0)


@pytest.mark.parametrize(
    ("x", "rule"),
    [
        (np.ones(9, bool), "places-type"),
        (np.ones((4, 9), np.complex64), "places-type"),
        (np.ones((23, 9), np.float32), "places-short"),
        (np.ones((0, 9), np.float32), "places-short"),
        (np.ones((30, 0), np.float32), "places-empty"),
    ],
)
def test_what_is_left_to_xla(x, rule):
    operation = forms.Operation(
        "argmax", (forms.Array(x.shape, x.dtype),), (), {"axes": (0,), "index_dtype": np.int32}
    )
    assert extreme_places.forbids(operation) == rule


@pytest.mark.parametrize(
    ("x", "axis", "formed"),
    [
        (np.ones((300, 500), np.float32), 1, True),
        (np.ones((300, 500), np.int32), 1, False),
        (np.ones((300, 500), np.int32), 0, True),
        (np.ones((20000, 4), np.float32), 1, False),
        (np.ones((6, 30), np.float32), 1, False),
    ],
)
def test_it_is_taken_where_it_is_faster(x, axis, formed):
    operation = operation_of(lambda x: lax.argmax(x, axis, np.int32), "argmax", x)
    choice = forms.choose(operation, CpuCosts(), ALL)
    assert (choice.form is extreme_places.FORM) == formed


def test_a_jitted_program_uses_it():
    def function(x):
        return jnp.argmax(x, axis=0), jnp.argmin(x, axis=1)

    x = np.random.default_rng(2).normal(size=(400, 90)).astype(np.float32)
    with forms.enabled() as choices:
        found = jax.jit(lambda x: function(x))(x)
    assert [choice.form for choice in choices] == [extreme_places.FORM] * 2
    np.testing.assert_array_equal(found[0], x.argmax(0))
    np.testing.assert_array_equal(found[1], x.argmin(1))
