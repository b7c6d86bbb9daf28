"""The step 'column reductions': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.hlo.restructure import CODE
from graphopt.machine import cost_rows, decide_with

NAME = "column reductions"


@pytest.fixture(autouse=True)
def default_costs():
    """Decisions for the same machine everywhere."""
    with decide_with(cost_rows.DEFAULT):
        yield


def test_a_sum_of_columns_in_memory_is_made_in_slices():
    edit = check_acts(NAME, lambda x: jnp.sum(x, axis=0) * 2.0, normal(256, 64))
    assert "restructure" in fields_of(edit) and edit.saved_ns > 0


def test_what_is_fused_into_it_is_written_first():
    edit = check_acts(
        NAME, lambda x, y: jnp.sum(x * (y - 0.5), 0), normal(256, 64), normal(256, 64)
    )
    assert {"restructure", "fuse"} <= fields_of(edit)


def test_several_dimensions_that_lie_together_are_one():
    edit = check_acts(NAME, lambda x: x.mean((0, 1, 2)), normal(8, 14, 14, 16))
    assert edit.makes("restructure", CODE["slice-reduce"], np.arange(100))


def test_a_window_in_front_is_left_out():
    """XLA puts one before what it does not give its library."""
    edit = check_acts(
        NAME, lambda *x: [v.sum(0) for v in x], *(normal(128, 16, seed=i) for i in range(6))
    )
    assert edit.makes("restructure", CODE["slice-reduce"], np.arange(100))


def test_a_value_with_another_reader_is_read_from_memory():
    def fn(x, y):
        z = x * y
        return z.sum(0), z @ y.T

    check_acts(NAME, fn, normal(256, 64), normal(256, 64, seed=1))


def test_in_loops_that_are_called_too():
    def fn(x):
        return jax.lax.fori_loop(0, 5, lambda _, x: x * 0.9 + 1e-3 * x.sum(0), x)

    check_acts(NAME, fn, normal(256, 64))


@pytest.mark.parametrize(
    ("fn", "shape", "why"),
    [
        (lambda x: jnp.sum(x, 1), (64, 256), "rows"),
        (lambda x: jnp.sum(x, 0), (32, 64), "few rows"),
        (lambda x: jnp.sum(x, 0), (2048, 2048), "more than a cache holds"),
        (
            lambda x: jnp.sum(jnp.sin(x), 0),
            (128, 128),
            "a function that the library computes sooner",
        ),
        (lambda x: jnp.argmax(x, 0), (256, 64), "a combiner of several operations"),
    ],
)
def test_what_stays(fn, shape, why):
    assert edit_of(NAME, fn, normal(*shape)) is None, why
