"""Cumulative operations in a loop over the axis: equal to XLA's, for every type, axis and direction."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphopt.forms import Array, Operation, choose
from graphopt.forms.rows.cumulative_scan import FORM
from graphopt.machine import own_costs
from graphopt.machine.cost_rows import default_costs

DEFAULT = {
    "cumsum": lax.cumsum,
    "cumprod": lax.cumprod,
    "cummax": lax.cummax,
    "cummin": lax.cummin,
    "cumlogsumexp": lax.cumlogsumexp,
}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 3.5, -2.25]


def operation(name, x, axis=0, reverse=False):
    """The equation that jax would lower."""
    array = Array(x.shape, np.dtype(x.dtype))
    return Operation(name, (array,), (array,), {"axis": axis, "reverse": reverse})


@partial(jax.jit, static_argnums=(0, 2, 3))
def formed(name, x, axis=0, reverse=False):
    """What the form computes."""
    return FORM.compute(operation(name, x, axis, reverse), [x])[0]


def assert_same(name, x, axis=0, reverse=False, *, bits=False):
    expected = DEFAULT[name](x, axis=axis, reverse=reverse)
    found = formed(name, x, axis, reverse)
    assert found.dtype == expected.dtype
    if bits:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", FORM.primitives)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("dims", "axis"), [((1,), 0), ((200,), 0), ((3, 70), 1), ((70, 3), 0), ((2, 5, 3), 1)]
)
def test_floats(name, reverse, dims, axis):
    x = np.random.default_rng(0).normal(1.0, 0.3, size=dims).astype(np.float32)
    assert_same(name, jnp.asarray(x), axis, reverse, bits=name in ("cummax", "cummin"))


@pytest.mark.parametrize("name", FORM.primitives[:4])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_integers_are_equal_with_overflow(name, dtype):
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, size=(150,), dtype=dtype)
    for reverse in (False, True):
        assert_same(name, jnp.asarray(x), 0, reverse, bits=True)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64"])
def test_wide_types(dtype):
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).integers(0, 1 << 40, size=(130,)), dtype)
        for name in ("cumsum", "cummax"):
            assert_same(name, x, bits=True)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(SPECIAL), min_size=72, max_size=72), st.booleans())
def test_special_values(values, reverse):
    x = jnp.asarray(values, jnp.float32)
    for name in FORM.primitives:
        expected = np.asarray(DEFAULT[name](x, reverse=reverse))
        found = np.asarray(formed(name, x, 0, reverse))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        if name in ("cummax", "cummin"):
            numbers = ~np.isnan(found)
            np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def test_axes_longer_than_a_loop_are_cut():
    x = jnp.ones((3000, 64), jnp.float32)
    np.testing.assert_array_equal(formed("cumsum", x)[-1], 3000.0)
    np.testing.assert_array_equal(formed("cumsum", x, 0, True)[0], 3000.0)
    long = jnp.ones((1_200_000,), jnp.int32)
    np.testing.assert_array_equal(formed("cumsum", long), np.arange(1, 1_200_001))


@pytest.mark.parametrize("name", FORM.primitives)
@pytest.mark.parametrize("reverse", [False, True])
def test_long_axes_of_long_rows_go_from_block_to_block(name, reverse):
    drawn = np.random.default_rng(1)
    x = drawn.normal(1.0, 0.01, size=(2, 1100, 40)).astype(np.float32)
    assert_same(name, jnp.asarray(x), 1, reverse, bits=name in ("cummax", "cummin"))
    x[0, drawn.integers(0, 1100, 30), drawn.integers(0, 40, 30)] = drawn.choice(SPECIAL, 30)
    expected = DEFAULT[name](jnp.asarray(x), axis=1, reverse=reverse)
    found = formed(name, jnp.asarray(x), 1, reverse)
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=1e-5)


def test_under_vmap_and_in_a_loop():
    x = jnp.arange(2 * 70 * 3, dtype=jnp.int32).reshape(2, 70, 3)

    def step(carry, row):
        return carry, FORM.compute(operation("cumsum", row), [row])[0]

    np.testing.assert_array_equal(lax.scan(step, 0, x)[1], jnp.cumsum(x, 1))
    np.testing.assert_array_equal(jax.vmap(lambda row: step(0, row)[1])(x), jnp.cumsum(x, 1))


def test_what_is_left_to_xla():
    small, large = jnp.ones((8, 8), jnp.float32), jnp.ones((1024, 256), jnp.float32)
    assert choose(operation("cumsum", small), own_costs()).form is None
    assert choose(operation("cumsum", large), own_costs()).form is FORM
    assert choose(operation("cumsum", large, 1), own_costs()).form is None
    assert choose(operation("cumlogsumexp", large, 1), own_costs()).form is FORM
    assert FORM.forbids(operation("cumsum", jnp.ones((0, 3)))) == "cumulative-empty"
    half = jnp.ones((64, 64), jnp.bfloat16)
    assert FORM.forbids(operation("cumsum", half)) == "cumulative-type"


def test_blocks_of_no_power_of_two_cost_a_division_per_element():
    def saved(length):
        rows = operation("cumsum", np.zeros((16, length), np.float32), axis=1)
        found = FORM.times(rows, default_costs("0.11.2"))
        return found.default_ns / found.form_ns

    assert saved(256) > 2 > 1.3 > saved(208)
