"""Which programs the thread that calls them runs itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, changed, nodes, normal, unit
from support.loops import kernel_by_kernel

import graphopt
from graphopt.costs.model import CostModel
from graphopt.hlo import Graph
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, cost_rows, decide_with
from graphopt.policy import resolve
from graphopt.policy.heuristic.caller_thread import asynchronous, is_negligible
from graphopt.policy.heuristic.steps import heuristic_steps
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import program_ns
from graphopt.policy.network.decision_space import field_inputs

NAME = "caller-thread"


@pytest.fixture(autouse=True)
def quick_calls():
    """Decides as on a machine on which a call takes few microseconds."""
    with decide_with(cost_rows.QUICK_CALLS):
        yield


def layers(x: jax.Array, depth: int = 3) -> Any:
    for _ in range(depth):
        x = jnp.tanh(x * 1.01) - x[::-1]
    return x


def chosen(graph: Graph) -> list[int]:
    codes = heuristic_steps(graph, ("caller thread",)).restructure
    return np.flatnonzero(codes == CODE[NAME]).tolist()


@pytest.mark.parametrize(
    ("size", "expected"), [((40, 50), True), ((64,), False), ((400, 500), False)]
)
def test_programs_that_end_before_a_worker_would_wake_the_caller(size, expected):
    assert bool(chosen(capture(layers, normal(*size)).graph)) is expected


@pytest.mark.parametrize(("count", "expected"), [(8, True), (9, False)])
def test_programs_of_many_library_calls_stay_with_a_worker(count, expected):
    def fn(x: jax.Array, weights: jax.Array) -> Any:
        return sum(jnp.sin(x @ weights[i] + 1.0) for i in range(count))

    weights = normal(9, 48, 48)
    assert bool(chosen(capture(fn, normal(16, 48), weights).graph)) is expected


def test_no_library_call_moves_where_it_costs_as_much_as_waking_a_worker():
    costs = cost_rows.QUICK_CALLS
    graph = capture(lambda x, w: jnp.sin(x @ w + 1.0), normal(16, 48), normal(48, 48)).graph
    assert chosen(graph)
    with decide_with(replace(costs, library_on_caller_ns=costs.handover_ns)):
        assert not chosen(graph)


@pytest.mark.parametrize(("count", "expected"), [(4, True), (24, False)])
def test_programs_of_many_calls_of_lapack_stay_with_a_worker(count, expected):
    def fn(x: jax.Array) -> Any:
        for i in range(count):
            x = jax.lax.linalg.lu(x + jnp.eye(24) * (2.0 + i))[0]
        return x

    graph = capture(fn, normal(24, 24)).graph
    with decide_with(cost_rows.QUICK_CALLS):
        assert bool(chosen(graph)) is expected


def test_calls_of_lapack_move_where_they_cost_little_on_that_thread():
    def fn(x: jax.Array) -> Any:
        for i in range(24):
            x = jax.lax.linalg.lu(x + jnp.eye(4) * (2.0 + i))[0]
        return x

    graph = capture(fn, normal(4, 4)).graph
    costs = cost_rows.QUICK_CALLS
    assert not chosen(graph)
    with decide_with(replace(costs, opaque_on_caller_ns=0.02 * costs.opaque_on_caller_ns)):
        assert chosen(graph)


def test_single_operations_stay_with_a_worker():
    graph = capture(lambda x: x + 1.0, normal(1200)).graph
    assert graph.masks.restructure[:, CODE[NAME]].any() and not chosen(graph)


@pytest.mark.parametrize("policy", ["heuristic", "shipped"])
@pytest.mark.parametrize(("size", "expected"), [((100,), True), ((400, 500), False)])
def test_one_or_two_short_kernels_are_negligible(policy, size, expected):
    def fn(x: jax.Array) -> Any:
        return jnp.where(x > 0, jnp.exp(x), 2.0)

    graph = capture(fn, normal(*size)).graph
    assert is_negligible(graph, CostModel(graph)) is expected
    assert not expected or resolve(policy).decide(graph) is None


def test_native_loops_count_at_their_own_time():
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 300, lambda i, c: tuple(a[::-1] * 0.9 for a in c), (x,) * 12)

    graph = kernel_by_kernel(capture(fn, normal(300))).graph
    model = CostModel(graph)
    (loop,) = nodes(graph, "while")
    runtime, native = (unit(graph, kind) for kind in (UnitKind.RUNTIME, UnitKind.NATIVE))
    default = program_ns(Context(graph, model, changed(graph.default, unit={loop: runtime})))
    assert default == model.computations[-1].default_ns(model.cores)
    fast = program_ns(Context(graph, model, changed(graph.default, unit={loop: native})))
    assert fast < default / 2


def test_the_network_leaves_the_thread_as_it_is():
    graph = capture(layers, normal(40, 50)).graph
    start = heuristic_steps(graph, ("caller thread",))
    (field,) = (f for f in field_inputs(graph, start) if f.name == "restructure")
    (first,) = chosen(graph)
    assert np.flatnonzero(field.mask[first]).tolist() == [CODE[NAME]]


def test_asynchronous_decisions_differ_in_nothing_else():
    graph = capture(layers, normal(40, 50)).graph
    decisions = heuristic_steps(graph, ("loop kernels", "caller thread"))
    without = asynchronous(decisions)
    assert without.same_as(heuristic_steps(graph, ("loop kernels",)))
    assert not decisions.same_as(without)


@pytest.mark.parametrize("keep_async", [False, True])
def test_a_user_can_keep_calls_asynchronous(keep_async):
    graphopt.install("heuristic", store=False, keep_async=keep_async)
    try:
        x = jnp.asarray(normal(40, 50))
        compiled = jax.jit(lambda x: layers(x, 4)).lower(x).compile()
        assert np.all(np.isfinite(compiled(x)))
        records = [r for r in graphopt.report().records if r.name == "jit__lambda"]
        assert records[-1].caller_thread is not keep_async
        assert ("on the caller's thread" in str(records[-1])) is not keep_async
    finally:
        graphopt.uninstall()
