"""The step 'carried copies': acts, abstains, stays legal, results equal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from support.captures import capture, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.hlo.restructure import CODE
from graphopt.machine import cost_rows, decide_with

NAME = "carried copies"


@pytest.fixture(autouse=True)
def table_costs():
    """Decides by the table, whatever this machine is."""
    with decide_with(cost_rows.DEFAULT):
        yield


def exchanged(x: jax.Array) -> Any:
    """Rows of a table change places, many times."""

    def body(i: Any, x: Any) -> Any:
        a, b = (5 * i + 2) % x.shape[0], (7 * i) % x.shape[0]
        return x.at[a].set(x[b]).at[b].set(x[a])

    return jax.lax.fori_loop(0, 200, body, x)


def mirrored(x: jax.Array) -> Any:
    """All of the table is read in each iteration, after the update."""

    def body(i: Any, x: Any) -> Any:
        return x.at[i].set(x[(3 * i) % x.shape[0]] + 1.0) + 0.1 * x[::-1]

    return jax.lax.fori_loop(0, 50, body, x)


def test_a_table_whose_rows_change_places_is_not_copied():
    edit = check_acts(NAME, exchanged, normal(500, 4))
    assert fields_of(edit) == {"restructure"} and edit.nodes == 1


def test_an_array_of_which_nearly_all_is_read_is_copied():
    def relaxed(x: jax.Array) -> Any:
        def body(_: Any, x: Any) -> Any:
            change = 0.1 * (x[1:] - x[:-1])
            return x.at[:-1].add(change).at[1:].add(-change)

        return jax.lax.fori_loop(0, 200, body, x)

    graph = capture(relaxed, normal(40, 2)).graph
    assert graph.masks.restructure[:, CODE["no-copy"]].any()
    assert edit_of(NAME, relaxed, normal(40, 2)) is None


def test_what_is_read_later_is_copied():
    assert edit_of(NAME, mirrored, normal(64, 4)) is None


def test_without_loops_nothing_happens():
    assert edit_of(NAME, lambda x: jnp.tanh(x) + x[0], normal(64, 4)) is None
