"""The step 'caller thread': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from support.captures import normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.machine import CpuCosts, cost_rows, decide_with

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


def test_a_long_one_stays_with_a_worker():
    assert edit_of(NAME, layers, normal(400, 500)) is None


def test_a_single_operation_stays():
    assert edit_of(NAME, lambda x: x + 1.0, normal(1200)) is None
