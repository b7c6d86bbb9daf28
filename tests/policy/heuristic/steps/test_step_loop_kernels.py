"""The step 'loop kernels': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "loop kernels"


def accumulate(x, y):
    """A loop of one elementwise kernel."""
    return jax.lax.fori_loop(0, 20, lambda _, c: c + y, x)


def test_sums_in_a_loop_come_from_the_loop_generator():
    edit = check_acts(NAME, accumulate, normal(64, 128), normal(64, 128, seed=1))
    assert fields_of(edit) == {"restructure"}


def test_native_loops_have_no_such_kernels():
    args = normal(8, 16), normal(8, 16, seed=1)
    assert edit_of(NAME, accumulate, *args, after=("native loops",)) is None


def test_what_saves_next_to_nothing_stays():
    def fn(x, y):
        return jnp.tanh(x @ x) @ x, y * y + y

    assert edit_of(NAME, fn, normal(512, 512), normal(1024)) is None
