"""The step 'reductions': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "reductions"


def differences(x):
    """The sum of squared differences of neighbours."""
    return jnp.sum(jnp.square(x[1:] - x[:-1]))


def test_a_sum_behind_a_scalar_window_becomes_a_tree():
    edit = check_acts(NAME, differences, normal(64, 64))
    assert "restructure" in fields_of(edit)


def test_a_short_sum_stays():
    assert edit_of(NAME, differences, normal(4, 4)) is None


def test_a_sum_that_takes_none_of_the_time_stays():
    def beside_products(x, w):
        for _ in range(3):
            w = jnp.tanh(w @ w)
        return differences(x), w

    assert edit_of(NAME, beside_products, normal(64, 64), normal(1024, 1024)) is None
