"""Short loops written out compute what they computed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.restructured import everywhere, run_program

from graphopt.hlo import apply_restructures, build_graph, settle
from graphopt.hlo.graph.walks import roots_around
from graphopt.hlo.plan.clusters import form_clusters
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
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


# Chains: iterations that go element by element are one kernel.


def kernels_of(fn: Any, *args: Any) -> list[int]:
    """Elements of each kernel on more than one element, after loops were written out."""
    graph = build_graph(compile_with(fn, args).modules[0])
    after, decisions = settle(graph, everywhere(graph, NAME))
    roots = form_clusters(after, decisions).clusters
    return [int(after.elements[root]) for root in roots if after.elements[root] > 1]


@pytest.mark.parametrize("count", [5, 100, 50_000])
def test_rounds_and_what_is_around_them_are_one_kernel(count):
    def fn(seed: jax.Array) -> Any:
        return jax.random.uniform(jax.random.wrap_key_data(seed), (count,), minval=2.0, maxval=3.0)

    key = jnp.asarray([3, 4], jnp.uint32)
    assert kernels_of(fn, key) == [count]
    wanted, results = run_program(fn, (key,), NAME)
    for got in results:
        np.testing.assert_array_equal(wanted, got)


def test_what_several_kernels_read_is_computed_once():
    """The numbers are written to memory: none of their readers draws them again."""

    def fn(seed: jax.Array, x: jax.Array) -> Any:
        draws = jax.random.bits(jax.random.wrap_key_data(seed), (3_000,))
        return jnp.sort(draws), x[draws % 7], (draws >> 3).reshape(30, 100).sum(0)

    args = (jnp.asarray([3, 4], jnp.uint32), jnp.arange(7.0))
    graph = build_graph(compile_with(fn, args).modules[0])
    after, decisions = settle(graph, everywhere(graph, NAME))
    shifts = [i for i, op in enumerate(after.ops) if op.name == "shift-left"]
    assert len(shifts) == 20
    for node in shifts:
        assert len(roots_around(after, decisions.fuse, node)) <= 2  # the two words of the generator
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_kernels_in_native_code_keep_their_place():
    """Old kernels beside a chain follow it only as kernels of their own."""

    def fn(seed: jax.Array) -> Any:
        return jax.random.uniform(jax.random.wrap_key_data(seed), (1_000,))

    key = jnp.asarray([3, 4], jnp.uint32)
    graph = build_graph(compile_with(fn, (key,)).modules[0])
    decisions = everywhere(graph, NAME)
    after = apply_restructures(graph, decisions.restructure)
    assert after.regrouped.any() and not (after.regrouped & after.fresh).any()
    unit = unit_index(graph.units, UnitKind.NATIVE)
    old = np.unique(after.origin[after.regrouped])
    allowed = old[graph.masks.unit[old, unit]]
    assert len(allowed)
    decisions.unit[allowed] = unit
    carried = after.carry(decisions)
    kept = np.isin(after.origin, allowed) & ~after.fresh & after.graph.masks.unit[:, unit]
    assert (carried.unit[kept] == unit).all()
    after.graph.masks.check(carried)


def test_shifts_by_unknown_amounts_are_no_chain():
    """LLVM takes exponentially long for one kernel of twenty such rounds."""

    def fn(x: jax.Array, amounts: jax.Array) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, y = state
            for amount in amounts:
                x = x + y
                y = x ^ ((y << amount) | (y >> (32 - amount)))
            return x, y

        return jax.lax.fori_loop(0, 5, step, (x, x ^ 7))

    args = (jnp.arange(100, dtype=jnp.uint32), jnp.asarray([13, 15, 26, 6], jnp.uint32))
    assert len(kernels_of(fn, *args)) > 5
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        np.testing.assert_array_equal(np.stack(wanted), np.stack(got))


def test_rounds_of_many_keys_are_one_kernel():
    """Keys are arrays of their own then, which every row of numbers reads one of."""

    def fn(keys: jax.Array) -> Any:
        return jax.vmap(lambda key: jax.random.bits(jax.random.wrap_key_data(key), (40,)))(keys)

    keys = jnp.arange(60, dtype=jnp.uint32).reshape(30, 2) * 77
    assert kernels_of(fn, keys).count(30 * 40) == 1
    wanted, results = run_program(fn, (keys,), NAME)
    for got in results:
        np.testing.assert_array_equal(wanted, got)
