"""The step 'loop invariants': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from support.stepping import check_acts, edit_of, fields_of

from graphopt.hlo.restructure import CODE

NAME = "loop invariants"
BEFORE = ("native loops", "small products")


def regression(rows, columns, steps=100):
    """Gradient descent, and its arguments."""

    def fn(x, y):
        def step(_, b):
            return b - 0.01 * (x.T @ (jax.nn.sigmoid(x @ b) - y))

        return jax.lax.fori_loop(0, steps, step, jnp.zeros(columns))

    x = np.random.default_rng(0).normal(size=(rows, columns)) / columns
    return fn, x.astype(np.float32), (np.arange(rows) % 2).astype(np.float32)


def test_a_regression_on_a_few_features_reads_its_table_turned():
    edit = check_acts(NAME, *regression(200, 10), after=BEFORE)
    assert fields_of(edit) == {"restructure"}


def test_products_that_were_written_out_are_products_again():
    edit = check_acts(NAME, *regression(200, 4), after=BEFORE)
    (change,) = edit.changes
    assert set(change.values.tolist()) == {0, CODE["invariants"]}


def test_one_step_does_not_pay_for_turning():
    assert edit_of(NAME, *regression(200, 10, steps=1), after=BEFORE) is None


def test_many_features_lie_together_as_it_is():
    assert edit_of(NAME, *regression(200, 64), after=BEFORE) is None


def test_parts_of_an_array_are_taken_out_of_it_once():
    def fn(weights, v):
        def step(_, v):
            for i in range(3):
                v = jnp.tanh(v @ weights[i].T)
            return v

        return jax.lax.fori_loop(0, 50, step, v)

    weights = np.random.default_rng(0).normal(size=(3, 64, 64)).astype(np.float32) / 8
    check_acts(NAME, fn, weights, np.ones((4, 64), np.float32), after=BEFORE)


def test_loops_in_loops_share_one_copy():
    def fn(x, y, b):
        def outer(_, b):
            step = lambda _, b: b - 0.01 * (x.T @ (jnp.tanh(x @ b) - y))  # noqa: E731
            return jnp.tanh(jax.lax.fori_loop(0, 20, step, b))

        return jax.lax.fori_loop(0, 30, outer, b)

    x = np.random.default_rng(0).normal(size=(200, 10)).astype(np.float32) / 10
    edit = check_acts(NAME, fn, x, np.ones(200, np.float32), np.ones(10, np.float32), after=BEFORE)
    (change,) = edit.changes
    assert (change.values == CODE["invariants"]).sum() == 1


def test_what_forms_of_products_bring_into_order_is_brought_there_once():
    def fn(w, x):
        return jax.lax.fori_loop(0, 50, lambda _, x: jnp.tanh(x @ w.T), x)

    w = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) / 8
    edit = check_acts(NAME, fn, w, np.ones((4, 64), np.float32), after=BEFORE)
    (change,) = edit.changes
    assert change.values.tolist() == [CODE["invariants"]]


def test_chains_of_a_regression_read_one_turned_table():
    def fn(x, y, b):
        slope = jax.vmap(lambda b: x.T @ (jax.nn.sigmoid(x @ b) - y))
        return jax.lax.fori_loop(0, 50, lambda _, b: b - 0.01 * slope(b), b)

    x = np.random.default_rng(0).normal(size=(200, 10)).astype(np.float32) / 10
    check_acts(NAME, fn, x, np.ones(200, np.float32), np.ones((4, 10), np.float32), after=BEFORE)
