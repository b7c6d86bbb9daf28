"""Short loops written out compute what they computed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.restructured import everywhere, run_program

from graphopt.hlo import apply_restructures, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.measure import compare_outputs, compile_with

NAME = "unroll"


def test_random_bits_are_the_same():
    """The rounds of the generator are a loop of five; its carried values change places."""

    def fn(seed: jax.Array) -> Any:
        def step(key: jax.Array, _: None) -> Any:
            key, draw = jax.random.split(key)
            return key, (jax.random.bits(draw, (3,)), jax.random.uniform(draw, (7,)))

        return jax.lax.scan(step, jax.random.PRNGKey(seed), None, length=9)

    wanted, results = run_program(fn, (jnp.int32(5),), NAME)
    for got in results:
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("trips", [1, 3, 8])
def test_values_that_rotate_and_values_that_stay(trips):
    def fn(a: jax.Array, b: jax.Array, c: jax.Array) -> Any:
        def step(i: Any, state: Any) -> Any:
            a, b, c = state
            return b, jnp.tanh(a + c) * (i + 1), c

        def outer(x: jax.Array, _: None) -> Any:
            a, b, kept = jax.lax.fori_loop(0, trips, step, (x, b0, c))
            return a + kept, jnp.sum(b)

        b0 = b
        return jax.lax.scan(outer, a, None, length=4)

    rng = np.random.default_rng(0)
    args = [rng.standard_normal(300).astype(np.float32) for _ in range(3)]
    graph = build_graph(compile_with(fn, tuple(args)).modules[0])
    if not graph.masks.restructure[:, CODE[NAME]].any():
        pytest.skip("XLA writes this loop out itself")
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_an_unrolled_loop_is_gone():
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 4, lambda i, x: jnp.sin(x) * 0.5 + x[::-1], x)

    graph = build_graph(compile_with(fn, (np.ones(700, np.float32),)).modules[0])
    after = apply_restructures(graph, everywhere(graph, NAME).restructure)
    assert not any(op.name == "while" for op in after.graph.ops)
    assert sum(op.name == "sine" for op in after.graph.ops) == 4
    assert after.together.any()


def test_what_is_known_before_the_loop_is_computed_while_writing():
    """A table of amounts whose halves change places, and the counter, become constants."""
    table = jnp.arange(1, 9, dtype=jnp.uint32).reshape(2, 4)

    def fn(x: jax.Array) -> Any:
        def step(i: Any, state: Any) -> Any:
            x, here, there = state
            for amount in here:
                x = (x << amount) ^ (x >> (32 - amount)) + i.astype(jnp.uint32)
            return x, there, here

        return jax.lax.fori_loop(0, 4, step, (x, table[0], table[1]))[0]

    x = np.arange(900, dtype=np.uint32) * 77
    graph = build_graph(compile_with(fn, (x,)).modules[0])
    after = apply_restructures(graph, everywhere(graph, NAME).restructure).graph
    assert not {"slice", "convert", "while"} & {op.name for op in after.ops}
    wanted, results = run_program(fn, (x,), NAME)
    for got in results:
        np.testing.assert_array_equal(wanted, got)


@pytest.mark.parametrize(
    ("body", "trips", "rule"),
    [
        (lambda i, x: x.at[i].set(jnp.sin(x[i])), 4, "unroll-body"),
        (lambda i, x: jnp.sin(x) + 0.5 * x[::-1], 50, "unroll-trips"),
    ],
)
def test_what_is_left(body, trips, rule):
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, trips, body, x)

    graph = build_graph(compile_with(fn, (np.ones(700, np.float32),)).modules[0])
    (loop,) = [i for i, op in enumerate(graph.ops) if op.name == "while"]
    assert graph.masks.why_not(loop, "restructure", CODE[NAME]) == rule
