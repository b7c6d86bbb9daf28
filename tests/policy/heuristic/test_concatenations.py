"""Which concatenations inside native loops the heuristic writes to memory, and which it fuses."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import Captured, capture, nodes, normal

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, rewrite
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import make_native


def in_native_loop(
    step: Callable[[jax.Array], jax.Array], *shape: int
) -> tuple[Captured, Decisions]:
    """A loop of steps, decided native."""

    def fn(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda _, x: step(x), x)

    found = capture(fn, normal(*shape))
    return found, decide_native(found)


def decide_native(found: Captured) -> Decisions:
    """XLA's decisions, but the only loop native."""
    decisions = found.graph.default.copy()
    (loop,) = nodes(found.graph, "while")
    make_native(Context(found.graph, CostModel(found.graph), decisions), decisions, loop)
    return decisions


def written(found: Captured, decisions: Decisions) -> int:
    """Concatenations that are written to memory and were not by XLA."""
    return int(
        (found.graph.default.fuse & ~decisions.fuse)[nodes(found.graph, "concatenate")].sum()
    )


def skip_unless_fused(found: Captured) -> None:
    """Ends a test about concatenations that XLA fuses where this jaxlib's XLA writes them to memory."""
    if not found.graph.default.fuse[nodes(found.graph, "concatenate")].any():
        pytest.skip("this jaxlib writes concatenations to memory itself")


def test_those_of_values_computed_for_them_are_written_along_rows():
    found, decisions = in_native_loop(
        lambda x: 0.5 * (jnp.roll(jnp.sin(x), 1, axis=1) + jnp.cos(x)), 40, 50
    )
    skip_unless_fused(found)
    assert written(found, decisions) == 1
    result = rewrite(found.graph, decisions)
    assert compare_outputs(found.result, found.compile(result.data)()).equal


def test_those_of_arrays_in_memory_are_fused():
    found, decisions = in_native_loop(lambda x: 0.5 * (jnp.roll(x, 1, axis=1) + jnp.sin(x)), 40, 50)
    assert decisions.fuse[nodes(found.graph, "concatenate")].all()
    result = rewrite(found.graph, decisions)
    assert compare_outputs(found.result, found.compile(result.data)()).equal


@pytest.mark.parametrize("fused", [[True], [True, True], [True, True, False, True]])
def test_chains_of_them_are_fused_two_by_two(fused):
    def fn(x: jax.Array) -> jax.Array:
        def step(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            old, rolled = carry[0], carry[1]
            for index in range(len(fused)):
                rolled = jnp.roll(rolled, 1, axis=index % 3)
            return rolled - old, old  # two buffers: XLA does not ask to write either in place

        return lax.fori_loop(0, 5, step, (x, 0.5 * x))[0]

    found = capture(fn, normal(10, 12, 14))
    decisions = decide_native(found)
    assert decisions.fuse[nodes(found.graph, "concatenate")].tolist() == fused
    result = rewrite(found.graph, decisions)
    assert compare_outputs(found.result, found.compile(result.data)()).equal


def test_those_with_little_arithmetic_around_stay():
    found, decisions = in_native_loop(lambda x: 0.5 * (jnp.roll(0.9 * x, 1, axis=1) + x), 40, 50)
    skip_unless_fused(found)
    assert written(found, decisions) == 0


@pytest.mark.parametrize(("axis", "shape"), [(0, (40, 50)), (1, (4, 6))])
def test_those_of_whole_rows_and_small_ones_stay(axis, shape):
    found, decisions = in_native_loop(
        lambda x: 0.5 * (jnp.roll(jnp.sin(x), 1, axis=axis) + jnp.cos(x)), *shape
    )
    assert np.isin(
        nodes(found.graph, "concatenate"), np.flatnonzero(found.graph.default.fuse)
    ).any()
    assert written(found, decisions) == 0
