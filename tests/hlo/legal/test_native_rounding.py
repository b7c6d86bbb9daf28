"""Short floats: native functions round to some of them otherwise than kernels do, and leave those alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from support.captures import MACHINE, capture, node, unit

import graphopt
from graphopt.hlo import build_graph, rewrite
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind

ROUNDING = """\
HloModule rounding

ENTRY main {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} add(p, p)
  c = T[64]{0} convert(a)
  ROOT r = T[64]{0} reverse(c), dimensions={0}
}
"""

EVERY = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
"""float32 [65536]; every value that has sixteen bits, infinities and NaN included."""


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("f8e4m3fn", False),
        ("f8e4m3b11fnuz", False),
        ("f8e5m2fnuz", False),
        ("f8e4m3fnuz", False),
        ("f8e5m2", True),
        ("f16", True),
        ("bf16", True),
    ],
)
def test_what_native_code_rounds_wrongly_it_may_not_hold(kind, allowed):
    graph = build_graph(hlo_from_text(ROUNDING.replace("T[", f"{kind}[")), MACHINE)
    rule = graph.masks.why_not(node(graph, "convert"), "unit", unit(graph, UnitKind.NATIVE))
    assert rule == (None if allowed else "not-in-region")


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz"]
)
@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_loops_that_round_to_short_floats_give_the_defaults_bits(name, source):
    def rounded(table):
        def row(i, out):
            return out.at[i].set(jax.lax.convert_element_type(table[i] * 1.0, name))

        return jax.lax.fori_loop(0, len(table), row, jnp.zeros(table.shape, name))

    table = jnp.asarray(EVERY.reshape(-1, 64)).astype(source)
    expected = np.asarray(jax.jit(lambda t: rounded(t))(table)).view(np.uint8)
    graphopt.install("heuristic", store=False)
    try:
        found = np.asarray(jax.jit(lambda t: rounded(t))(table)).view(np.uint8)
    finally:
        graphopt.uninstall()
    np.testing.assert_array_equal(found, expected)


def test_what_kernels_round_twice_native_code_may_not_hold():
    text = ROUNDING.replace("T[", "f8e5m2[").replace("f32[", "s32[")
    graph = build_graph(hlo_from_text(text), MACHINE)
    rule = graph.masks.why_not(node(graph, "convert"), "unit", unit(graph, UnitKind.NATIVE))
    assert rule == "not-in-region"


def test_loops_that_round_integers_to_short_floats_give_the_defaults_bits():
    numbers = jnp.arange(-3072, 3072, dtype=jnp.int32).reshape(-1, 64)

    def rounded(table):
        def row(i, out):
            return out.at[i].set((table[i] + i - i).astype(jnp.float8_e5m2))

        return jax.lax.fori_loop(0, len(table), row, jnp.zeros(table.shape, jnp.float8_e5m2))

    expected = np.asarray(jax.jit(lambda t: rounded(t))(numbers)).view(np.uint8)
    graphopt.install("heuristic", store=False)
    try:
        found = np.asarray(jax.jit(lambda t: rounded(t))(numbers)).view(np.uint8)
    finally:
        graphopt.uninstall()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_a_kernel_that_rounds_inside_is_no_native_code(name):
    """After flax's quantised layers: there and back in the kernels of two arrays, decided native."""

    def quantised(x, y):
        there = [jax.lax.convert_element_type(v * 1.0, name) for v in (x, y)]
        return tuple(v.astype(jnp.float32) * 2.0 + jnp.flip(v.astype(jnp.float32)) for v in there)

    program = capture(quantised, EVERY, EVERY[::-1])
    graph = program.graph
    decisions = graph.default.copy()
    native = unit(graph, UnitKind.NATIVE)
    decisions.unit[graph.masks.unit[:, native]] = native
    rewritten = rewrite(graph, decisions)
    assert rewritten.overrides["not-in-region"]
    for wanted, found in zip(program.result, program.compile(rewritten.data)(), strict=True):
        np.testing.assert_array_equal(wanted, found)
