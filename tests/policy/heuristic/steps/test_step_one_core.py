"""The step 'one core': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import captured, normal, unit
from support.stepping import edit_of, fields_of

from graphopt.costs.model import CostModel
from graphopt.hlo import rewrite
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic import one_core
from graphopt.policy.heuristic.support.context import Context

NAME = "one core"


def test_a_short_loop_runs_on_one_core():
    program = captured("cartpole_rollout")
    graph = program.graph
    single, widest = unit(graph, UnitKind.LOOP, 1), unit(graph, UnitKind.LOOP, 2)
    split = graph.default.copy()
    may_split = ~split.fuse & graph.masks.unit[:, widest] & (split.unit == single)
    assert may_split.any()
    split.unit[may_split] = widest
    edit = one_core.apply(Context(graph, CostModel(graph), split))
    assert edit is not None and fields_of(edit) == {"unit"} and edit.saved_ns > 0
    result = program.compile(rewrite(graph, edit.applied_to(split)).data)()
    assert compare_outputs(program.result, result).equal


def test_a_loop_that_is_worth_two_cores_stays():
    assert edit_of(NAME, lambda x: jnp.sin(jnp.cos(x)), normal(2048, 2048)) is None
