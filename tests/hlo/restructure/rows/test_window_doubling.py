"""Overlapping windows as shifted arrays: the same results to rounding; integers and extrema exactly."""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from support.restructured import run_program, run_text

from graphopt.hlo import build_graph
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.window_doubling import forbids
from graphopt.hlo.restructure.sites import Candidate
from graphopt.jax_private import hlo_from_text
from graphopt.measure import compare_outputs, compile_with

NAME = "window-doubling"

TEXT = """HloModule sliding

combine {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] {op}(a, b)
}}

ENTRY main {{
  x = s32[{dims}]{{{layout}}} parameter(0)
  start = s32[] constant({start})
  ROOT y = s32[{out}]{{{layout}}} reduce-window(x, start), window={{{window}}}, to_apply=combine
}}
"""

COMBINERS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "and": np.bitwise_and}


def reference(x, ops, start, windows):
    """Every window by itself, as the definition of reduce-window has it."""
    padded = np.pad(x, [(w["low"], w["high"]) for w in windows], constant_values=start)
    counts = [
        (n - (w["size"] - 1) * w["dilation"] - 1) // w["stride"] + 1
        for n, w in zip(padded.shape, windows, strict=True)
    ]
    out = np.empty(counts, x.dtype)
    for index in np.ndindex(*counts):
        place = tuple(
            slice(
                i * w["stride"],
                i * w["stride"] + (w["size"] - 1) * w["dilation"] + 1,
                w["dilation"],
            )
            for i, w in zip(index, windows, strict=True)
        )
        value = np.int32(start)
        for element in padded[place].ravel():
            value = ops(value, element)
        out[index] = value
    return out


@st.composite
def cases(draw):
    dims = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    windows = []
    for n in dims:
        dilation, low, high = (
            draw(st.integers(1, 2)),
            draw(st.integers(0, 7)),
            draw(st.integers(0, 7)),
        )
        largest = (n + low + high - 1) // dilation + 1
        size, stride = draw(st.integers(1, largest)), draw(st.integers(1, 3))
        windows.append(
            {"size": size, "stride": stride, "low": low, "high": high, "dilation": dilation}
        )
    # One pair of windows overlaps at least.
    first = windows[0]
    if not any(w["size"] > w["stride"] for w in windows):
        first.update(size=2, stride=1, low=max(first["low"], 1), high=max(first["high"], 1))
    return dims, windows, draw(st.sampled_from(sorted(COMBINERS))), draw(st.integers(-2, 3))


@settings(max_examples=15, deadline=None)
@given(cases(), st.integers(0, 99))
def test_any_windows(case, seed):
    dims, windows, op, start = case
    x = np.random.default_rng(seed).integers(-3, 4, dims).astype(np.int32)
    with np.errstate(over="ignore"):
        wanted = reference(x, COMBINERS[op], start, windows)
    text = TEXT.format(
        op=op, start=start, dims=",".join(map(str, dims)), out=",".join(map(str, wanted.shape)),
        layout=",".join(map(str, range(len(dims) - 1, -1, -1))),
        window=" ".join(
            f"{name}=" + "x".join(value(w) for w in windows)
            for name, value in (
                ("size", lambda w: str(w["size"])),
                ("stride", lambda w: str(w["stride"])),
                ("pad", lambda w: f"{w['low']}_{w['high']}"),
                ("rhs_dilate", lambda w: str(w["dilation"])),
            )
        ),
    )  # fmt: skip
    for (got,) in run_text(text, [x], [wanted], NAME):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_operations(op, reverse):
    x = np.random.default_rng(0).uniform(0.9, 1.1, (700, 3)).astype(np.float32)
    wanted, results = run_program(
        lambda x: getattr(lax, op)(x, axis=0, reverse=reverse), (x,), NAME
    )
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "int8", "bool"])
def test_types(dtype):
    x = jnp.asarray(np.random.default_rng(0).uniform(-2, 2, (40, 9)), dtype)
    combine = lax.bitwise_or if dtype == "bool" else lax.add

    def fn(x):
        return lax.reduce_window(x, jnp.zeros((), x.dtype), combine, (7, 2), (1, 1), "SAME")

    wanted = compile_with(fn, (x,))
    graph = build_graph(wanted.modules[0])
    if graph.masks.restructure[
        :, CODE[NAME]
    ].any():  # narrow floats are combined in single precision
        _, results = run_program(fn, (x,), NAME)
        for got in results:
            assert compare_outputs(wanted(), got).equal
    else:
        assert dtype in {"bfloat16", "float16"}


@pytest.mark.parametrize("name", [NAME, "window-running"])
def test_cumulative_operations_in_a_loop_with_their_gradient(name):
    def loss(x):
        def step(x, _):
            return jnp.tanh(jnp.cumsum(x) * 0.01 + x), lax.cummax(x).sum()

        x, sums = lax.scan(step, x, None, length=3)
        return x.sum() + sums.sum()

    x = np.random.default_rng(0).normal(size=300).astype(np.float32)
    wanted, results = run_program(jax.grad(loss), (x,), name)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize(
    ("window", "out", "rule"),
    [
        ("size=4 stride=4", (4,), "sliding-apart"),
        ("size=4 pad=-2_0", (11,), "sliding-holes"),
        ("size=4 lhs_dilate=2", (28,), "sliding-holes"),
        ("size=4 rhs_reversal=1", (13,), "sliding-holes"),
    ],
)
def test_windows_that_stay(window, out, rule):
    text = TEXT.format(op="add", start=0, dims=16, out=prod(out), layout="0", window=window)
    graph = build_graph(hlo_from_text(text))
    (node,) = (n for n, op in enumerate(graph.ops) if op.name == "reduce-window")
    assert not graph.masks.restructure[node, CODE[NAME]]
    assert forbids(Candidate(graph, node)) == rule


def test_combiners_of_several_operations_stay():
    x = np.arange(40, dtype=np.float32)

    def fn(x):
        return lax.reduce_window(x, np.float32(0), lambda a, b: a + b * b, (5,), (1,), "VALID")

    graph = build_graph(compile_with(fn, (x,)).modules[0])
    assert any(op.name == "reduce-window" for op in graph.ops)
    assert not graph.masks.restructure[:, CODE[NAME]].any()
