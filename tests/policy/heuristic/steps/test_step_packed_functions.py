"""The step 'packed functions': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from support.stepping import check_acts, edit_of, fields_of

NAME = "packed functions"


def simulation(state):
    """A loop of 200 steps over scalars."""

    def step(state, _):
        return [jnp.exp(x * 0.3 - 0.1 * i) for i, x in enumerate(state)], None

    return jax.lax.scan(step, state, None, length=200)[0]


def arguments(count):
    """A state of so many scalars."""
    return ([np.float32(0.01 * i) for i in range(count)],)


def test_many_scalar_functions_are_computed_together():
    edit = check_acts(NAME, simulation, *arguments(30), after=("native loops",))
    assert "restructure" in fields_of(edit) and edit.saved_ns > 0


def test_three_are_too_few():
    assert edit_of(NAME, simulation, *arguments(3), after=("native loops",)) is None


def test_kernels_outside_native_code_stay():
    def once(state):
        return [jnp.log1p(x * 0.3) for x in state]

    assert edit_of(NAME, once, [np.full(4, 0.1 * i, np.float32) for i in range(30)]) is None
