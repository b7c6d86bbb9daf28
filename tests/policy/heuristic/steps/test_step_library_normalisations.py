"""The step 'library normalisations': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "library normalisations"


def rows(x):
    """Every row with mean 0 and variance 1."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def test_a_normalisation_over_rows_is_one_call():
    edit = check_acts(NAME, rows, normal(2048, 768))
    assert {"unit", "fuse"} <= fields_of(edit)


def test_one_over_columns_stays():
    def columns(x):
        return (x - x.mean(axis=0)) / jnp.sqrt(x.var(axis=0) + 1e-5)

    assert edit_of(NAME, columns, normal(512, 512)) is None


def test_a_small_one_stays():
    assert edit_of(NAME, rows, normal(16, 64)) is None
