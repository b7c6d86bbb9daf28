"""Costs of matrix products, and which of them the heuristic writes in blocks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import MACHINE, capture

from graphopt.hlo import Graph, build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs
from graphopt.policy import products
from graphopt.policy.heuristic import heuristic

NO_TERMS = """\
HloModule empty, entry_computation_layout={(f32[8,0]{1,0}, f32[0,8]{1,0})->f32[8,8]{1,0}}

ENTRY main {
  a = f32[8,0]{1,0} parameter(0)
  b = f32[0,8]{1,0} parameter(1)
  ROOT d = f32[8,8]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def dot_of(graph: Graph) -> int:
    (node,) = (n for n, op in enumerate(graph.ops) if op.name == "dot")
    return node


def product(*shapes: tuple[int, int], turned: bool = False) -> tuple[Graph, int]:
    args = [np.ones(shape, np.float32) for shape in shapes]

    def fn(a, b):
        return lax.dot_general(a, b, (((1,), (1 if turned else 0,)), ((), ())))

    graph = capture(fn, *args).graph
    return graph, dot_of(graph)


def test_products_without_terms_cost_nothing():
    graph = build_graph(hlo_from_text(NO_TERMS), MACHINE)
    node = dot_of(graph)
    assert products.plain_ns(graph, node) == 0.0
    assert products.blocks_ns(graph, node) is None


@pytest.mark.parametrize(
    ("fast", "slow"),
    [
        (((1, 64), (64, 64)), ((8, 64), (64, 64))),
        (((64, 16), (16, 16)), ((16, 64), (64, 16))),
    ],
)
def test_vectors_and_short_sums_are_fast_as_plain_loops(fast, slow):
    def ns_per_flop(shapes):
        graph, node = product(*shapes)
        return products.plain_ns(graph, node) / products.dot_flops(graph, node)

    assert ns_per_flop(fast) < 0.2 * ns_per_flop(slow)


def test_blocks_pay_for_long_sums_and_not_for_what_must_be_moved_for_one_row_or_two():
    graph, node = product((8, 64), (64, 64))
    assert products.native_ns(graph, node) < 0.3 * products.plain_ns(graph, node)
    graph, node = product((2, 16), (64, 16), turned=True)
    assert products.native_ns(graph, node) < products.plain_ns(graph, node)


def test_a_recurrent_cell_becomes_native_with_its_products_in_blocks():
    def cell(w, u, xs):
        def step(h, x):
            h = jnp.tanh(x @ w + h @ u)
            return h, h.sum()

        return lax.scan(step, jnp.zeros((4, 64)), xs)

    rng = np.random.default_rng(0)
    w, u, xs = (
        rng.normal(size=s).astype(np.float32) * 0.1 for s in ((64, 64), (64, 64), (50, 4, 64))
    )
    program = capture(cell, w, u, xs)
    decisions = heuristic(program.graph)
    graph = program.graph
    (loop,) = (n for n, op in enumerate(graph.ops) if op.name == "while")
    assert graph.units[decisions.unit[loop]].kind is UnitKind.NATIVE
    assert CODE["dot-blocks"] in decisions.restructure.tolist()
    result = rewrite(graph, decisions)
    assert compare_outputs(program.result, program.compile(result.data)()).equal
