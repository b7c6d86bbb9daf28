"""Loops unrolled by a factor compute what they did, tables in place and swapped values included."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import capture
from support.restructured import everywhere, run_program

from graphopt.hlo import Graph
from graphopt.hlo.replace.apply import apply_restructures
from graphopt.hlo.restructure import CODE
from graphopt.measure import compare_outputs

NAME = "unroll-by-4"


def agree(fn: Any, *args: Any) -> None:
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def rules(fn: Any, *args: Any) -> set[str]:
    """Rules that forbid unrolling the loops of a program; empty where one may be."""
    graph = capture(fn, *args).graph
    column = graph.masks.restructure_rule[:, CODE[NAME]]
    loops = [node for node, op in enumerate(graph.ops) if op.name == "while"]
    return {graph.masks.rules[column[node]] for node in loops if column[node] >= 0}


def scan(trips: int) -> Any:
    def fn(x: jax.Array, a: jax.Array) -> Any:
        def step(carry: Any, t: jax.Array) -> Any:
            x, y = carry
            return (jnp.tanh(a @ y) + 0.1 * x, x + t), (x * y).sum()

        return jax.lax.scan(step, (x, 2.0 * x), jnp.arange(float(trips)))

    return fn


ARGS = (np.linspace(0, 1, 6).astype(np.float32), np.eye(6, dtype=np.float32))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_carried_values(data):
    """Values that are kept, swapped, changed, or written in place and read on either side of that."""
    count = data.draw(st.integers(2, 4))
    moves = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["keep", "swap", "change", "write", "write late"]),
                st.integers(0, count - 1),
            ),
            min_size=1,
            max_size=5,
        )
    )
    trips = 4 * data.draw(st.integers(2, 5))

    def fn(arrays: Any) -> Any:
        def step(i: jax.Array, state: Any) -> Any:
            state = list(state)
            for move, k in [*moves, ("change", 0)]:
                other = (k + 1) % count
                if move == "swap":
                    state[k], state[other] = state[other], state[k]
                elif move == "change":
                    state[k] = state[k] * 3 + state[other] // 2
                elif move == "write":
                    state[k] = state[k].at[i % 7].set(state[other][(i + 1) % 7] + i)
                elif move == "write late":
                    read = state[k].sum()
                    state[k] = state[k].at[i % 5].add(state[other][0] - 1)
                    state[other] = state[other] + read
            return state

        return jax.lax.fori_loop(0, trips, step, arrays)

    arrays = [np.arange(7, dtype=np.int32) * (k + 1) for k in range(count)]
    wanted, results = run_program(fn, (arrays,), NAME)
    for got in results:
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_scan_with_outputs_and_a_product():
    agree(scan(12), *ARGS)


def test_inner_loops_and_branches_get_computations_of_their_own():
    def fn(x: jax.Array, n: jax.Array) -> Any:
        def step(x: jax.Array, i: jax.Array) -> Any:
            x = jax.lax.fori_loop(0, n, lambda _, y: y * 0.9 + i, x)
            x = jax.lax.cond(i > 3, jnp.sin, lambda y: jnp.sort(y) * 0.5, x)
            return x, x.max()

        return jax.lax.scan(step, x, jnp.arange(8.0))

    agree(fn, np.linspace(-1, 1, 9).astype(np.float32), np.int32(3))


def replaced(trips: int) -> tuple[Graph, Any]:
    graph = capture(scan(trips), *ARGS).graph
    return graph, apply_restructures(graph, everywhere(graph, NAME).restructure)


def test_a_quarter_of_the_iterations_and_every_operation_four_times():
    graph, after = replaced(16)
    assert {c.trip_count for c in after.graph.computations} == {None, 4}
    functions = [n for n, op in enumerate(graph.ops) if op.name == "tanh"]
    for node in functions:
        copies = np.flatnonzero(after.origin == node)
        assert len(copies) == 4 and not after.fresh[copies].any()


def test_decisions_of_the_body_hold_in_every_copy():
    graph, after = replaced(16)
    (node,) = [n for n, op in enumerate(graph.ops) if op.name == "tanh"]
    assert graph.default.fuse[node] and graph.masks.fuse[node, 0]
    fuse = graph.default.fuse.copy()
    fuse[node] = False
    carried = after.carry(graph.default.with_changes(fuse=fuse))
    copies = np.flatnonzero(after.origin == node)
    assert after.graph.default.fuse[copies].all()
    assert not carried.fuse[copies].any()


@pytest.mark.parametrize("trips", [4, 6, 10])
def test_other_trip_counts(trips):
    assert rules(scan(trips), *ARGS) == {"unroll-by-trips"}


def test_unknown_trip_counts():
    def fn(x):
        return jax.lax.while_loop(lambda s: s.sum() < 9.0, lambda s: s * 1.5, x)

    assert rules(fn, ARGS[0] + 1) == {"unroll-by-trips"}


def test_long_bodies():
    def fn(x):
        def step(x: jax.Array, _: None) -> Any:
            for k in range(320):
                x = jnp.sin(x) + k
            return x, None

        return jax.lax.scan(step, x, None, length=8)[0]

    assert rules(fn, ARGS[0]) == {"unroll-by-size"}


def test_calls_that_may_have_effects():
    def fn(a):
        def step(a: jax.Array, _: None) -> Any:
            return jnp.linalg.cholesky(a @ a.T + 9.0 * jnp.eye(6)) * 0.1, None

        return jax.lax.scan(step, a, None, length=8)[0]

    assert "unroll-by-body" in rules(fn, ARGS[1])
