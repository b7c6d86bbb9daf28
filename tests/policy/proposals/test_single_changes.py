"""Single changes are legal, few, about where the time goes, and do what their names say."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import capture, captured, normal

from graphopt.costs.model import CostModel
from graphopt.hlo import rewrite
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.machine import UnitKind, unit_index
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.proposals.single_changes import (
    MAX_CHANGES,
    MAX_PER_KIND,
    Change,
    changed,
    single_changes,
)


def changes_of(graph, start=None):
    model = CostModel(graph)
    start = heuristic_steps(graph, STEPS, model) if start is None else start
    return start, single_changes(graph, start, model)


def test_edits_are_made_in_order_on_a_copy():
    graph = captured("transformer_block").graph
    start = graph.default
    node = int(np.flatnonzero(graph.masks.fuse[:, 1] & ~start.fuse)[0])
    there, back = (Change("value", node, 1.0, (("fuse", node, value),)) for value in (1, 0))
    assert changed(start, [there]).fuse[node] and not start.fuse[node]
    assert changed(start, [there, back]).same_as(start)


@pytest.mark.parametrize(
    "name", ["transformer_block", "cartpole_rollout", "hodgkin_huxley", "layernorm", "scan_grad"]
)
def test_changes_are_legal_different_and_few(name):
    graph = captured(name).graph
    start, changes = changes_of(graph)
    assert 0 < len(changes) <= MAX_CHANGES
    vectors = [changed(start, [change]) for change in changes]
    for vector, change in zip(vectors, changes, strict=True):
        graph.masks.check(vector)
        assert not vector.same_as(start)
        assert {field for field, _, _ in change.edits} <= set(FIELDS)
    keys = {b"".join(getattr(v, f).tobytes() for f in FIELDS) for v in vectors}
    assert len(keys) == len(vectors)
    weights = [change.weight for change in changes]
    assert weights == sorted(weights, reverse=True)
    assert (
        max(sum(c.kind == kind for c in changes) for kind in {c.kind for c in changes})
        <= MAX_PER_KIND
    )


def test_a_loop_goes_in_and_out_of_native_code():
    def recurrence(w, x):
        return lax.fori_loop(0, 30, lambda _, h: jnp.tanh(h @ w), x)

    program = capture(recurrence, 0.1 * normal(64, 64), normal(4, 64))
    graph = program.graph
    native = unit_index(graph.units, UnitKind.NATIVE)
    (loop,) = (n for n, op in enumerate(graph.ops) if op.name == "while")

    _, changes = changes_of(graph, graph.default)
    (into,) = (c for c in changes if c.kind == "loop native")
    inside = changed(graph.default, [into])
    assert into.node == loop and inside.unit[loop] == native and inside.restructure.any()
    assert compare_outputs(program.result, program.compile(rewrite(graph, inside).data)()).equal

    _, changes = changes_of(graph, inside)
    (out,) = (c for c in changes if c.kind == "loop not native")
    assert changed(inside, [out]).same_as(graph.default)


def test_kernels_inside_native_loops_have_no_unit_of_their_own():
    def steps(x):
        return lax.fori_loop(0, 50, lambda _, v: jnp.sin(v) * 1.5, x)

    graph = capture(jax.jit(steps), normal(8)).graph
    start, changes = changes_of(graph)
    assert (
        graph.units[start.unit[[op.name == "while" for op in graph.ops]][0]].kind is UnitKind.NATIVE
    )
    assert not [
        c for c in changes if c.kind.startswith("kernel") and graph.computation[c.node] == 0
    ]
