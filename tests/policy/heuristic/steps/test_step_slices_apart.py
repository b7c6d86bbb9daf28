"""The step 'slices apart': acts, abstains, stays legal, results equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax
from support.captures import capture, normal
from support.loops import kernel_by_kernel
from support.stepping import check_acts, edit_of, fields_of

NAME = "slices apart"
AFTER = ("native loops",)


def recurrence(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A loop that reads a row of one array and an element of another in every iteration."""

    def fn(xs, scales):
        def step(c, inputs):
            row, scale = inputs
            c = function(c * 0.5 + row * 0.1) + scale
            return c, c.sum()

        return lax.scan(step, jnp.zeros_like(xs[0]), (xs, scales))

    return fn


@pytest.mark.parametrize("function", [jnp.tanh, jnp.expm1, lambda x: jnp.log1p(x * x)])
def test_slices_are_read_ahead_of_loops_that_call_functions_by_name(function):
    args = normal(50, 64), normal(50)
    edit = check_acts(NAME, recurrence(function), *args, after=AFTER)
    assert fields_of(edit) == {"fuse"}
    graph = kernel_by_kernel(capture(recurrence(function), *args)).graph
    (change,) = edit.changes
    assert [graph.ops[node].name for node in change.nodes] == ["dynamic-slice"] * 2
    assert not any(change.values)


@pytest.mark.parametrize("function", [jnp.sin, lambda x: jnp.maximum(x, 0.1)])
def test_slices_stay_where_llvm_moves_them_itself(function):
    assert edit_of(NAME, recurrence(function), normal(50, 64), normal(50), after=AFTER) is None


def test_short_rows_stay():
    assert edit_of(NAME, recurrence(jnp.tanh), normal(50, 8), normal(50), after=AFTER) is None


def test_kernels_outside_of_native_code_stay():
    assert edit_of(NAME, recurrence(jnp.tanh), normal(50, 64), normal(50)) is None
