"""The step "scalar reductions": functions stand ahead of reductions of several arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "scalar reductions"


def place(x):
    return lax.argmax(jnp.log(jnp.abs(x) + 1.0), 1, jnp.int32)


def test_a_logarithm_stands_ahead_of_the_place_of_its_maximum():
    edit = check_acts(NAME, place, normal(60, 900))
    assert "fuse" in fields_of(edit) and edit.nodes == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.log(jnp.abs(x) + 1.0).max(1),
        lambda x: lax.argmax(x + 1.0, 1, jnp.int32),
        lambda x: place(x[:3, :5]),
    ],
)
def test_what_vectorises_or_is_short_stays(function):
    assert edit_of(NAME, function, normal(60, 900)) is None


def test_a_value_that_others_read_stays():
    def fn(x: jax.Array):
        y = jnp.log(jnp.abs(x) + 1.0)
        return lax.argmax(y, 1, jnp.int32), y.sum(0)

    assert edit_of(NAME, fn, normal(60, 900)) is None
