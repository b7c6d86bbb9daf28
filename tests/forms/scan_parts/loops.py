"""Loops over arrays of many kinds, and how they are compared with the same loops cut in parts."""

import logging
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.lowering import enabled

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
