"""Small sorts by counting are XLA's stable sorts, bit for bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.restructured import run_program

from graphopt.hlo import build_graph
from graphopt.hlo.restructure import CODE
from graphopt.measure import compile_with


def check(fn: Any, *args: Any) -> None:
    wanted, results = run_program(fn, args, "rank-sort")
    for got in results:
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data(),
    st.sampled_from(["float32", "bfloat16", "int32", "uint8", "bool"]),
)  # fmt: skip
def test_keys_and_payload(dims, data, dtype):
    axis = data.draw(st.integers(0, len(dims) - 1))
    dims[axis] = data.draw(st.integers(2, 16))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    keys = jnp.asarray(rng.integers(0, 4, dims), dtype)
    payload = rng.standard_normal(dims).astype(np.float32)
    check(lambda k, p: jax.lax.sort((k, p), dimension=axis, num_keys=1), keys, payload)


def test_order_of_special_numbers():
    x = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0, -np.nan, -0.0], np.float32)
    check(lambda x: (jnp.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True)), x)


def test_two_keys_in_a_loop():
    def fn(a: jax.Array, b: jax.Array) -> Any:
        def step(state: Any, shift: jax.Array) -> Any:
            a, b = state
            a, b = jax.lax.sort(((a * 5 + shift) % 7, b), num_keys=2)
            return (a, b), jnp.argsort(b)

        return jax.lax.scan(step, (a, b), jnp.arange(4))

    rng = np.random.default_rng(0)
    check(fn, rng.integers(0, 5, 12).astype(np.int32), rng.standard_normal(12).astype(np.float32))


@pytest.mark.parametrize(("size", "stable", "rule"), [(400, True, "sort-size"),
                                                      (8, False, "sort-unstable")])  # fmt: skip
def test_what_is_left(size, stable, rule):
    def fn(x: jax.Array, y: jax.Array) -> Any:
        return jax.lax.sort((x, y), is_stable=stable, num_keys=1)

    x = np.arange(size, dtype=np.float32)
    graph = build_graph(compile_with(fn, (x, x)).modules[0])
    (sort,) = [i for i, op in enumerate(graph.ops) if op.name == "sort"]
    assert graph.masks.why_not(sort, "restructure", CODE["rank-sort"]) == rule
