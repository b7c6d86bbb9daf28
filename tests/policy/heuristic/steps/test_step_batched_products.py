"""The step 'batched products': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "batched products"


def batch(a, b):
    """A batch of products."""
    return jnp.tanh(a @ b)


def test_many_small_matrices_become_one_loop():
    edit = check_acts(NAME, batch, normal(500, 4, 4), normal(500, 4, 4, seed=1))
    assert fields_of(edit) == {"restructure"} and edit.saved_ns > 500


def test_large_matrices_stay_with_the_library():
    assert edit_of(NAME, batch, normal(16, 64, 64), normal(16, 64, 64, seed=1)) is None


def test_few_small_ones_save_too_little():
    def beside_products(a, b, w):
        return batch(a, b), jnp.tanh(w @ w) @ w

    args = normal(4, 4, 4), normal(4, 4, 4, seed=1), normal(1024, 1024)
    assert edit_of(NAME, beside_products, *args) is None
