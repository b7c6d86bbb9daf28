"""The step 'one core': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from support.captures import capture, captured, normal, unit
from support.stepping import check_acts, edit_of, fields_of

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


def leaky(x):
    """A loop of vector code."""
    return jnp.where(x > 0, x * 0.9, x * 0.8) + 0.1


def test_vector_code_over_cached_arrays_stays_on_one_core():
    edit = check_acts(NAME, leaky, normal(256, 300))
    assert fields_of(edit) == {"unit"} and edit.nodes == 1


def test_a_single_operation_stays_on_one_core():
    check_acts(NAME, lambda x: jnp.maximum(x, 0), normal(256, 300))


def test_arrays_beyond_the_cache_keep_two_cores():
    assert edit_of(NAME, leaky, normal(1024, 300)) is None


def test_among_kernels_that_use_both_cores_loops_stay_with_their_caches():
    def product(x):
        return leaky(leaky(x) @ jnp.ones((300, 300)))

    assert edit_of(NAME, product, normal(256, 300)) is None


def masked(x, mask, rows):
    """A kernel whose rows are too short for vector code: every element finds its place in the mask."""
    for number in range(24):
        x = jnp.where((mask > 0.1 * number)[:, None, None], x + rows[:, :, None], x * 0.5)
    return x


def test_a_loop_over_short_rows_is_not_taken_for_vector_code():
    graph = capture(masked, normal(32, 40, 2), normal(32), normal(32, 40)).graph
    single, widest = unit(graph, UnitKind.LOOP, 1), unit(graph, UnitKind.LOOP, 2)
    split = graph.default.copy()
    split.unit[~split.fuse & graph.masks.unit[:, widest] & (split.unit == single)] = widest
    assert one_core.apply(Context(graph, CostModel(graph), split)) is None
    long = capture(masked, normal(2, 40, 32), normal(2), normal(2, 40)).graph
    split = long.default.copy()
    split.unit[~split.fuse & long.masks.unit[:, widest] & (split.unit == single)] = widest
    assert one_core.apply(Context(long, CostModel(long), split)) is not None


SPLIT = 4_000_000
"""Elements of an array beyond every cache: worth two cores where its parts are equal."""


@pytest.mark.parametrize(
    ("fn", "length"),
    [
        (leaky, SPLIT + 1),
        (lambda x: x[1:] - x[:-1], SPLIT),
        (lambda x: jnp.roll(x, 1) + 2 * x, SPLIT),
        (lambda x: leaky(x[None]), SPLIT + 1),
    ],
    ids=["odd", "differences", "rolled", "one row"],
)
def test_rows_without_equal_parts_run_on_one_core(fn, length):
    assert fields_of(check_acts(NAME, fn, normal(length))) == {"unit"}


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (leaky, (SPLIT,)),
        (lambda x: x[2:] - x[:-2], (SPLIT,)),
        (lambda x: jnp.roll(x, 1, 1) + 2 * x, (2000, 2001)),
        (lambda x: jnp.roll(x, 1, 0) + 2 * x, (2001, 2000)),
    ],
    ids=["even", "differences", "rows of their own", "uneven number of rows"],
)
def test_equal_parts_and_whole_rows_keep_two_cores(fn, shape):
    assert edit_of(NAME, fn, normal(*shape)) is None


def test_functions_are_worth_two_cores_in_any_parts():
    assert edit_of(NAME, lambda x: jnp.sin(jnp.cos(x)), normal(SPLIT + 1)) is None


def test_what_is_no_vector_code_keeps_two_cores():
    """The update's values are written as one column: every element's place takes a division."""

    def every_second(x):
        around = x[2::2, 1:-1:2] + x[:-2:2, 1:-1:2] + x[1:-1:2, 2::2] + x[1:-1:2, :-2:2]
        return x.at[1:-1:2, 1:-1:2].set(0.25 * around - 0.1)

    x = normal(512, 512)
    graph = capture(every_second, x).graph
    split = [graph.units[u].threads > 1 for u in graph.default.unit[~graph.default.fuse]]
    assert any(split) and edit_of(NAME, every_second, x) is None
