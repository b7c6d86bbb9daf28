"""The step 'loop kernels': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from support.captures import normal
from support.loops import beside_a_sort
from support.stepping import check_acts, edit_of, fields_of

from graphopt.machine import cost_rows, decide_with

NAME = "loop kernels"


accumulate = beside_a_sort(lambda x, y: x + y)


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


def test_roots_come_from_the_loop_generator_and_whole_quotients_do_not():
    roots = beside_a_sort(lambda x, y: jax.lax.rsqrt(x + y))
    quotients = beside_a_sort(lambda x, y: jax.lax.rem(x + y, y))
    x, y = abs(normal(64, 256)) + 1, abs(normal(64, 256, seed=1)) + 1
    check_acts(NAME, roots, x, y)
    with decide_with(
        cost_rows.default_costs("0.11.2")
    ):  # whose tiles are the first vector code for them
        assert edit_of(NAME, quotients, x.astype(int), y.astype(int)) is None


def test_narrow_tiles_cost_more_than_whole_ones():
    expected = [
        edit_of(NAME, accumulate, normal(1000, width), normal(1000, width, seed=1)).saved_ns
        for width in (16, 3)
    ]
    assert expected[1] > expected[0]


def test_tiles_stay_where_loops_in_parts_are_no_vector_code():
    def fn(x):
        return jnp.exp(-x * x)

    with decide_with(cost_rows.default_costs("0.11.2")):
        assert edit_of(NAME, fn, normal(4_000_000)) is not None
        assert edit_of(NAME, fn, normal(4_000_001)) is None


def test_rows_that_llvm_unrolls_are_written_as_one():
    def fn(x):
        return x / (1.0 + x * x)

    with decide_with(cost_rows.DEFAULT):
        check_acts(NAME, fn, normal(4000, 16))
        check_acts(NAME, fn, normal(4000, 32))
        assert edit_of(NAME, fn, normal(4000, 48)) is None  # too many instructions
        assert edit_of(NAME, fn, normal(4000, 64)) is None
