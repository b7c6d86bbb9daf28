"""Programs that run on the thread that calls them: the same results, there when the call returns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import Captured, capture, changed, nodes, normal, unit
from support.restructured import everywhere, native

from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.graph.walks import first_parameter
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.caller_thread import (
    CHEAP_OPERATIONS,
    CREDIT,
    is_on_caller,
    most_operations,
    stays_on_caller,
)
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs

NAME = "caller-thread"


def steps(x: jax.Array) -> Any:
    """Half a millisecond of work that XLA counts once."""
    return jax.lax.fori_loop(0, 150, lambda i, c: jnp.tanh(c * 1.01 + i), x)


def moved(graph: Graph, decisions: Decisions | None = None) -> Decisions:
    """Decisions with the program on its caller's thread."""
    first = first_parameter(graph, -1)
    assert first is not None
    return changed(decisions or graph.default, restructure={first: CODE[NAME]})


def operations(program: Captured, data: bytes) -> float:
    """What XLA counts in a rewritten module."""
    return float(program.compile(data).executable.cost_analysis()["flops"])


def test_the_result_is_there_when_the_call_returns():
    program = capture(steps, normal(2048))
    result = rewrite(program.graph, moved(program.graph))
    assert result.caller_thread and not result.restructured
    compiled = program.compile(result.data)
    for _ in range(5):
        assert all(leaf.is_ready() for leaf in jax.tree.leaves(compiled.executable(*program.args)))
    assert np.array_equal(program.result, compiled())


def test_xla_counts_next_to_no_operations():
    program = capture(steps, normal(2048))
    default = operations(program, rewrite(program.graph, program.graph.default).data)
    assert default >= 1000
    counted = operations(program, rewrite(program.graph, moved(program.graph)).data)
    assert counted == pytest.approx(default - CREDIT, rel=1e-6)


def test_it_goes_with_other_decisions():
    def fn(x: jax.Array, y: jax.Array) -> Any:
        return jax.lax.scan(lambda c, _: (c * y + c, jnp.sort(c[0, :4])), x, None, length=3)

    program = capture(fn, normal(16, 64), normal(16, 64, seed=1))
    graph = program.graph
    (sort,) = nodes(graph, "sort")
    (loop,) = nodes(graph, "while")
    inside = {loop: unit(graph, UnitKind.NATIVE)}
    wanted = changed(graph.default, restructure={sort: CODE["rank-sort"]}, unit=inside)
    for decisions in (moved(graph, wanted), native(graph, moved(graph)), everywhere(graph, NAME)):
        result = rewrite(graph, decisions)
        assert result.caller_thread
        got = program.compile(result.data)()
        for want, leaf in zip(jax.tree.leaves(program.result), jax.tree.leaves(got), strict=True):
            np.testing.assert_allclose(want, leaf, rtol=1e-6)


def test_it_outlives_replacements_that_change_which_parameter_comes_first():
    def fn(x: jax.Array, w: jax.Array) -> Any:
        return jnp.tanh(w) * 2.0, jnp.sum(jnp.exp(x) * jnp.tanh(w) * x)

    program = capture(fn, normal(60, 40), normal(60, 40, seed=1))
    graph = program.graph
    assert graph.source.names[0].startswith("arguments_1")
    decisions = moved(graph)
    decisions.restructure[graph.masks.restructure[:, CODE["tree-reduce"]]] = CODE["tree-reduce"]
    written = rewrite(graph, decisions)
    assert written.restructured == 1
    assert written.caller_thread
    assert operations(program, written.data) < 0


def test_results_of_plain_kernels_are_bit_equal():
    program = capture(lambda x: x * 2.0 + jnp.roll(x, 1), normal(40, 50))
    compiled = program.compile(rewrite(program.graph, moved(program.graph)).data)
    assert np.array_equal(program.result, compiled())


def test_what_was_rewritten_can_be_read_and_rewritten_again():
    program = capture(steps, normal(2048))
    again = build_graph(rewrite(program.graph, moved(program.graph)).data)
    result = rewrite(again, again.default)
    assert not result.caller_thread
    assert np.array_equal(program.result, program.compile(result.data)())


def rule(fn: Any, *args: Any) -> str | None:
    """Why a program may not be moved."""
    graph = capture(fn, *args).graph
    first = first_parameter(graph, -1)
    assert first is not None
    return graph.masks.why_not(first, "restructure", CODE[NAME])


def test_only_short_programs_that_compute_by_themselves_are_moved():
    x = normal(64, 32)
    assert rule(lambda x: x * x + x, x) is None
    assert rule(lambda x: x @ x.T, x) is None
    assert rule(lambda x: jnp.sort(x) + 1, x) is None
    assert rule(lambda x: x * x, normal(8, 8)) == "on-the-caller"
    assert rule(lambda x: jnp.tanh(x), x) == "on-the-caller"
    assert rule(lambda x: jax.lax.fori_loop(0, 9999, lambda _, c: c + x, x), x) == "long-program"
    until = (lambda c: c.max() < 9.0, lambda c: c * 2.0)
    assert rule(lambda x: jax.lax.while_loop(*until, x), x) == "unknown-trips"
    kernel = normal(4, 4, 3, 3)
    assert rule(
        lambda x: jax.lax.conv(x.reshape(2, 4, 16, 16) * 2.0, kernel, (1, 1), "SAME"), x
    ) == ("convolution")
    assert rule(lambda x: jnp.linalg.cholesky(x @ x.T + 99 * jnp.eye(64)), x) is None


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * x + jnp.roll(x, 1),
        lambda x: (jnp.exp(x * 0.5).sum(1) - x[:, 0], jnp.sin(x).max()),
        lambda x: jnp.sort(x @ x.T) * 2.0,
        lambda x: jax.lax.scan(lambda c, r: (c * r + 1.0, c.sum()), x[0], x),
        lambda x: jax.nn.softmax(x) * jnp.where(x > 0, x, 3.0 * x),
    ],
)
def test_operations_are_counted_about_as_xla_does(fn):
    program = capture(fn, normal(20, 24))
    counted = operations(program, rewrite(program.graph, program.graph.default).data)
    assert most_operations(program.graph.source.module) == pytest.approx(counted, rel=0.1, abs=9)


def test_loops_that_may_be_written_out_count_in_full():
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 5, lambda i, c: c * 1.01 + c[::-1] * i, x)

    graph = capture(fn, normal(100)).graph
    body = 100 * 3  # two products and a sum
    assert most_operations(graph.source.module) >= 5 * body
    assert rule(fn, normal(100)) is None


def test_what_xla_runs_on_the_callers_thread_stays_there_in_another_form():
    program = capture(jnp.sqrt, jnp.abs(normal(256, 256)))
    graph = program.graph
    result = rewrite(graph, everywhere(graph, "loop-kernel"))
    assert operations(program, result.data) < CHEAP_OPERATIONS
    assert compare_outputs(program.result, program.compile(result.data)()).equal


def test_so_does_a_program_whose_short_loops_are_written_out():
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 5, lambda i, c: c * 1.01 + c[::-1] * i, x)

    program = capture(fn, normal(100))
    graph = program.graph
    default = operations(program, rewrite(graph, graph.default).data)
    assert default < CHEAP_OPERATIONS <= most_operations(graph.source.module)
    result = rewrite(graph, everywhere(graph, "unroll"))
    assert operations(program, result.data) < CHEAP_OPERATIONS
    assert compare_outputs(program.result, program.compile(result.data)()).equal


def test_what_computes_an_unknown_time_is_not_kept_on_the_callers_thread():
    kernel = normal(8, 8, 3, 3)
    graph = capture(lambda x: jax.lax.conv(x, kernel, (1, 1), "SAME"), normal(1, 8, 9, 9)).graph
    assert is_on_caller(graph.source.module) and not stays_on_caller(graph.source.module)
    assert stays_on_caller(capture(jnp.sqrt, normal(9, 9)).graph.source.module)


def test_programs_that_call_python_are_left_to_a_worker():
    def fn(x: jax.Array) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x * x + x)

    assert rule(fn, normal(64, 32)) == "calls-out"


def test_one_node_stands_for_the_program():
    graph = capture(lambda x, y: (x * y, x + y), normal(64, 32), normal(64, 32, seed=1)).graph
    allowed = np.flatnonzero(graph.masks.restructure[:, CODE[NAME]])
    assert allowed.tolist() == [first_parameter(graph, -1)]
    other = next(n for n in nodes(graph, "parameter") if n != first_parameter(graph, -1))
    assert graph.masks.why_not(other, "restructure", CODE[NAME]) == "not-the-program"


def test_a_program_without_parameters_has_nothing_that_stands_for_it():
    graph = capture(lambda: jnp.arange(4096.0) * 2.0).graph
    assert first_parameter(graph, -1) is None
    assert not graph.masks.restructure[:, CODE[NAME]].any()
