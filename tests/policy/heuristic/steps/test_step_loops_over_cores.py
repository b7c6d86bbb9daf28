"""The step 'loops over cores': acts, abstains, stays legal, results equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import MACHINE, Captured, capture, nodes, normal
from support.loops import kernel_by_kernel, made_native
from support.stepping import check_acts_on, edit_in, fields_of

from graphopt.costs.model import CostModel
from graphopt.hlo import RESTRUCTURES, Decisions, Graph, build_graph
from graphopt.machine import UnitKind, cost_rows, cpu_units, decide_with
from graphopt.policy.heuristic.loops import native_loops
from graphopt.policy.heuristic.steps import heuristic_steps
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import program_ns

NAME = "loops over cores"


@pytest.fixture(autouse=True)
def fixed_costs():
    with decide_with(cost_rows.DEFAULT):
        yield


def waves(x: jax.Array) -> jax.Array:
    """A loop that computes long over each of its elements."""
    return jax.lax.fori_loop(0, 10, lambda _, c: jnp.exp(-c * c) + jnp.cos(c), x)


def native_waves(*shape: int) -> Captured:
    return made_native(capture(waves, normal(*shape)))


def loop_kinds(graph: Graph, decisions: Decisions) -> list[UnitKind]:
    return [graph.units[decisions.unit[node]].kind for node in nodes(graph, "while")]


def test_a_native_loop_over_large_arrays_runs_on_all_cores_again():
    program = native_waves(1000, 300)
    assert loop_kinds(program.graph, program.graph.default) == [UnitKind.NATIVE]
    edit = check_acts_on(program, NAME)
    assert fields_of(edit) == {"unit"}
    assert loop_kinds(program.graph, edit.applied_to(program.graph.default)) == [UnitKind.RUNTIME]


@pytest.mark.parametrize("ns", [1.0, 1e9])
def test_native_loops_leave_it_whatever_an_iteration_takes(ns, monkeypatch):
    """Short iterations get a credit there, which is no reason to make the loop native again."""
    monkeypatch.setattr(native_loops, "LIMITS", native_loops.Limits(short_ns=ns, middle_ns=2 * ns))
    program = native_waves(1000, 300)
    decisions = heuristic_steps(program.graph, [NAME, "native loops"])
    assert loop_kinds(program.graph, decisions) == [UnitKind.RUNTIME]


def is_split(graph: Graph) -> bool:
    """True where XLA splits a kernel over cores."""
    units = [graph.units[unit] for unit in graph.default.unit]
    return any(unit.kind is UnitKind.LOOP and unit.threads > 1 for unit in units)


def loop_of(step: Any, *shape: int) -> Captured:
    return made_native(
        capture(lambda x: jax.lax.fori_loop(0, 10, lambda _, c: step(c), x), normal(*shape))
    )


@pytest.mark.parametrize("elements", [64, 3000])
def test_a_native_loop_over_short_arrays_stays(elements):
    graph = native_waves(elements).graph
    assert loop_kinds(graph, graph.default) == [UnitKind.NATIVE]
    assert edit_in(graph, NAME) is None


def test_kernels_that_end_before_another_core_has_begun_stay():
    graph = loop_of(lambda c: c * 0.5, 400, 250).graph
    assert is_split(graph) and loop_kinds(graph, graph.default) == [UnitKind.NATIVE]
    assert edit_in(graph, NAME) is None


def test_kernels_that_are_no_vector_code_in_parts_stay():
    even, odd = (loop_of(lambda c: jnp.exp(-c * c), size).graph for size in (300_000, 300_001))
    assert is_split(even) and is_split(odd)
    assert edit_in(even, NAME) is not None and edit_in(odd, NAME) is None


def test_parts_of_large_arrays_do_not_count_as_the_whole():
    """A loop reads a row of its inputs and writes a row of its outputs."""

    def rows(xs):
        def step(c, x):
            c = c * 0.5 + x
            return c, c + 1.0

        return jax.lax.scan(step, xs[0], xs)

    assert edit_in(made_native(capture(rows, normal(200, 20_000))).graph, NAME) is None


def test_a_loop_that_is_not_native_is_left_to_others():
    assert edit_in(kernel_by_kernel(capture(waves, normal(1000, 300))).graph, NAME) is None


def test_one_core_has_nothing_to_win():
    data = native_waves(1000, 300).data
    graph = build_graph(data, replace(MACHINE, cores=1, units=cpu_units(1)))
    assert edit_in(graph, NAME) is None


def short_ones_inside(x: jax.Array, y: jax.Array) -> Any:
    """A loop over large arrays with one over few numbers inside."""

    def step(_, carry):
        wave, few = carry
        few = jax.lax.fori_loop(0, 50, lambda i, c: jnp.tanh(c[::-1]) * 0.9, few)
        return jnp.exp(-wave * wave) + jnp.cos(wave) * few[0], few

    return jax.lax.fori_loop(0, 10, step, (x, y))


def test_loops_inside_become_native_if_that_pays_there():
    program = made_native(capture(short_ones_inside, normal(1000, 300), normal(16)))
    check_acts_on(program, NAME)
    decisions = heuristic_steps(program.graph, [NAME, "native loops"])
    kinds = loop_kinds(program.graph, decisions)
    assert sorted(kinds) == sorted([UnitKind.RUNTIME, UnitKind.NATIVE])


def test_loops_around_one_that_is_taken_apart_stay_outside_of_native_code():
    def epochs(x):
        turn = lambda _, c: (waves(c[0]), jnp.sort(c[1]))  # noqa: E731
        return jax.lax.fori_loop(0, 3, turn, (x, x[0, :8]))

    program = made_native(capture(epochs, normal(1000, 300)))
    decisions = heuristic_steps(program.graph, [NAME, "native loops"])
    assert loop_kinds(program.graph, decisions) == [UnitKind.RUNTIME] * 2


def test_a_loop_that_is_written_out_is_none():
    bits = lambda seed: jax.random.bits(jax.random.PRNGKey(seed), (400_000,))  # noqa: E731
    graph = capture(bits, np.int32(7)).graph
    decided = heuristic_steps(graph, ["short loops", NAME])
    assert RESTRUCTURES[decided.restructure[nodes(graph, "while")[0]]].name == "unroll"
    assert np.array_equal(decided.unit, graph.default.unit)


def test_the_programs_time_counts_loops_as_they_are_decided():
    native, called = native_waves(1000, 300), kernel_by_kernel(capture(waves, normal(1000, 300)))
    graph = native.graph
    decisions = heuristic_steps(graph, [NAME])
    taken = program_ns(Context(graph, CostModel(graph), decisions))
    before = program_ns(Context(graph, CostModel(graph), graph.default))
    other = called.graph
    assert taken == pytest.approx(
        program_ns(Context(other, CostModel(other), other.default)), rel=0.05
    )
    assert taken < before


def test_what_a_loop_takes_outside_native_code_is_known_for_both_kinds():
    native, called = native_waves(1000, 300), kernel_by_kernel(capture(waves, normal(1000, 300)))
    times = []
    for program in (native, called):
        model = CostModel(program.graph)
        (loop,) = nodes(program.graph, "while")
        times.append(model.outside(loop).default_ns(model.cores))
    assert times[0] == pytest.approx(times[1], rel=0.05)
