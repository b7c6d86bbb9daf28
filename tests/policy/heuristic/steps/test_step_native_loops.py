"""The step 'native loops': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of, loop

NAME = "native loops"


def test_a_loop_of_small_kernels_becomes_native():
    edit = check_acts(NAME, loop, normal(64))
    assert "unit" in fields_of(edit) and edit.saved_ns > 0


def test_a_program_without_a_loop_stays():
    assert edit_of(NAME, jnp.tanh, normal(64, 64)) is None


def test_a_loop_of_large_products_stays():
    def products(x):
        return jax.lax.fori_loop(0, 20, lambda _, c: jnp.tanh(c @ x), x)

    assert edit_of(NAME, products, normal(256, 256)) is None
