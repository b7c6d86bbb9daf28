"""Reductions along one dimension, in slices: the same to rounding; integers and extrema exactly."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.captures import capture
from support.restructured import everywhere, run_program

from graphopt.hlo import Graph, apply_restructures
from graphopt.hlo.graph.walks import fused_into
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.slice_reduce import LEAST, LENGTHS, MOST_SLICES, NEAR_BYTES, cut
from graphopt.measure import compare_outputs

NAME = "slice-reduce"


def table(*dims: int) -> np.ndarray[Any, Any]:
    """Numbers about one."""
    return np.random.default_rng(sum(dims)).uniform(0.9, 1.1, dims).astype(np.float32)


def sliced(graph: Graph) -> Graph:
    """The graph after all reductions are written in slices that may be."""
    return apply_restructures(graph, everywhere(graph, NAME).restructure).graph


DIMS: Final = [(4, 40), (3, 97), (40, 5), (2, 100, 3), (33, 64), (1, 24), (2, 1030)]
AXES: Final[dict[Any, Any]] = {(3, 9, 5, 4): (1, 2), (5, 6, 7): (0, 1), (2, 3, 4, 9): (2, 3)}
"""Dimensions -> those that are reduced, where they are not the longest one."""


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    dims=st.sampled_from([*DIMS, *AXES]),
    op=st.sampled_from(["sum", "max", "min", "prod"]),
    dtype=st.sampled_from(["float32", "float64", "float16", "int32", "uint8"]),
    looped=st.booleans(),
)
def test_results_stay_the_same(dims: Any, op: str, dtype: str, looped: bool) -> None:
    axis = AXES.get(dims, int(np.argmax(dims)))

    def fn(x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            along = getattr(jnp, op)(x, axis=axis, keepdims=True).astype(x.dtype)
            return (x * 2 - along // 3) if dtype in ("int32", "uint8") else 0.5 * x + 0.1 / along

        return jax.lax.fori_loop(0, 3, step, x) if looped else getattr(jnp, op)(x + x, axis=axis)

    with jax.enable_x64(True):
        x = jnp.asarray(table(*dims) * (1 if dtype.startswith("float") else 7), dtype)
        wanted, results = run_program(fn, (x,), NAME)
    for got in results:
        if op in ("max", "min") and not looped:
            np.testing.assert_array_equal(np.asarray(wanted[0]), np.asarray(got[0]))
        assert compare_outputs(wanted, got).equal


def test_numbers_that_are_none_spread_as_before():
    x = table(6, 50)
    x[0, 3], x[1, 49], x[2, 0], x[3, 20] = np.nan, np.inf, -np.inf, -0.0
    for fn in (lambda x: jnp.max(x, 1), lambda x: jnp.min(x, 1), lambda x: jnp.sum(x, 1)):
        wanted, results = run_program(fn, (x,), NAME)
        for got in results:
            np.testing.assert_allclose(np.asarray(got[0]), np.asarray(wanted[0]), rtol=1e-6)


@pytest.mark.parametrize("extent", [LEAST, 31, 40, 64, 97, 500, 512, 5000])
def test_slices_leave_little_over(extent: int) -> None:
    count, length = cut(extent)
    assert 1 < count <= MOST_SLICES and count * length <= extent
    assert length >= min(LENGTHS) and extent - count * length < max(length, MOST_SLICES)


def test_the_window_in_front_is_left_out():
    graph = capture(lambda x: jnp.max(x * 2.0, 1), table(4, 100)).graph
    assert any(op.name == "reduce-window" for op in graph.ops)
    assert not any(op.name in ("reduce-window", "reduce") for op in sliced(graph).ops)


@pytest.mark.parametrize("name, axes", [(NAME, (1,)), ("tree-reduce", (0, 1))])
def test_a_window_from_another_initial_value_stays(name: str, axes: tuple[int, ...]) -> None:
    """What it starts from counts as well."""

    def fn(x: Any) -> Any:
        windows = jax.lax.reduce_window(x, 5.0, jax.lax.add, (1, 4), (1, 4), "VALID")
        return jax.lax.reduce(windows, np.float32(0), jax.lax.add, axes)

    wanted, results = run_program(fn, (table(4, 200),), name)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_windows_over_kept_dimensions_stay():
    """What is left of two long dimensions that lie apart is not along one of them."""
    graph = capture(lambda x: jnp.sum(x * 2.0, (0, 2)), table(40, 3, 20)).graph
    assert any(op.name == "reduce-window" for op in graph.ops)
    assert not graph.masks.restructure[:, CODE[NAME]].any()


def test_a_window_over_several_dimensions_is_left_out():
    graph = capture(lambda x: jnp.sum(x * 2.0, (1, 2)), table(3, 40, 12)).graph
    assert any(op.name == "reduce-window" for op in graph.ops)
    assert not any(op.name in ("reduce-window", "reduce") for op in sliced(graph).ops)


def test_slices_have_no_dimension_of_rows():
    """A loop over rows of three elements would be no vector code."""
    for shape, axis, dims in (((200, 3), 0, 1), ((5, 200, 3), 1, 2)):
        graph = sliced(capture(lambda x, axis=axis: x.sum(axis), table(*shape)).graph)
        parts = [len(graph.dim_lists[n]) for n, op in enumerate(graph.ops) if op.name == "slice"]
        assert parts and set(parts) == {dims}


def test_slices_do_not_share_places_of_a_cache():
    """At 256 rows of a kilobyte, slices of 16 rows would begin 16 kilobytes apart."""
    for rows, row_bytes in ((256, 1024), (1024, 256), (128, 512), (256, 512), (512, 256)):
        count, length = cut(rows, row_bytes)
        assert count > 4 and length * row_bytes % NEAR_BYTES
    assert cut(256, 12) == (16, 16)


@pytest.mark.parametrize("looped", [False, True])
def test_the_result_is_in_memory_for_larger_readers(looped: bool) -> None:
    """Fused into one, all slices would be added up again for each of its elements."""

    def step(x: Any) -> Any:
        return 0.9 * x + 1e-3 * x.sum(0)

    def fn(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, x: step(x), x) if looped else step(x)

    graph = sliced(capture(fn, table(64, 48)).graph)
    names = [op.name for op in graph.ops]
    spread = [n for n, op in enumerate(names) if op == "broadcast" and graph.elements[n] == 64 * 48]
    inside = {m for n in spread for m in fused_into(graph, graph.default.fuse, n)}
    assert any(graph.dim_lists[member] == [48] for member in inside)
    assert "slice" in names and not any(names[member] == "slice" for member in inside)


@pytest.mark.parametrize(
    "fn, rule",
    [
        (lambda x: jnp.sum(x[:, :20], 1), "slices-dimension"),
        (lambda x: jnp.sum(x), "slices-dimension"),
        (lambda x: jnp.argmax(x, 1), "slices-dimension"),
        (
            lambda x: jax.lax.reduce(x, np.float32(1), lambda a, b: a * b + 1.0, (1,)),
            "slices-combiner",
        ),
    ],
)
def test_what_is_left_as_it_is(fn: Any, rule: str) -> None:
    graph = capture(fn, table(4, 30)).graph
    found = [
        graph.masks.why_not(node, "restructure", CODE[NAME])
        for node, op in enumerate(graph.ops)
        if op.name == "reduce"
    ]
    assert rule in found
