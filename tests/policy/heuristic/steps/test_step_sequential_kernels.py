"""The step 'sequential kernels': acts, abstains, stays legal, results equal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from support.captures import capture, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.costs.model import CostModel
from graphopt.machine import cost_rows, decide_with
from graphopt.policy.heuristic.steps import decide
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.sequences import sequence_of

NAME = "sequential kernels"


@pytest.fixture(autouse=True)
def table_costs():
    """Decides by the table, whatever this machine is."""
    with decide_with(cost_rows.DEFAULT):
        yield


def rows(x: jax.Array, count: int = 12) -> Any:
    """Kernels that depend on nothing but the argument."""
    return [jnp.sort(x[k]) * (k + 1.0) for k in range(count)]


def rounds(x: jax.Array) -> Any:
    """A loop of such kernels."""

    def body(_: Any, xs: Any) -> Any:
        return tuple(jax.lax.optimization_barrier(jnp.tanh(x * 1.01)) for x in xs)

    return jax.lax.fori_loop(0, 50, body, tuple(x))


def test_many_short_kernels_run_in_order():
    edit = check_acts(NAME, rows, normal(12, 40))
    assert fields_of(edit) == {"restructure"} and edit.nodes == 1


def test_few_kernels_run_in_order_anyway():
    assert edit_of(NAME, lambda x: rows(x, 3), normal(12, 40)) is None


def test_bodies_are_judged_by_themselves():
    edit = check_acts(NAME, rounds, normal(12, 200))
    assert edit.nodes == 2  # the body, and the program that cuts its argument into rows


def test_long_kernels_are_handed_out():
    assert edit_of(NAME, rows, normal(12, 60_000)) is None


def test_little_but_kernels_that_are_ready_at_once_are_handed_out():
    """Workers of a loop stay awake, and take half of them."""
    assert edit_of(NAME, rounds, normal(12, 200)) is not None
    assert edit_of(NAME, rounds, normal(12, 8000)) is None


def test_work_that_kernels_share_is_counted_once():
    def fn(x: jax.Array) -> Any:
        shared = jnp.tanh(x) * 1.01
        return [jax.lax.optimization_barrier(shared + float(k)) for k in range(12)]

    program = capture(fn, normal(40, 50))
    model = CostModel(program.graph)
    found = sequence_of(Context(program.graph, model, program.graph.default), -1)
    once = capture(lambda x: fn(x)[0], normal(40, 50)).graph
    alone = sequence_of(Context(once, CostModel(once), once.default), -1)
    assert found.total_ns < 12.5 * alone.total_ns


def test_transforms_use_several_cores():
    def fn(x: jax.Array) -> Any:
        return rows(x), jnp.abs(jnp.fft.rfft(jnp.tile(x, (50, 10))))

    assert edit_of(NAME, fn, normal(12, 40)) is None


def test_kernels_on_several_cores_overlap_with_others():
    def fn(x: jax.Array, w: jax.Array) -> Any:
        return [jnp.tanh(x @ w[k]) for k in range(12)]

    assert edit_of(NAME, fn, normal(64, 256), normal(12, 256, 256)) is None


def test_convolutions_take_an_unknown_time():
    def fn(x: jax.Array, k: jax.Array) -> Any:
        image = x[None, None, :, :32]
        return rows(x), jax.lax.conv(image, k, (1, 1), "SAME")

    assert edit_of(NAME, rows, normal(12, 40)) is not None
    assert edit_of(NAME, fn, normal(12, 40), normal(5, 1, 3, 3)) is None


def test_what_is_ready_at_once_is_what_waits_for_as_many_kernels():
    def sequence(fn: Any, *args: Any) -> Any:
        graph = capture(fn, *args).graph
        model = CostModel(graph)
        return sequence_of(Context(graph, model, decide(graph, (), model).decisions), -1)

    wide = sequence(rows, normal(12, 40))
    assert wide.is_handed_out and wide.ready >= 12 and wide.kernels >= wide.ready
    assert 0.0 < wide.longest_ns < wide.total_ns and wide.overlap_ns == 0.0

    def chain(x: jax.Array) -> Any:
        for k in range(12):
            x = jnp.sort(x[::-1]) * (k + 1.0)
        return x

    deep = sequence(chain, normal(40))
    assert not deep.is_handed_out and deep.kernels > 8
