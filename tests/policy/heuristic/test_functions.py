"""Which functions of small arrays the heuristic computes together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import MACHINE

from graphopt.hlo import Graph, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.measure import compile_with
from graphopt.policy.heuristic.steps import heuristic_steps

STEPS = ("native loops", "packed functions")


def simulation(function: Any, count: int, shape: tuple[int, ...]) -> Graph:
    """A loop of 200 steps over `count` arrays."""

    def fn(state: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            return [function(x * 0.3 + 0.1 * i) for i, x in enumerate(state)], None

        return jax.lax.scan(step, state, None, length=200)[0]

    state = [jnp.full(shape, 0.1 * i, jnp.float32) for i in range(count)]
    return build_graph(max(compile_with(fn, (state,)).modules, key=len), MACHINE)


def packed(graph: Graph, steps: tuple[str, ...] = STEPS) -> list[int]:
    decisions = heuristic_steps(graph, steps)
    return np.flatnonzero(decisions.restructure == CODE["pack"]).tolist()


@pytest.mark.parametrize(
    ("function", "count", "shape", "expected"),
    [
        (jnp.exp, 30, (), 30),
        (jnp.tanh, 6, (8,), 6),
        (jnp.exp, 3, (), 0),  # too few: 64 elements are computed
        (jnp.exp, 3, (64,), 0),  # long enough for vector code
        (jnp.exp, 4, (16, 4), 0),  # the loop over the rows is vectorized
        (jnp.sin, 30, (), 0),  # has no vector code
    ],
)
def test_enough_functions_of_small_arrays(function, count, shape, expected):
    assert len(packed(simulation(function, count, shape))) == expected


def test_kernels_outside_native_code_are_left_alone():
    def fn(values: Any) -> Any:
        return [jnp.log1p(value * 0.3) for value in values]

    values = [jnp.full(4, 0.1 * i, jnp.float32) for i in range(30)]
    graph = build_graph(max(compile_with(fn, (values,)).modules, key=len), MACHINE)
    assert not packed(graph, ("packed functions",))
    assert graph.masks.restructure[:, CODE["pack"]].sum() == 30


def test_long_kernels_of_short_rows_are_vector_code_already():
    def long(x: jax.Array) -> jax.Array:
        for _ in range(20):
            x = x * x + 0.3
        return jnp.exp(-jnp.abs(x))

    assert not packed(simulation(long, 6, (16,)))
    assert packed(simulation(jnp.exp, 6, (16,)))


def test_what_a_packed_function_reads_is_in_memory():
    graph = simulation(jnp.exp, 30, ())
    decisions = heuristic_steps(graph, STEPS)
    for node in packed(graph):
        assert not decisions.fuse[node]
        assert not decisions.fuse[graph.operand_lists[node]].any()
