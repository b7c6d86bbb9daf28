"""The step 'caller thread': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from support.captures import capture, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.hlo import rewrite
from graphopt.machine import CpuCosts, cost_rows, decide_with
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.caller_thread import for_waiting_callers

NAME = "caller thread"


@pytest.fixture(autouse=True)
def quick_calls():
    """Decides as on a machine on which a call takes few microseconds."""
    with decide_with(cost_rows.QUICK_CALLS):
        yield


def layers(x):
    """A few kernels."""
    for _ in range(3):
        x = jnp.tanh(x * 1.01) - x[::-1]
    return x


def test_a_short_program_runs_on_its_callers_thread():
    edit = check_acts(NAME, layers, normal(40, 50))
    assert fields_of(edit) == {"restructure"} and edit.nodes == 1


def test_where_calls_take_long_a_program_shorter_than_a_call_stays():
    with decide_with(CpuCosts(call_ns=1_000_000.0)):
        assert edit_of(NAME, layers, normal(40, 50)) is None


def test_it_moves_where_the_caller_waits_for_each_result():
    program = capture(layers, normal(40, 50))
    with decide_with(CpuCosts(call_ns=1_000_000.0)):
        decisions = for_waiting_callers(program.graph, None)
    assert decisions is not None
    program.graph.masks.check(decisions)
    rewritten = rewrite(program.graph, decisions)
    assert rewritten.caller_thread
    assert compare_outputs(program.result, program.compile(rewritten.data)()).equal


def test_what_was_decided_before_stays_where_the_caller_waits():
    graph = capture(layers, normal(400, 500)).graph
    assert for_waiting_callers(graph, None) is None
    before = graph.default.copy()
    assert for_waiting_callers(graph, before) is before


def test_one_operation_is_one_call_among_many():
    x = normal(400, 500)
    assert edit_of(NAME, lambda x: x + 1.5, x) is None
    assert edit_of(NAME, lambda x: jnp.maximum(x, 0) * x - 1.5, x) is not None


def test_a_long_one_stays_with_a_worker():
    assert edit_of(NAME, layers, normal(400, 500)) is None


def test_a_single_operation_stays():
    assert edit_of(NAME, lambda x: x + 1.0, normal(1200)) is None
