"""The step 'loops over cores': acts, abstains, stays legal, results equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from support.captures import MACHINE, Captured, capture, nodes, normal
from support.loops import kernel_by_kernel, made_native
from support.stepping import check_acts_on, edit_in, fields_of

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.machine import UnitKind, cost_rows, cpu_units, decide_with
from graphopt.policy.heuristic.steps import heuristic_steps

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


def test_it_stays_as_it_is_made_after_native_loops():
    program = native_waves(1000, 300)
    decisions = heuristic_steps(program.graph, [NAME, "native loops"])
    assert loop_kinds(program.graph, decisions) == [UnitKind.RUNTIME]


@pytest.mark.parametrize("elements", [64, 3000, 20_000])
def test_a_native_loop_over_short_arrays_stays(elements):
    assert edit_in(native_waves(elements).graph, NAME) is None


def test_a_loop_that_moves_more_than_it_computes_stays():
    def halves(x):
        return jax.lax.fori_loop(0, 10, lambda _, c: c * 0.5, x)

    assert edit_in(made_native(capture(halves, normal(100_000))).graph, NAME) is None


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


def test_what_a_loop_takes_outside_native_code_is_known_for_both_kinds():
    native, called = native_waves(1000, 300), kernel_by_kernel(capture(waves, normal(1000, 300)))
    times = []
    for program in (native, called):
        model = CostModel(program.graph)
        (loop,) = nodes(program.graph, "while")
        times.append(model.outside(loop).default_ns(model.cores))
    assert times[0] == pytest.approx(times[1], rel=0.05)
