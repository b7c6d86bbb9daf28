"""The step 'small products': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import capture, node, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.machine import UnitKind

NAME = "small products"


def batch(a, b):
    """A batch of products."""
    return jnp.tanh(a @ b)


def test_many_small_matrices_become_one_loop():
    edit = check_acts(NAME, batch, normal(500, 4, 4), normal(500, 4, 4, seed=1))
    assert fields_of(edit) == {"restructure"} and edit.saved_ns > 500


def test_large_matrices_stay_with_the_library():
    assert edit_of(NAME, batch, normal(16, 64, 64), normal(16, 64, 64, seed=1)) is None


def rotated(points, frame):
    """Points in another frame, as rows."""
    return jnp.tanh(points @ frame)


def test_a_product_of_short_rows_becomes_one_loop():
    edit = check_acts(NAME, rotated, normal(2000, 6), normal(6, 8))
    assert fields_of(edit) == {"restructure"} and edit.saved_ns > 500


def test_sums_of_three_are_loops_of_the_runtime():
    points, frame = normal(2000, 3), normal(3, 3)
    edit = check_acts(NAME, rotated, points, frame)
    assert fields_of(edit) == {"unit"}
    graph = capture(rotated, points, frame).graph
    product = node(graph, "dot")
    units = edit.applied_to(graph.default).unit
    assert graph.units[units[product]].kind is UnitKind.RUNTIME


def test_a_product_of_longer_rows_stays_with_the_library():
    assert edit_of(NAME, rotated, normal(500, 64), normal(64, 64)) is None
    assert edit_of(NAME, rotated, normal(500, 6), normal(6, 256)) is None


def test_few_small_ones_save_too_little():
    def beside_products(a, b, w):
        return batch(a, b), jnp.tanh(w @ w) @ w

    args = normal(4, 4, 4), normal(4, 4, 4, seed=1), normal(1024, 1024)
    assert edit_of(NAME, beside_products, *args) is None
