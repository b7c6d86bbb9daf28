"""Products with their operands swapped agree with XLA's, for all layouts of the contraction."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.restructured import loop_of_products, run_program

from graphopt.hlo import build_graph
from graphopt.hlo.restructure import CODE
from graphopt.measure import compare_outputs, compile_with

NAME = "dot-swap"


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_form_of_the_contraction(data):
    turned = (data.draw(st.booleans()), data.draw(st.booleans()))
    rows, inner, columns = (data.draw(st.integers(2, 40)) for _ in range(3))
    batch = data.draw(st.lists(st.integers(2, 3), max_size=2))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shapes = (
        [*batch, *((inner, rows) if turned[0] else (rows, inner))],
        [*batch, *((columns, inner) if turned[1] else (inner, columns))],
    )
    operands = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    n = len(batch)
    contracted = ((n,) if turned[0] else (n + 1,), (n + 1,) if turned[1] else (n,))
    numbers = (contracted, (tuple(range(n)), tuple(range(n))))

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.dot_general(a, b, numbers) + 1.0

    wanted, results = run_program(fn, operands, NAME)
    for got in results:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
def test_types_in_a_loop(dtype):
    rng = np.random.default_rng(0)
    a, x = (jnp.asarray(rng.uniform(-3, 3, d), dtype) for d in ((32, 32), (32, 5)))
    wanted, results = run_program(loop_of_products(dtype, 9), (a, x), NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize("shapes", [((1, 16), (16, 8)), ((8, 16), (16, 1)), ((8, 16), (16,))])
def test_a_matrix_by_a_vector_is_left_alone(shapes):
    args = [jnp.ones(shape, jnp.float32) for shape in shapes]
    graph = build_graph(compile_with(jnp.dot, tuple(args)).modules[0])
    (node,) = [n for n, op in enumerate(graph.ops) if op.name == "dot"]
    assert graph.masks.why_not(node, "restructure", CODE[NAME]) == "dot-vector"
