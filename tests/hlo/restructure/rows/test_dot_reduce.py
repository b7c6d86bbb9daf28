"""Small matrix products written out agree with XLA's, for all dimension numbers."""

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
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs, compile_with

NAME = "dot-reduce"


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_dimension_numbers(data):
    batch = data.draw(st.lists(st.integers(2, 3), max_size=1))
    inner = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    sides = [data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2)) for _ in range(2)]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    operands, places = [], []
    for free in sides:
        dims = [*batch, *inner, *free]
        order = data.draw(st.permutations(range(len(dims))))
        where = [order.index(i) for i in range(len(dims))]
        operands.append(rng.integers(-4, 5, [dims[i] for i in order]).astype(np.float32))
        places.append((where[: len(batch)], where[len(batch) : len(batch) + len(inner)]))

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        numbers = ((places[0][1], places[1][1]), (places[0][0], places[1][0]))
        return jax.lax.dot_general(a, b, numbers) + 1.0

    wanted, results = run_program(fn, operands, NAME)
    for got in results:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64"])
def test_types_in_a_loop(dtype):
    rng = np.random.default_rng(0)
    a, x = (jnp.asarray(rng.uniform(-3, 3, d), dtype) for d in ((5, 5), (5, 4)))
    wanted, results = run_program(loop_of_products(dtype, 3), (a, x), NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_a_product_of_narrow_numbers_opens_its_loop():
    def fn(a: jax.Array, x: jax.Array) -> Any:
        def step(x: jax.Array, _: None) -> Any:
            y = jax.lax.dot(a, x.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
            return y * 0.1, None

        return jax.lax.scan(step, x, None, length=4)[0]

    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.integers(-4, 5, (32, 32)), jnp.bfloat16)
    x = jnp.asarray(rng.uniform(-1, 1, (32, 32)), jnp.float32)
    graph = build_graph(compile_with(fn, (a, x)).modules[0])
    native = next(i for i, u in enumerate(graph.units) if u.kind is UnitKind.NATIVE)
    (loop,) = [i for i, op in enumerate(graph.ops) if op.name == "while"]
    assert not graph.regional[loop]
    assert graph.masks.unit[loop, native]
    wanted, results = run_program(fn, (a, x), NAME)
    for got in results:
        # The next step rounds to bfloat16, which amplifies differences of the sums.
        assert compare_outputs(wanted, got, slack=200.0).equal
