"""Computations whose kernels run in order: where that may be decided, and what it goes with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, captured, normal
from support.loops import kernel_by_kernel
from support.restructured import everywhere

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.graph.walks import first_parameter
from graphopt.hlo.module.index import Role
from graphopt.hlo.restructure import CODE, IN_ORDER, ON_CALLER, RESTRUCTURES, dispatch_code
from graphopt.policy.heuristic.caller_thread import asynchronous

NAME = "sequential"


def rows(x: jax.Array) -> Any:
    """Twelve kernels that depend on nothing but the argument."""
    return [jnp.cumsum(x[k]) * (k + 1.0) for k in range(12)]


def rule(fn: Any, *args: Any, name: str = NAME) -> str | None:
    """Why the kernels of a program may not run in order."""
    graph = capture(fn, *args).graph
    first = first_parameter(graph, -1)
    assert first is not None
    return graph.masks.why_not(first, "restructure", CODE[name])


def test_only_computations_of_many_kernels_are_put_in_order():
    assert rule(rows, normal(12, 40)) is None
    assert rule(lambda x: jnp.sort(x) + 1.0, normal(12, 40)) == "few-kernels"


def test_only_the_first_parameter_stands_for_a_computation():
    graph = capture(lambda x, y: (rows(x), y + 1.0), normal(12, 40), normal(3)).graph
    parameters = [n for n, op in enumerate(graph.ops) if op.name == "parameter"]
    first, second = parameters
    assert graph.masks.restructure[first, CODE[NAME]]
    assert graph.masks.why_not(second, "restructure", CODE[NAME]) == "not-a-computation"


def test_the_body_of_a_loop_is_a_computation_of_its_own():
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, c: jnp.stack(rows(c)) * 0.01, x)

    program = kernel_by_kernel(capture(fn, normal(12, 40)))
    graph = program.graph
    (body,) = (k for k, c in enumerate(graph.computations) if c.role is Role.LOOP_BODY)
    first = first_parameter(graph, body)
    assert graph.masks.restructure[first, CODE[NAME]]
    assert not graph.masks.restructure[first, CODE["caller-sequential"]]
    result = rewrite(graph, everywhere(graph, NAME))
    assert result.sequences >= 1
    assert np.array_equal(program.result, program.compile(result.data)())


def test_a_program_in_order_runs_on_its_callers_thread_too():
    program = capture(rows, normal(12, 2000))
    result = rewrite(program.graph, everywhere(program.graph, "caller-sequential"))
    assert result.caller_thread and result.sequences == 1
    compiled = program.compile(result.data)
    for _ in range(5):
        assert all(leaf.is_ready() for leaf in jax.tree.leaves(compiled.executable(*program.args)))
    for want, got in zip(program.result, compiled(), strict=True):
        assert np.array_equal(want, got)


@pytest.mark.parametrize("name", [NAME, "caller-sequential"])
def test_it_outlives_replacements(name):
    def fn(x: jax.Array, w: jax.Array) -> Any:
        return rows(x), jnp.sum(jnp.exp(w) * w), jnp.sort(w[0, :8])

    program = capture(fn, normal(12, 2000), normal(60, 40))
    graph = program.graph
    decisions = everywhere(graph, name)
    for row in ("tree-reduce", "rank-sort"):
        decisions.restructure[graph.masks.restructure[:, CODE[row]]] = CODE[row]
    result = rewrite(graph, decisions)
    assert result.restructured and result.sequences == 1
    assert result.caller_thread is (name != NAME)
    got = program.compile(result.data)()
    for want, leaf in zip(jax.tree.leaves(program.result), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(want, leaf, rtol=1e-5)


def test_what_was_cut_can_be_read_and_rewritten_again():
    program = capture(rows, normal(12, 40))
    again = build_graph(rewrite(program.graph, everywhere(program.graph, NAME)).data)
    result = rewrite(again, again.default)
    for want, got in zip(program.result, program.compile(result.data)(), strict=True):
        assert np.array_equal(want, got)


def test_keeping_calls_asynchronous_keeps_the_order():
    graph = capture(rows, normal(12, 2000)).graph
    kept = asynchronous(everywhere(graph, "caller-sequential"))
    assert kept.same_as(everywhere(graph, NAME))
    assert asynchronous(everywhere(graph, "caller-thread")).same_as(graph.default)


def test_every_way_of_running_a_program_has_a_row():
    for on_caller in (False, True):
        for in_order in (False, True):
            code = dispatch_code(on_caller, in_order)
            assert (ON_CALLER[code], IN_ORDER[code]) == (on_caller, in_order)
    for row in RESTRUCTURES:
        assert not (row.replaces and (row.on_caller or row.in_order))


def test_programs_of_several_kinds_name_the_rule_that_forbids_it():
    graph = captured("ring_buffer").graph
    rules = {
        graph.masks.why_not(node, "restructure", CODE[NAME])
        for node, op in enumerate(graph.ops)
        if op.name == "parameter"
    }
    assert rules <= {None, "few-kernels", "not-a-computation"} and None in rules
