"""The step 'short reductions': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "short reductions"


def test_a_short_reduction_leaves_the_library():
    edit = check_acts(NAME, lambda x: jnp.sum(x * x, axis=1), normal(64, 128))
    assert fields_of(edit) == {"unit"} and edit.saved_ns > 0


def test_a_long_one_stays():
    assert edit_of(NAME, lambda x: jnp.sum(x * x, axis=0), normal(2048, 2048)) is None


def test_one_that_xla_splits_in_two_stays():
    assert edit_of(NAME, lambda x: (x.T + 1.0).sum(0), normal(512, 512)) is None


def test_dimensions_of_one_element_are_no_rows():
    places = np.random.default_rng(0).integers(0, 512, 512)
    assert edit_of(NAME, lambda x: x[:, places].sum(1), normal(512, 512)) is None
