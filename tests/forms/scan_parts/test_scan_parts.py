"""Loops cut in parts: the results of whole loops, what stays in them, and which are left alone."""

import logging
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphopt import forms
from graphopt.forms.lowering import enabled
from graphopt.forms.scan_parts import row
from graphopt.forms.scan_parts.row import FEWEST
from tests.forms.equations import operation_of

NAME = "scan-parts"
TRIPS, WIDTH = 7, 5
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(TRIPS, WIDTH)).astype(np.float32)
START = RNG.normal(size=WIDTH).astype(np.float32)
MATRIX = (0.4 * RNG.normal(size=(WIDTH, WIDTH))).astype(np.float32)
WEIGHTS = RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32)


def recurrent(start, rows, matrix, reverse=False):
    def step(state, x):
        state = jnp.tanh(matrix @ state + jnp.exp(x))
        return state, (jnp.sin(state) * 2, jnp.cos(x), state)

    return lax.scan(step, start, rows, reverse=reverse)


def without_state(start, rows, matrix):
    return lax.map(lambda x: (jnp.tanh(matrix @ x), x.sum(), 3.0, start), rows)


def counted(start, rows, matrix):
    def step(carry, x):
        number, state = carry
        state = state * 0.5 + x * number
        return (number + 2, state), (number, jnp.exp(state), number * x)

    return lax.scan(step, (3, start), rows)


def counted_again(start, rows, matrix):
    """The counter is read by what is computed again behind the loop."""

    def step(carry, x):
        number, state = carry
        twice = state * 2
        state = twice + number
        return (number + 1, state), (jnp.abs(twice), jnp.abs(state), x)

    return lax.scan(step, (1, 3), rows)


def delayed(start, rows, matrix, reverse=False):
    def step(carry, x):
        before, state = carry
        state = state * 0.5 + (x - before)
        return (x * 2, state), jnp.sin(before) + state

    return lax.scan(step, (start, start), rows, reverse=reverse)


def summed(start, rows, matrix):
    def step(carry, x):
        state, plus, minus, outer, whole, fixed = carry
        state = jnp.tanh(matrix @ state + x)
        plus, minus = plus + jnp.sin(state) + x, minus - state
        outer = outer + (jnp.outer(state, x) * 2).T
        return (state, plus, minus, outer, whole + jnp.int32(x[0] > 0), fixed + start), None

    zeros = jnp.zeros((WIDTH, WIDTH))
    return lax.scan(step, (start, start, start, zeros, 0, start), rows)


def summed_and_read(start, rows, matrix):
    def step(carry, x):
        total = carry + x
        return total, total

    return lax.scan(step, start, rows)


def swapped(start, rows, matrix):
    def step(carry, x):
        a, b, kept = carry
        return (b, a + x, kept), (a * kept, jnp.exp(b))

    return lax.scan(step, (start, start * 2, start * 3), rows)


def with_inner_loops(start, rows, matrix):
    def step(state, x):
        inner, trace = lax.scan(lambda s, y: (s * 0.9 + y, jnp.sin(s)), state, rows)
        wait = lax.while_loop(lambda n: n[0] < 3, lambda n: (n[0] + 1, n[1] * x), (0, x))[1]
        small = lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)
        return inner, (trace.sum(0) + small, wait, jnp.sort(inner))

    return lax.scan(step, start, rows)


def with_places(start, rows, matrix):
    def step(state, x):
        place = jnp.argmax(x)
        state = state.at[place].add(x[place])
        return state, (matrix[place], state[place], jnp.exp(matrix[place]))

    return lax.scan(step, start, rows)


def with_draws(start, rows, matrix):
    def step(carry, x):
        key, state = carry
        key, draw = jax.random.split(key)
        noise = jax.random.normal(draw, (WIDTH,))
        return (key, state + noise), (noise * x, jax.random.key_data(jax.random.wrap_key_data(key)))

    return lax.scan(step, (jax.random.PRNGKey(0), start), rows)


def constant_carry(start, rows, matrix):
    def step(carry, x):
        return (start, 1.0), (carry[0] * x, carry[1])

    return lax.scan(step, (start * 0, 5.0), rows)


def half_sums(start, rows, matrix):
    def step(carry, x):
        return carry + x.astype(jnp.bfloat16), None

    return lax.scan(step, start.astype(jnp.bfloat16), rows)


def complex_values(start, rows, matrix):
    def step(state, x):
        turned = state * jnp.exp(0.5j * x)
        return turned, (jnp.abs(turned), jnp.angle(turned), lax.complex(x, x * 2), turned.real)

    return lax.scan(step, start.astype(np.complex64), rows)


CASES = {
    "complex": complex_values,
    "recurrent": recurrent,
    "reverse": lambda *a: recurrent(*a, reverse=True),
    "without state": without_state,
    "counted": counted,
    "counted, reverse": lambda s, r, m: counted(s, r[::-1], m),
    "counted, again": counted_again,
    "delayed": delayed,
    "delayed, reverse": lambda *a: delayed(*a, reverse=True),
    "summed": summed,
    "summed and read": summed_and_read,
    "swapped": swapped,
    "inner loops": with_inner_loops,
    "places": with_places,
    "draws": with_draws,
    "constant carry": constant_carry,
    "half precision": half_sums,
    "batched": jax.vmap(recurrent, in_axes=(0, None, 0)),
}


WHOLE = {"half precision", "summed and read"}
"""Cases of which nothing is cut off."""


def arguments(name):
    if name == "batched":
        return np.stack([START, 2 * START]), ROWS, np.stack([MATRIX, -MATRIX])
    return START, ROWS, MATRIX


@contextmanager
def without_errors():
    """A form that fails is passed over, with a word in the log: results alone would not show it."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append
    logger = logging.getLogger("graphopt")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert [record.getMessage() for record in records] == []


def both(fn, *args):
    """XLA's own results, the form's, and the choices that were made."""
    default = jax.jit(lambda *a: fn(*a))(*args)
    with without_errors(), enabled({NAME}, always=True) as choices:
        found = jax.jit(lambda *a: fn(*a))(*args)
    return default, found, choices


def assert_equal(default, found, tolerance=2e-6):
    for a, b in zip(jax.tree.leaves(default), jax.tree.leaves(found), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = np.asarray(a, wide), np.asarray(b, wide)
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * np.abs(a).max(initial=1))


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


OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b * 0.5,
    "sin": lambda a, b: jnp.sin(a),
    "half": lambda a, b: a * 0.5,
    "flip": lambda a, b: jnp.flip(a) + b,
    "product": lambda a, b: WEIGHTS @ a * 0.1,
    "joined": lambda a, b: jnp.dot(a, b) * a * 0.1,
    "where": lambda a, b: jnp.where(a > 0, a, b),
    "sum": lambda a, b: jnp.sum(a) * 0.2 + b,
    "sorted": lambda a, b: jnp.sort(a),
}


@st.composite
def bodies(draw):
    """(Operations with the places of their operands, places that are carried, that are made)."""
    count = draw(st.integers(3, 10))
    steps = [
        (draw(st.sampled_from(sorted(OPERATIONS))), draw(st.integers(0, 4 + n)), draw(st.integers(0, 4 + n)))
        for n in range(count)
    ]  # fmt: skip
    places = st.integers(0, 4 + count - 1)
    carried = [draw(places) for _ in range(3)]
    added = draw(st.booleans())
    return steps, carried, [draw(places) for _ in range(3)], added, draw(st.booleans())


@given(bodies())
@settings(max_examples=40, deadline=None)
def test_random_loops(body):
    steps, carried, made, added, reverse = body

    def fn(start, rows):
        def step(carry, x):
            values = [*carry, x, jnp.asarray(START)]
            for name, a, b in steps:
                values.append(jnp.tanh(OPERATIONS[name](values[a], values[b])))
            carry = [values[place] for place in carried]
            if added:
                carry[0] = values[0] + carry[0]
            return tuple(carry), [values[place] for place in made]

        return lax.scan(step, (start, start * 2, start - 1), rows, reverse=reverse)

    default, found, _ = both(fn, START, ROWS)
    assert_equal(default, found, 2e-4)
