"""The step 'small runs': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import logsumexp
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of, loop

NAME = "small runs"


def chain(x):
    """Many small kernels, one after the other."""
    total = jnp.zeros((4, 4))
    for i in range(40):
        total = total.at[i % 4].set(jnp.tanh(total @ x[i % 4]))
    return total


def test_small_kernels_become_regions():
    edit = check_acts(NAME, chain, normal(4, 4))
    assert "unit" in fields_of(edit) and edit.saved_ns > 0


def test_what_is_inside_a_native_loop_is_left_alone():
    assert edit_of(NAME, loop, normal(64), after=("native loops",)) is None


def test_one_kernel_is_no_run():
    assert edit_of(NAME, jnp.tanh, normal(64, 64)) is None


def test_what_python_unrolled_is_left_alone_where_it_would_compile_many_times_as_long():
    def transport(cost):
        rows, columns = jnp.zeros(40), jnp.zeros(40)
        for _ in range(30):
            rows = -logsumexp(cost + columns[None], axis=1)
            columns = -logsumexp(cost + rows[:, None], axis=0)
        return rows, columns

    assert edit_of(NAME, transport, normal(40, 40)) is None
