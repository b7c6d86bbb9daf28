"""The step 'keep in memory': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from support.captures import capture, captured, nodes, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.forms.functions.circular import cosine, sine
from graphopt.hlo import rewrite
from graphopt.hlo.module.proto import DType
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import heuristic, heuristic_steps

NAME = "keep in memory"


def test_what_is_recomputed_at_cost_is_written():
    found = captured("heat_stencil")
    edit = check_acts(NAME, found.fn, *found.args)
    assert "fuse" in fields_of(edit) and edit.saved_ns > 3000


def test_comparisons_are_repeated():
    """To write and read bytes among floats takes longer."""

    def compared(x, y):
        d = x[:, :, None] - y[:, None, :]
        far = jnp.sqrt(d * d + 0.1) * jnp.exp(-d) > 0.5
        return [jnp.where(far, f * d, 0.0) for f in (1.0, 2.0, 3.0)], far.sum(2)

    arrays = normal(64, 51), normal(64, 51, seed=1)
    edit = edit_of(NAME, compared, *arrays)
    graph = capture(compared, *arrays).graph
    decisions = graph.default if edit is None else edit.applied_to(graph.default)
    assert all(decisions.fuse[node] for node in nodes(graph, "compare"))


def test_simple_values_are_repeated_where_short_rows_are_joined():
    """A stack of three is scalar code, in which an element of an array takes as long as a few operations."""

    def stacked(weight, image):
        near = (weight - 0.5) * weight + 0.25
        return jnp.stack([near * image[..., c] for c in range(3)], -1)

    assert edit_of(NAME, stacked, normal(200, 200), normal(200, 200, 3)) is None


def test_what_is_used_once_stays_fused():
    assert edit_of(NAME, lambda x: jnp.sin(jnp.cos(x)), normal(512, 512)) is None


def test_sums_are_not_added_up_again_for_every_element_in_native_loops():
    def fn(x):
        return lax.fori_loop(0, 400, lambda _, y: jax.nn.softmax(y) * 3.0 + x, x)

    found = capture(fn, normal(4096))
    graph, decisions = found.graph, heuristic(found.graph)
    (loop,) = nodes(graph, "while")
    assert graph.units[decisions.unit[loop]].kind is UnitKind.NATIVE
    for node in nodes(graph, "reduce"):
        reads = graph.elements[graph.operand_lists[node][0]]
        readers = graph.user_lists[node]
        assert (
            reads < 64 or not decisions.fuse[node] or all(graph.elements[r] < 64 for r in readers)
        )
    assert compare_outputs(found.result, found.compile(rewrite(graph, decisions).data)()).equal


def test_an_index_is_computed_once_for_all_that_is_written_there():
    def fn(x):
        def body(_, y):
            place = (y * 7919.0).astype(jnp.int32)[5] % 1024
            return y.at[place].set(0.5) * 0.9

        return lax.fori_loop(0, 400, body, x)

    assert edit_of(NAME, fn, normal(1024)) is None


def test_a_value_read_several_times_at_one_index_is_computed_once():
    def fn(x: jax.Array) -> jax.Array:
        for _ in range(5):
            x = x * x + x
        return x[::-1] + x

    assert edit_of(NAME, fn, normal(1024, 1024)) is None


def test_what_two_functions_of_a_form_share_is_computed_twice():
    """Its simple operations in double precision take no longer than a trip through memory."""

    def fn(x):
        with jax.enable_x64(True):
            return lax.optimization_barrier(sine(x)), lax.optimization_barrier(cosine(x))

    graph = capture(fn, normal(1 << 18)).graph
    assert (graph.dtype == DType.F64).any()
    kept = heuristic_steps(graph, (NAME,))
    assert not (~kept.fuse & graph.default.fuse).any()
