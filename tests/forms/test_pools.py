"""Pools and their gradients in other forms: every element as XLA computes it, also odd ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphopt import forms
from graphopt.forms.rows import pool_gradient, window_shifts
from graphopt.machine import own_costs
from graphopt.machine.cost_rows import DEFAULT
from tests.forms.equations import operation_of

SPECIAL = np.array([0.0, -0.0, 1.0, -2.0, np.nan, np.inf, -np.inf, 1e-42], np.float32)
REDUCERS = {"max": (lax.max, -np.inf), "min": (lax.min, np.inf), "sum": (lax.add, 0.0)}


@st.composite
def windows(draw, longest=6):
    """Shape, and sizes, strides, padding, base and window dilation along each of its dimensions."""
    count = draw(st.integers(1, 3))
    numbers = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * count))  # noqa: E731
    sizes = numbers(1, longest)
    padding = tuple((draw(st.integers(0, n)), draw(st.integers(0, n))) for n in sizes)
    return numbers(longest, longest + 5), sizes, numbers(1, 3), padding, numbers(1, 2)


def values(shape, seed, special):
    rng = np.random.default_rng(seed)
    if special:
        return rng.choice(SPECIAL, shape)
    return rng.normal(size=shape).astype(np.float32)


def assert_same_bits(found, expected):
    """NaNs of any kind are the same."""
    found, expected = np.asarray(found), np.asarray(expected)
    same = found.view(np.uint32) == expected.view(np.uint32)
    assert (same | (np.isnan(found) & np.isnan(expected))).all()


@settings(max_examples=10, deadline=None)
@given(windows(), st.sampled_from(sorted(REDUCERS)), st.booleans(), st.integers(0, 9))
def test_windows_are_those_of_xla(window, name, special, seed):
    shape, sizes, strides, padding, dilation = window
    reducer, start = REDUCERS[name]
    x = values(shape, seed, special)

    def pool(x):
        return lax.reduce_window(
            x, np.float32(start), reducer, sizes, strides, padding,
            base_dilation=dilation[::-1], window_dilation=dilation,
        )  # fmt: skip

    operation = operation_of(pool, f"reduce_window_{name}", x)
    if operation.results[0].size == 0 or window_shifts.forbids(operation):
        return
    found = jax.jit(lambda x: window_shifts.compute(operation, [x])[0])(x)
    expected = jax.jit(pool)(x)
    if name == "sum":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    else:
        assert_same_bits(found, expected)


@pytest.mark.parametrize(("size", "stride"), [(9, 1), (16, 1), (33, 2), (70, 5), (12, 12)])
@pytest.mark.parametrize("name", ["max", "sum"])
def test_long_windows_of_integers_are_exact(size, stride, name):
    x = np.random.default_rng(size).integers(-(2**31), 2**31 - 1, (100, 3), np.int32)
    reducer = REDUCERS[name][0]
    start = np.int32(0 if name == "sum" else -(2**31))

    def pool(x):
        return lax.reduce_window(x, start, reducer, (size, 1), (stride, 1), "SAME")

    operation = operation_of(pool, f"reduce_window_{name}", x)
    assert window_shifts.forbids(operation) is None
    found = jax.jit(lambda x: window_shifts.compute(operation, [x])[0])(x)
    np.testing.assert_array_equal(found, jax.jit(pool)(x))


def gradient_of(pool):
    return lambda x, g: jax.vjp(pool, x)[1](g)[0]


@settings(max_examples=10, deadline=None)
@given(windows(longest=3), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9))
def test_gradients_of_pools_have_the_bits_of_xla(window, channels_last, largest, special, seed):
    reducer, start = REDUCERS["max" if largest else "min"]
    channels = (3 if channels_last else 9), 1, 1, (0, 0)
    shape, sizes, strides, padding = (
        (*along, one) if channels_last else (one, *along)
        for along, one in zip(window, channels, strict=False)
    )

    def pool(x):
        return lax.reduce_window(x, np.float32(start), reducer, sizes, strides, padding)

    x = values(shape, seed, special)
    g = values(jax.eval_shape(pool, x).shape, seed + 1, special)
    operation = operation_of(gradient_of(pool), "select_and_scatter_add", x, g)
    if pool_gradient.forbids(operation):
        return
    found = jax.jit(lambda g, x: pool_gradient.compute(operation, [g, x])[0])(g, x)
    assert_same_bits(found, jax.jit(gradient_of(pool))(x, g))


def test_few_channels_in_front_leave_gradients_to_xla():
    def rule(channels):
        def pool(x):
            return lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

        x, g = (jnp.zeros((1, channels, side, side), jnp.float32) for side in (32, 16))
        return pool_gradient.forbids(
            operation_of(gradient_of(pool), "select_and_scatter_add", x, g)
        )

    assert (rule(3), rule(8)) == ("pool-gradient-minor", None)


def test_a_training_step_takes_both_forms_under_vmap():
    def pool(x):
        return lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    def step(x):
        return jax.vmap(jax.value_and_grad(lambda x: (pool(x) ** 2).sum()))(x)

    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 64, 64, 16)), jnp.float32)
    chosen = []
    assert forms.install(chosen.append) == ()
    try:
        found = jax.jit(lambda x: step(x))(x)
    finally:
        forms.remove()
    assert "pool-gradient" in {choice.form.name for choice in chosen}
    expected = jax.jit(step)(x)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    assert_same_bits(found[1], expected[1])


def test_small_pools_stay_with_xla():
    def pool(x):
        return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    operation = operation_of(pool, "reduce_window_max", jnp.zeros((1, 4, 4, 2)))
    assert forms.choose(operation, own_costs()).form is None


def test_gradients_of_average_pools_stay_with_xla():
    def pool(x):
        return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x = jnp.zeros((4, 64, 64, 32))
    g = jnp.zeros((4, 32, 32, 32))
    gradient = operation_of(lambda g: jax.linear_transpose(pool, x)(g), "reduce_window_sum", g)
    assert window_shifts.forbids(gradient) == "window-gradient"
    assert window_shifts.forbids(operation_of(pool, "reduce_window_sum", x)) is None


def test_windows_that_native_code_computes_sooner_are_left_to_the_optimizer():
    def blur(x):
        return lax.reduce_window(x, 0.0, lax.add, (3, 3), (1, 1), "SAME")

    def choice(side):
        operation = operation_of(blur, "reduce_window_sum", jnp.zeros((side, side)))
        return forms.choose(operation, DEFAULT).form

    assert choice(200) is None
    assert choice(2000) is window_shifts.FORM
