"""The step 'reductions': acts, abstains, stays legal, results equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax
from support.captures import capture, normal
from support.loops import kernel_by_kernel
from support.stepping import check_acts, edit_of, fields_of

NAME = "reductions"


def differences(x):
    """The sum of squared differences of neighbours."""
    return jnp.sum(jnp.square(x[1:] - x[:-1]))


def test_a_sum_behind_a_scalar_window_becomes_a_tree():
    edit = check_acts(NAME, differences, normal(64, 64))
    assert "restructure" in fields_of(edit)


def test_a_short_sum_stays():
    assert edit_of(NAME, differences, normal(4, 4)) is None


def test_a_sum_that_takes_none_of_the_time_stays():
    def beside_products(x, w):
        for _ in range(3):
            w = jnp.tanh(w @ w)
        return differences(x), w

    assert edit_of(NAME, beside_products, normal(64, 64), normal(1024, 1024)) is None


def iterated(combined: Callable[[Any], Any]) -> Callable[..., Any]:
    """A loop that combines an array to a number in every iteration, by what it is given."""

    def fn(x):
        def step(x, _):
            total = combined(x)
            return x * 0.9 + total * 1e-3, total

        return lax.scan(step, x, None, length=300)

    return fn


SQUARES = iterated(lambda x: jnp.sum(x * x))
LARGEST = iterated(lambda x: jnp.max(jnp.abs(x)))
AFTER = ("native loops",)


@pytest.mark.parametrize("fn", [SQUARES, LARGEST])
@pytest.mark.parametrize("count", [24, 64, 500])
def test_sums_in_native_loops_become_trees(fn, count):
    edit = check_acts(NAME, fn, normal(count), after=AFTER)
    assert "restructure" in fields_of(edit)


def test_what_a_tree_adds_up_is_computed_inside_it():
    graph = kernel_by_kernel(capture(SQUARES, normal(500))).graph
    edit = edit_of(NAME, SQUARES, normal(500), after=AFTER)
    fused = [node for change in edit.changes if change.field == "fuse" for node in change.nodes]
    assert [graph.ops[node].name for node in fused] == ["multiply"]


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (SQUARES, 16),
        (iterated(jnp.sum), 500),  # from memory, as fast as it is read
        (iterated(lambda x: jnp.sum((x > 0).astype(jnp.int32)).astype(x.dtype)), 64),
    ],
)
def test_sums_that_are_fast_in_native_loops_stay(fn, count):
    assert edit_of(NAME, fn, normal(count), after=AFTER) is None


def test_functions_are_not_computed_inside_a_tree():
    edit = check_acts(NAME, iterated(lambda x: jnp.sum(jnp.exp(x))), normal(200), after=AFTER)
    assert fields_of(edit) == {"restructure"}
