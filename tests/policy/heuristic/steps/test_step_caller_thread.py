"""The step 'caller thread': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "caller thread"


def layers(x):
    """A few kernels."""
    for _ in range(3):
        x = jnp.tanh(x * 1.01) - x[::-1]
    return x


def test_a_short_program_runs_on_its_callers_thread():
    edit = check_acts(NAME, layers, normal(40, 50))
    assert fields_of(edit) == {"restructure"} and edit.nodes == 1


def test_a_long_one_stays_with_a_worker():
    assert edit_of(NAME, layers, normal(400, 500)) is None


def test_a_single_operation_stays():
    assert edit_of(NAME, lambda x: x + 1.0, normal(1200)) is None
