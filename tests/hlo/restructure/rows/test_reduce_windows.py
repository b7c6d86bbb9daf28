"""Reductions in other forms give the same results to rounding; integers and extrema exactly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.restructured import run_program, run_text

from graphopt.hlo import apply_restructures, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.measure import compare_outputs, compile_with


def check(fn: Any, name: str, *args: Any) -> None:
    wanted, results = run_program(fn, args, name)
    for got in results:
        assert compare_outputs(wanted, got).equal


WINDOW = """HloModule windows

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[{rows},{columns}]{{1,0}} parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[{out}]{{1,0}} reduce-window(x, zero), window={{{window}}}, to_apply=add
}}
"""


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
def test_windows_side_by_side(rows, columns, height, width, padded, seed):
    height, width = min(height, rows), min(width, columns)
    x = np.random.default_rng(seed).integers(-5, 5, (rows, columns)).astype(np.float32)
    counts = [n // w + (padded and n % w > 0) for n, w in ((rows, height), (columns, width))]
    extra = [max(0, c * w - n) for c, w, n in zip(counts, (height, width), x.shape, strict=True)]
    whole = [c * w for c, w in zip(counts, (height, width), strict=True)]
    filled = np.pad(x, [(0, e) for e in extra])[: whole[0], : whole[1]]
    wanted = filled.reshape(counts[0], height, counts[1], width).sum((1, 3))
    text = WINDOW.format(
        rows=rows, columns=columns, out=",".join(map(str, counts)),
        window=f"size={height}x{width} stride={height}x{width} pad=0_{extra[0]}x0_{extra[1]}",
    )  # fmt: skip
    for (got,) in run_text(text, [x], [wanted], "window-reduce"):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("shape", [(64, 64), (37, 41), (129,), (5, 3, 67), (1, 700), (300, 1, 2)])
@pytest.mark.parametrize("op", ["sum", "max", "prod"])
def test_trees(shape, op):
    x = np.random.default_rng(1).uniform(0.9, 1.1, shape).astype(np.float32)
    check(lambda x: getattr(jnp, op)(x * 1.01), "tree-reduce", x)


@pytest.mark.parametrize(
    ("shape", "padded"), [((127, 128, 8), False), ((128, 127), False), ((127, 126, 8), True)]
)
def test_a_tree_cuts_a_dimension_that_divides_if_there_is_one(shape, padded):
    (data,) = compile_with(lambda x: jnp.sum(x * 1.01), (np.ones(shape, np.float32),)).modules
    graph = build_graph(data)
    codes = np.where(graph.masks.restructure[:, CODE["tree-reduce"]], CODE["tree-reduce"], 0)
    after = apply_restructures(graph, codes.astype(np.int8)).graph
    large = [i for i, op in enumerate(after.ops) if op.name == "pad" and after.elements[i] > 4096]
    assert codes.any() and bool(large) is padded


def test_levels_of_a_tree_end_before_they_are_flattened():
    """Inside a kernel the change of dimensions would take divisions."""
    x = np.ones((128, 65, 33), np.float32)
    (data,) = compile_with(lambda x: jnp.sum(jnp.square(jnp.diff(x, axis=1))), (x,)).modules
    graph = build_graph(data)
    codes = np.where(graph.masks.restructure[:, CODE["tree-reduce"]], CODE["tree-reduce"], 0)
    after = apply_restructures(graph, codes.astype(np.int8))
    graph = after.graph
    views = [n for n, op in enumerate(graph.ops) if op.name == "bitcast" and after.fresh[n]]
    flattened = [n for n in views if len(graph.dim_lists[graph.operand_lists[n][0]]) == 3]
    assert flattened
    assert not graph.default.fuse[[graph.operand_lists[n][0] for n in flattened]].any()


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16"])
def test_trees_of_other_types(dtype):
    x = np.random.default_rng(1).uniform(-2, 2, (70, 33))
    check(lambda x: jnp.sum(x, dtype=x.dtype), "tree-reduce", jnp.asarray(x, dtype))


def test_a_tree_reads_through_the_window_in_front():
    def fn(x: jax.Array) -> jax.Array:
        return sum(jnp.sum(jnp.square(jnp.diff(x, axis=i))) for i in range(2))

    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    (data,) = compile_with(fn, (x,)).modules
    graph = build_graph(data)
    assert any(op.name == "reduce-window" for op in graph.ops)
    codes = np.where(graph.masks.restructure[:, CODE["tree-reduce"]], CODE["tree-reduce"], 0)
    after = apply_restructures(graph, codes.astype(np.int8)).graph
    assert not any(op.name == "reduce-window" for op in after.ops)
    check(fn, "tree-reduce", x)


def test_overlapping_windows_and_kept_dimensions_are_left():
    def fn(x: jax.Array) -> Any:
        return jnp.cumsum(x), jnp.sum(x.reshape(10, 30), axis=1)

    (data,) = compile_with(fn, (np.ones(300, np.float32),)).modules
    graph = build_graph(data)
    why = {
        (op.name, graph.masks.why_not(i, "restructure", CODE[name]))
        for i, op in enumerate(graph.ops)
        for name in ("window-reduce", "tree-reduce")
    }
    assert ("reduce-window", "window-overlaps") in why
    assert ("reduce", "tree-result") in why
