"""Cumulative operations as loops: bit-equal from the front, to rounding from the back."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from support.restructured import run_program, run_text

from graphopt.hlo import build_graph
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.running_window import forbids
from graphopt.hlo.restructure.sites import Candidate
from graphopt.jax_private import hlo_from_text
from graphopt.measure import compare_outputs, compile_with

NAME = "window-running"

TEXT = """HloModule running

combine {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  {combiner}
}}

ENTRY main {{
  x = {dtype}[{dims}]{{{layout}}} parameter(0)
  start = {dtype}[] constant({start})
  ROOT y = {dtype}[{out}]{{{layout}}} reduce-window(x, start), window={{{window}}}, to_apply=combine
}}
"""

COMBINERS = {
    "add": "ROOT c = {dtype}[] add(a, b)",
    "maximum": "ROOT c = {dtype}[] maximum(a, b)",
    "multiply-add": "m = {dtype}[] multiply(a, b)\n  ROOT c = {dtype}[] add(m, b)",
}


def text_of(dims, d, *, back=False, combiner="add", start=0, dtype="s32", window=None, out=None):
    edges = ["0_0"] * len(dims)
    edges[d] = f"0_{dims[d] - 1}" if back else f"{dims[d] - 1}_0"
    sizes = ["1"] * len(dims)
    sizes[d] = str(dims[d])
    return TEXT.format(
        dtype=dtype, dims=",".join(map(str, dims)), out=",".join(map(str, out or dims)),
        layout=",".join(map(str, range(len(dims) - 1, -1, -1))), start=start,
        combiner=COMBINERS[combiner].format(dtype=dtype),
        window=window or f"size={'x'.join(sizes)} pad={'x'.join(edges)}",
    )  # fmt: skip


def accumulated(x, d, combine, start, back):
    """The definition: windows that begin with `start` and take elements in their order."""
    x = np.moveaxis(x, d, 0)
    out = np.empty_like(x)
    for i in range(len(x)):
        value = np.full(x.shape[1:], start, x.dtype)
        for row in x[i:] if back else x[: i + 1]:
            value = combine(value, row)
        out[i] = value
    return np.moveaxis(out, 0, d)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(2, 7), min_size=1, max_size=3),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["add", "maximum"]),
    st.integers(-2, 3),
    st.integers(0, 99),
)
def test_any_dimension_from_both_ends(dims, d, back, combiner, start, seed):
    d %= len(dims)
    x = np.random.default_rng(seed).integers(-9, 10, dims).astype(np.int32)
    combine = np.add if combiner == "add" else np.maximum
    wanted = accumulated(x, d, combine, start, back)
    text = text_of(dims, d, back=back, combiner=combiner, start=start)
    for (got,) in run_text(text, [x], [wanted], NAME):
        np.testing.assert_array_equal(got, wanted)


def test_a_combiner_that_is_not_associative_keeps_its_order():
    x = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
    wanted = accumulated(x, 1, lambda a, b: a * b + b, np.float32(0.5), back=False)
    text = text_of((3, 9), 1, combiner="multiply-add", start=0.5, dtype="f32")
    for (got,) in run_text(text, [x], [wanted], NAME):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    graph = build_graph(hlo_from_text(text_of((9,), 0, back=True, combiner="multiply-add")))
    (node,) = (n for n, op in enumerate(graph.ops) if op.name == "reduce-window")
    assert forbids(Candidate(graph, node)) == "running-combiner"


@pytest.mark.parametrize("special", [(), (3, np.nan), (5, np.inf), (7, -0.0)])
@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
def test_from_the_front_results_are_bit_equal(op, special):
    x = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    if special:
        x[2, special[0]] = special[1]
    wanted, results = run_program(lambda x: getattr(lax, op)(x, axis=1), (x,), NAME)
    for got in results:
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(
                np.asarray(a).view(np.int32), np.asarray(b).view(np.int32)
            )


@pytest.mark.parametrize("dtype", ["float64", "int8", "complex64", "bool"])
@pytest.mark.parametrize("reverse", [False, True])
def test_types(dtype, reverse):
    x = np.random.default_rng(0).uniform(-2, 2, (4, 12)).astype(dtype)

    def fn(x):
        edge = ((0, 0), (0, 11) if reverse else (11, 0))
        combine = lax.bitwise_or if dtype == "bool" else lax.add
        return lax.reduce_window(x, np.zeros((), dtype), combine, (1, 12), (1, 1), edge)

    with jax.enable_x64(dtype == "float64"):
        wanted, results = run_program(fn, (x,), NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize(
    ("window", "out", "rule"),
    [
        ("size=4 pad=3_0", (16,), "running-window"),
        ("size=16 pad=15_15", (31,), "running-window"),
        ("size=16 pad=15_0 stride=2", (8,), "running-window"),
        ("size=16 pad=15_0 rhs_reversal=1", (16,), "running-window"),
    ],
)
def test_windows_that_stay(window, out, rule):
    graph = build_graph(hlo_from_text(text_of((16,), 0, window=window, out=out)))
    (node,) = (n for n, op in enumerate(graph.ops) if op.name == "reduce-window")
    assert not graph.masks.restructure[node, CODE[NAME]]
    assert forbids(Candidate(graph, node)) == rule


def test_windows_along_two_dimensions_stay():
    def fn(x):
        return lax.reduce_window(x, 0.0, lax.add, (4, 4), (1, 1), ((3, 0), (3, 0)))

    graph = build_graph(compile_with(fn, (np.ones((4, 4), np.float32),)).modules[0])
    assert any(op.name == "reduce-window" for op in graph.ops)
    assert not graph.masks.restructure[:, CODE[NAME]].any()
