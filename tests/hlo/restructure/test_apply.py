"""The restructure field: defaults, masks, what is carried over, and what is remembered."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import Captured, capture, changed, nodes, normal, unit

from graphopt.errors import DecisionError
from graphopt.hlo import (
    RESTRUCTURES,
    DecisionBatch,
    Decisions,
    apply_restructures,
    restructured,
    rewrite,
)
from graphopt.hlo.replace.apply import kept_results
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs


def several_walls(x: jax.Array, at: jax.Array) -> Any:
    """A loop with a scatter, a factorization, a sort and a sum over a matrix."""

    def step(x: jax.Array, at: jax.Array) -> Any:
        x = x.at[at].add(jnp.sin(x[at]) * 0.1)
        factor = jnp.linalg.cholesky(x @ x.T + 8 * jnp.eye(6))
        x = x * 0.9 + factor[:, :1]
        return x, (jnp.argsort(x[:, 0]), jnp.sum(jnp.tile(x, (8, 8)) ** 2))

    return jax.lax.scan(step, x, at)


@pytest.fixture(scope="module")
def walls() -> Captured:
    at = np.array([[0, 3, 3], [5, 1, 7], [2, 2, -1], [4, 0, 9]], np.int32)
    return capture(several_walls, normal(6, 6), at)


def all_codes(walls: Captured) -> Any:
    allowed = walls.graph.masks.restructure[:, 1:]
    return np.where(allowed.any(axis=1), allowed.argmax(axis=1) + 1, 0).astype(np.int8)


def test_three_arguments_mean_that_nothing_is_replaced():
    fuse = np.zeros(4, np.bool_)
    decisions = Decisions(fuse, fuse.copy(), np.zeros(4, np.int16))
    assert decisions.restructure.dtype == np.int8
    assert decisions.restructure.tolist() == [0] * 4
    assert DecisionBatch.stack([decisions, decisions])[1].same_as(decisions)


def test_a_code_needs_its_row(walls):
    graph = walls.graph
    wall = nodes(graph, "custom-call")[0]
    for code in range(1, len(RESTRUCTURES)):
        wrong = changed(graph.default, restructure={wall: code})
        if graph.masks.restructure[wall, code]:
            assert rewrite(graph, wrong).restructured == 1
            continue
        with pytest.raises(DecisionError, match=graph.masks.why_not(wall, "restructure", code)):
            rewrite(graph, wrong)


def test_every_row_has_a_name_and_something_to_replace():
    assert [RESTRUCTURES[code].name for code in CODE.values()] == list(CODE)
    assert all(row.opcodes and row.summary for row in RESTRUCTURES[1:])


def test_old_nodes_keep_their_decisions(walls):
    graph = walls.graph
    done = apply_restructures(graph, all_codes(walls))
    assert done.graph is restructured(graph, all_codes(walls))
    old = np.flatnonzero(~done.fresh & (done.origin >= 0))
    assert {done.graph.ops[i].name for i in old} >= {"while", "sine", "multiply"}
    for i in old:
        assert done.graph.ops[i].name == graph.ops[done.origin[i]].name
    # Away from what was replaced, XLA's decisions are those of the old graph.
    same = done.graph.default.fuse[old] == graph.default.fuse[done.origin[old]]
    assert same.mean() > 0.9
    fresh = np.flatnonzero(done.fresh)
    assert set(done.origin[fresh]) <= set(np.flatnonzero(all_codes(walls)))


def test_what_replaces_a_native_operation_is_native(walls):
    graph = walls.graph
    native = unit(graph, UnitKind.NATIVE)
    code = CODE["lapack-loop"]
    call = nodes(graph, "custom-call")[0]
    decisions = changed(graph.default, restructure={call: code}, unit={call: native})
    done = apply_restructures(graph, decisions.restructure)
    carried = done.carry(decisions)
    loops = [i for i in nodes(done.graph, "while") if done.fresh[i]]
    assert loops
    assert all(carried.unit[i] == native for i in loops)
    other = done.carry(graph.default.with_changes(restructure=decisions.restructure))
    assert all(other.unit[i] != native for i in loops)


def test_one_loop_with_all_walls_taken_down_is_one_function(walls):
    graph = walls.graph
    native = unit(graph, UnitKind.NATIVE)
    loops = [i for i in nodes(graph, "while") if graph.masks.unit[i, native]]
    decisions = changed(graph.default, unit=dict.fromkeys(loops, native))
    assert rewrite(graph, decisions).overrides["not-in-region"] >= 1
    result = rewrite(graph, decisions.with_changes(restructure=all_codes(walls)))
    assert "not-in-region" not in result.overrides
    assert compare_outputs(walls.result, walls.compile(result.data)()).equal


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 16))
def test_any_masked_choice_on_the_new_graph_is_legal(walls, seed):
    rng = np.random.default_rng(seed)
    graph = walls.graph
    codes = graph.masks.sample(rng, graph.default, 0.5).restructure
    after = restructured(graph, codes)
    decisions = after.masks.sample(rng, after.default, float(rng.choice([0.05, 0.3, 1.0])))
    decisions.restructure[:] = 0
    data = rewrite(after, decisions).data
    assert compare_outputs(walls.result, walls.compile(data)(), slack=5.0).equal


def test_restructuring_twice(walls):
    graph = walls.graph
    first = np.zeros(len(graph), np.int8)
    first[nodes(graph, "custom-call")[0]] = CODE["lapack-loop"]
    once = restructured(graph, first)
    second = np.where(once.masks.restructure[:, CODE["scatter-loop"]], CODE["scatter-loop"], 0)
    result = rewrite(once, once.default.with_changes(restructure=second.astype(np.int8)))
    assert result.restructured >= 1
    assert compare_outputs(walls.result, walls.compile(result.data)()).equal


def test_results_are_remembered_but_not_without_end(walls):
    graph = walls.graph
    walls_found = np.flatnonzero(all_codes(walls))
    for wall in walls_found:
        codes = np.zeros(len(graph), np.int8)
        codes[wall] = all_codes(walls)[wall]
        assert restructured(graph, codes) is restructured(graph, codes)
    assert len(kept_results(graph)) <= 4


def test_no_restructure_gives_xlas_decisions_back(walls):
    graph = walls.graph
    assert not graph.default.restructure.any()
    assert rewrite(graph, graph.default).restructured == 0
