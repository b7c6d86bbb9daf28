"""The step 'views': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "views"


def layer(x, bias, weights):
    """The result of a kernel, reshaped for a product."""
    y = jnp.maximum(x + bias, 0.0) * 2.0
    return y.reshape(-1, y.shape[-1]) @ weights


def test_a_kernel_ends_in_front_of_a_reshape():
    edit = check_acts(NAME, layer, normal(16, 24, 36), normal(36), normal(36, 4))
    assert "fuse" in fields_of(edit)


def test_a_kernel_without_a_reshape_stays():
    assert edit_of(NAME, lambda x: jnp.tanh(x) * 2.0, normal(64, 64)) is None


def test_short_rows_do_not_divide():
    assert edit_of(NAME, layer, normal(16, 24, 4), normal(4), normal(4, 4)) is None
