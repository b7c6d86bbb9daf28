"""The step 'one pass outputs': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import captured, normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "one pass outputs"


def test_outputs_that_read_the_same_arrays_are_joined():
    found = captured("adam_step")
    edit = check_acts(NAME, found.fn, *found.args)
    assert fields_of(edit) == {"join"}


def test_small_outputs_stay_apart():
    assert edit_of(NAME, lambda x: (jnp.cumsum(x, 0), jnp.tanh(x)), normal(16, 16)) is None
