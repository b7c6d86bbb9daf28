"""Loops of random operations, cut in parts."""

import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tests.forms.scan_parts.loops import ROWS, START, WEIGHTS, assert_equal, both

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
