"""Costs of matrix products, and which of them the heuristic writes in blocks."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import MACHINE, capture

from graphopt.costs.model import CostModel
from graphopt.costs.products import dot_flops, product_costs
from graphopt.costs.shared_products import library_tasks
from graphopt.hlo import Graph, build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.dot_blocks import Product
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind, cost_rows, cpu_units, unit_index
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import heuristic, heuristic_steps

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
    costs = product_costs(graph, node)
    assert costs.plain_ns == 0.0
    assert costs.blocks_ns is None and costs.native_form == "keep"


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
        return product_costs(graph, node).plain_ns / dot_flops(graph, node)

    assert ns_per_flop(fast) < 0.2 * ns_per_flop(slow)


def test_blocks_pay_for_long_sums_and_turned_operands():
    long = product_costs(*product((8, 64), (64, 64)))
    assert long.native_form == "dot-blocks" and long.native_ns < 0.3 * long.plain_ns
    assert product_costs(*product((2, 16), (64, 16), turned=True)).native_form == "dot-blocks"
    tiny = product_costs(*product((3, 4), (3, 4), turned=True))
    assert tiny.blocks_ns is not None and tiny.native_form == "dot-reduce"
    assert tiny.native_ns == tiny.reduced_ns


def test_the_library_takes_long_for_short_rows():
    """It brings them into another order first; wide rows, and few, cost what they compute."""

    def times(*shapes):
        found = product_costs(*product(*shapes))
        return found.library_ns / min(found.reduced_ns, found.runtime_ns or found.reduced_ns)

    assert times((4096, 6), (6, 8)) > 3.0
    assert times((4096, 3), (3, 4)) > 3.0
    assert times((64, 128), (128, 4)) < 1.0


@pytest.mark.parametrize(
    ("shape", "tasks"),
    [
        ((512, 128, 128), 1),
        ((1024, 64, 64), 1),
        ((1024, 16, 128), 2),
        ((4096, 32, 32), 2),
        ((256, 256, 256), 16),
        ((32, 1024, 64), 1),
    ],
)
def test_the_library_cuts_large_products_into_tasks(shape, tasks):
    rows, inner, columns = shape
    assert library_tasks(Product(1, rows, columns, inner, False, False)) == tasks


@pytest.mark.parametrize(
    ("shapes", "dtype", "cores", "expected"),
    [
        (((512, 128), (128, 128)), np.float32, 2, True),
        (((512, 128), (128, 128)), np.float32, 1, False),
        (((512, 128), (128, 128)), np.float64, 2, False),
        (((256, 256), (256, 256)), np.float32, 2, False),  # the library itself shares it
        (((64, 64), (64, 64)), np.float32, 2, False),
        (((4096, 64), (64, 8)), np.float32, 2, False),
    ],
)
def test_products_that_the_library_computes_on_one_core_are_shared_by_the_runtime(
    shapes, dtype, cores, expected
):
    def fn(x, w):
        return jnp.tanh(x @ w + 1.0)

    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype == np.float64):
        program = capture(fn, *(rng.normal(size=s).astype(dtype) for s in shapes))
        graph = build_graph(program.data, replace(MACHINE, cores=cores, units=cpu_units(cores)))
        node = dot_of(graph)
        decisions = heuristic_steps(graph, ["small products"])
        runtime = unit_index(graph.units, UnitKind.RUNTIME)
        assert bool(decisions.unit[node] == runtime != graph.default.unit[node]) is expected
        if expected:
            result = program.compile(rewrite(graph, decisions).data)()
            assert compare_outputs(program.result, result).equal


@pytest.mark.parametrize(("columns", "expected"), [(2, True), (6, True), (64, False)])
def test_gradients_of_layers_with_few_outputs_swap_their_operands(columns, expected):
    def gradient(x, w, y):
        return jax.grad(lambda w: jnp.square(x @ w - y).mean())(w)

    rng = np.random.default_rng(0)
    shapes = ((1024, 64), (64, columns), (1024, columns))
    program = capture(gradient, *(rng.normal(size=s).astype(np.float32) for s in shapes))
    model = CostModel(program.graph, cost_rows.QUICK_CALLS)
    decisions = heuristic_steps(program.graph, ["small products"], model)
    assert (CODE["dot-swap"] in decisions.restructure.tolist()) is expected
    if expected:
        result = program.compile(rewrite(program.graph, decisions).data)()
        assert compare_outputs(program.result, result).equal


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


def batch(*dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Left and right matrices of a batch: its size, rows, inner dimension, columns."""
    count, rows, inner, columns = dims
    rng = np.random.default_rng(0)
    left, right = rng.random((count, rows, inner)), rng.random((count, inner, columns))
    return left.astype(np.float32), right.astype(np.float32)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ((200, 4, 4, 4), True),
        ((200, 6, 6, 6), True),
        ((4000, 4, 4, 4), True),
        ((80, 1, 80, 2), True),
        ((200, 3, 3, 3), False),
        ((16, 64, 64, 64), False),
        ((200, 1, 16, 16), False),
    ],
)
def test_batches_of_small_matrices_are_reductions(dims, expected):
    """XLA calls a library for each matrix; matrices that are large, and vectors, it computes well."""
    program = capture(lambda a, b: jnp.tanh(a @ b), *batch(*dims))
    decisions = heuristic_steps(program.graph, ["small products"])
    found = decisions.restructure == CODE["dot-reduce"]
    assert bool(found.any()) is expected
    if expected:
        assert found[dot_of(program.graph)]
        result = program.compile(rewrite(program.graph, decisions).data)()
        assert compare_outputs(program.result, result).equal


def test_batches_in_native_loops_are_reductions():
    def chain(poses, steps):
        return lax.scan(lambda pose, step: (pose @ step, pose[:, 0]), poses, steps)

    left, right = batch(50, 4, 4, 4)
    program = capture(chain, left, np.stack([right] * 9))
    graph = program.graph
    decisions = heuristic(graph)
    assert decisions is not None
    (loop,) = (n for n, op in enumerate(graph.ops) if op.name == "while")
    assert graph.units[decisions.unit[loop]].kind is UnitKind.NATIVE
    assert decisions.restructure[dot_of(graph)] == CODE["dot-reduce"]
    result = program.compile(rewrite(graph, decisions).data)()
    assert compare_outputs(program.result, result).equal
