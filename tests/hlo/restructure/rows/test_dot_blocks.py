"""Products in blocks agree with XLA's, for all layouts of the contraction, and read what is cheap to read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.restructured import loop_of_products, run_program

from graphopt.hlo import build_graph
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.dot_blocks import SHORT, Product
from graphopt.measure import compare_outputs, compile_with

NAME = "dot-blocks"


def product(left: Any, right: Any, turned: tuple[bool, bool], batched: bool) -> Any:
    n = int(batched)
    inner = ((n,) if turned[0] else (n + 1,), (n + 1,) if turned[1] else (n,))
    batch = ((0,), (0,)) if batched else ((), ())
    return jax.lax.dot_general(left, right, (inner, batch))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_form_of_the_contraction(data):
    turned = (data.draw(st.booleans()), data.draw(st.booleans()))
    inner = data.draw(st.sampled_from([4, 7, 33, 34, 36, 48, 50, 64, 96]))
    if inner <= SHORT:
        turned = (turned[0], True)
    rows, columns = (data.draw(st.integers(2, 9)) for _ in range(2))
    batch = data.draw(st.lists(st.integers(2, 3), max_size=1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shapes = (
        [*batch, *((inner, rows) if turned[0] else (rows, inner))],
        [*batch, *((columns, inner) if turned[1] else (inner, columns))],
    )
    operands = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        return product(a, b, turned, bool(batch)) + 1.0

    wanted, results = run_program(fn, operands, NAME)
    for got in results:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64"])
def test_types_in_a_loop(dtype):
    rng = np.random.default_rng(0)
    a, x = (jnp.asarray(rng.uniform(-3, 3, d), dtype) for d in ((64, 64), (64, 5)))
    wanted, results = run_program(loop_of_products(dtype, 9), (a, x), NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize(
    ("shapes", "rule"),
    [
        (((1, 64), (64, 64)), "dot-plain"),
        (((8, 16), (16, 8)), "dot-plain"),
        (((8, 37), (37, 8)), "dot-block"),
        (((256, 256), (256, 256)), "dot-long"),
    ],
)
def test_products_that_are_left_alone(shapes, rule):
    args = [jnp.ones(shape, jnp.float32) for shape in shapes]
    graph = build_graph(compile_with(jnp.dot, tuple(args)).modules[0])
    (node,) = [n for n, op in enumerate(graph.ops) if op.name == "dot"]
    assert graph.masks.why_not(node, "restructure", CODE[NAME]) == rule


def test_blocks_are_near_sixteen_and_only_what_must_be_is_moved():
    def of(inner: int, rows: int = 8, columns: int = 8, turned: bool = False) -> Product:
        return Product(1, rows, columns, inner, left_turned=False, right_turned=turned)

    assert [of(n).block for n in (31, 64, 50, 39, 34, 37, 2 * 67)] == [
        31,
        16,
        10,
        13,
        17,
        None,
        None,
    ]
    assert of(64).moved_elements() == 8 * 64
    assert of(16, rows=4, columns=64, turned=True).moved_elements() == 16 * 64
    assert of(64, rows=4, columns=64, turned=True).moved_elements() == 4 * 64 + 64 * 64
    assert of(64, rows=4, columns=64, turned=True).moved_elements(kept=[1]) == 4 * 64
