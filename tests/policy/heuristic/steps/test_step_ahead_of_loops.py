"""The step 'ahead of loops': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from support.stepping import check_acts, edit_of, fields_of

NAME = "ahead of loops"


def walk(steps, walkers):
    """A random walk of so many steps, all keys known before."""

    def fn(seed):
        def step(x, key):
            return jnp.tanh(x + jax.random.normal(key, (walkers,))), None

        keys = jax.random.split(jax.random.PRNGKey(seed), steps)
        return jax.lax.scan(step, jnp.zeros(walkers), keys)[0]

    return fn


def test_random_numbers_from_known_keys_are_drawn_ahead():
    edit = check_acts(NAME, walk(200, 32), np.int32(0))
    assert fields_of(edit) == {"restructure"}


def test_a_few_numbers_are_not():
    assert edit_of(NAME, walk(10, 2), np.int32(0)) is None
