"""Loops cut in parts: the results of whole loops, what stays in them, and which are left alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphopt import forms
from graphopt.forms.lowering import enabled
from graphopt.forms.scan_parts import row
from graphopt.forms.scan_parts.row import FEWEST
from tests.forms.equations import operation_of
from tests.forms.scan_parts.loops import (
    CASES,
    MATRIX,
    NAME,
    ROWS,
    START,
    TRIPS,
    WEIGHTS,
    WIDTH,
    arguments,
    assert_equal,
    both,
    counted_again,
    recurrent,
    without_state,
)

WHOLE = {"half precision", "summed and read"}
"""Cases of which nothing is cut off."""


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_whole_loop(name):
    default, found, choices = both(CASES[name], *arguments(name))
    assert_equal(default, found)
    assert bool(choices) == (name not in WHOLE)


def loss(fn):
    def value(*args):
        leaves = [x for x in jax.tree.leaves(fn(*args)) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(jnp.sum(jnp.sin(leaf.astype(jnp.float32))) for leaf in leaves)

    return value


GRADIENTS_WHOLE = {"counted, again", "half precision", "summed and read"}


@pytest.mark.parametrize("name", sorted(set(CASES) - {"draws"}))
def test_gradients_are_those_of_the_whole_loop(name):
    gradient = jax.grad(loss(CASES[name]), argnums=(0, 1, 2))
    if name == "inner loops":  # a loop of unknown length has no gradient backwards
        gradient = lambda *a: jax.jvp(loss(CASES[name]), a, a)  # noqa: E731
    default, found, choices = both(gradient, *arguments(name))
    assert_equal(default, found, 1e-5)
    assert bool(choices) == (name not in GRADIENTS_WHOLE)


def primitives(equations):
    return sorted(e.primitive.name for e in equations)


def test_only_the_recurrence_stays():
    loop = operation_of(recurrent, "scan", START, ROWS, MATRIX)
    parts = row._parts(loop)
    assert "exp" in primitives(parts.ahead)
    assert "cos" in primitives(parts.ahead)
    assert primitives(parts.behind) == ["mul", "sin"]
    assert {"tanh", "dot_general"} <= set(primitives(parts.core))
    assert not {"sin", "cos", "exp"} & set(primitives(parts.core))


def test_a_loop_without_state_is_no_loop():
    with enabled({NAME}, always=True):
        text = jax.jit(lambda *a: without_state(*a)).lower(START, ROWS, MATRIX).as_text()
    assert "stablehlo.while" not in text


def test_products_are_summed_up_as_one():
    gradient = jax.grad(lambda m: recurrent(START, ROWS, m)[0].sum())
    with enabled({NAME}, always=True):
        text = jax.jit(gradient).lower(MATRIX).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert any(f"tensor<{TRIPS}x{WIDTH}xf32>, tensor<{TRIPS}x{WIDTH}xf32>" in p for p in products)


def test_what_is_cut_is_not_cut_again():
    gradient = jax.grad(loss(recurrent), argnums=(0, 1, 2))
    choices = both(gradient, START, ROWS, MATRIX)[2]
    assert len([c for c in choices if c.form is not None]) == 2


def test_values_are_computed_again_rather_than_kept():
    def step(state, x):
        state = state * 0.5 + x
        return state, (jnp.abs(state), state * 2, state - 1, state * state)

    loop = operation_of(lambda s, x: lax.scan(step, s, x), "scan", START, ROWS)
    assert len(row._parts(loop).kept) == 1


def test_counters_are_not_kept():
    loop = operation_of(counted_again, "scan", START, ROWS, MATRIX)
    assert len(row._parts(loop).kept) == 1


REFUSED = {
    "scan-short": lambda s, x: lax.scan(lambda c, y: (c + y, jnp.sin(c)), s, x[: FEWEST - 1]),
    "scan-nothing": lambda s, x: lax.scan(lambda c, y: (jnp.tanh(c) + y, c), s, x),
    "scan-memory": lambda s, x: lax.scan(
        lambda c, y: (c, jnp.sin(jnp.broadcast_to(y, (1 << 20, WIDTH))).sum()), s, x
    ),
}


def test_steps_over_parts_of_a_batch_stay_apart():
    """Whoever adds up gradients part by part may have too little memory for the whole."""

    def fn(weights, parts):
        def loss(w, x):
            for _ in range(20):
                x = jnp.tanh(x @ w)
            return jnp.sum(x)

        return lax.scan(lambda g, x: (g + jax.grad(loss)(weights, x), None), weights * 0, parts)[0]

    small, large = jnp.zeros((8, 64, WIDTH)), jnp.zeros((8, 1 << 16, WIDTH))
    assert row.forbids(operation_of(fn, "scan", WEIGHTS, small)) is None
    assert row.forbids(operation_of(fn, "scan", WEIGHTS, large)) == "scan-memory"


@pytest.mark.parametrize("rule", REFUSED)
def test_rules(rule):
    loop = operation_of(REFUSED[rule], "scan", START, ROWS)
    assert row.forbids(loop) == rule
    assert rule in forms.RULES


def test_side_effects_stay_in_their_loop():
    def step(state, x):
        jax.debug.callback(lambda v: None, state)
        return state + x, jnp.sin(state)

    loop = operation_of(lambda s, x: lax.scan(step, s, x), "scan", START, ROWS)
    assert row.forbids(loop) == "scan-effects"


def test_forms_inside_of_a_cut_loop():
    """What it holds is lowered in its own forms too."""

    def fn(start, rows):
        step = lambda c, x: (c * 0.5 + x, (lax.cumsum(c), jnp.exp(c)))  # noqa: E731
        return lax.scan(step, start, rows)

    with enabled({NAME, "cumulative-scan"}, always=True) as choices:
        jax.jit(fn).lower(START, ROWS)
    assert {c.form.name for c in choices} == {NAME, "cumulative-scan"}


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int64])
def test_wide_types(dtype):
    with jax.enable_x64(True):
        rows = (10 * ROWS).astype(dtype)

        def fn(start, rows):
            step = lambda c, x: ((c[0] + x * x, c[1] * 2 + x), (c[1] * 3, x - 1))  # noqa: E731
            return lax.scan(step, (start, start), rows)

        default, found, choices = both(fn, rows[0], rows)
    assert choices
    for a, b in zip(jax.tree.leaves(default), jax.tree.leaves(found), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=1e-13)


def test_functions_that_are_called_twice():
    """Their variables are other ones in each call, and what they close over is kept."""
    table = np.arange(WIDTH, dtype=np.float32)
    called = jax.jit(lambda x: jnp.exp(x) * table)

    @jax.checkpoint
    def again(x):
        return called(x) - called(2 * x)

    def fn(start, rows):
        step = lambda c, x: (c * 0.5 + again(x), jax.nn.relu(again(c)))  # noqa: E731
        return lax.scan(step, start, rows)

    default, found, choices = both(fn, START, 0.1 * ROWS)
    assert choices
    assert_equal(default, found)


def test_small_integers_wrap_around():
    def fn(start, rows):
        step = lambda c, x: ((c[0] + x, c[1] + np.int8(50), c[2] + np.int8(3)), c[1])  # noqa: E731
        return lax.scan(step, (start, start[0], start), rows)

    rows = (40 * ROWS).astype(np.int8)
    default, found, choices = both(fn, rows[0], rows)
    assert choices
    for a, b in zip(jax.tree.leaves(default), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(b, a)


def test_terms_that_share_values():
    """As often as a value is added to itself, its sum is made once."""

    def fn(start, rows):
        def step(total, x):
            value = jnp.sin(x)
            for _ in range(60):
                value = value + value
            return total + value * 2.0**-60, None

        return lax.scan(step, start, rows)

    default, found, choices = both(fn, START, ROWS)
    assert choices
    assert_equal(default, found)
