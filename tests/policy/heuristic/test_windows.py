"""Overlapping windows: what they cost in which form, and what the heuristic makes of them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import Captured, capture, nodes, normal

from graphopt.costs.windows import WindowCosts, window_costs
from graphopt.hlo import rewrite
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import heuristic, heuristic_steps

SHIFTED = CODE["window-doubling"]


def sums(*size: int) -> Callable[[jax.Array], jax.Array]:
    """Sums over windows of a size, the edges padded."""

    def fn(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, np.float32(0), lax.add, size, (1,) * len(size), "SAME")

    return fn


def windows_of(fn: Callable[[jax.Array], jax.Array], *shape: int) -> tuple[Captured, list[int]]:
    found = capture(fn, normal(*shape))
    return found, nodes(found.graph, "reduce-window")


def costs_of(fn: Callable[[jax.Array], jax.Array], *shape: int) -> WindowCosts:
    found, (node,) = windows_of(fn, *shape)
    return window_costs(found.graph, node)


def test_large_windows_are_shifted_and_small_ones_and_short_rows_are_not():
    large = costs_of(sums(7, 7), 96, 96)
    assert large.is_shifted and large.is_shifted_in_loops
    assert large.native_ns < 0.5 * large.plain_ns
    small = costs_of(sums(2, 2), 96, 96)
    assert not small.is_shifted and small.native_ns == small.plain_ns
    assert not costs_of(sums(7, 7), 96, 24).is_shifted
    assert costs_of(sums(7, 7, 1), 96, 96, 24).is_shifted


def test_cumulative_sums_keep_their_order():
    found, windows = windows_of(lambda x: jnp.cumsum(x, axis=0), 4096, 80)
    assert found.graph.masks.restructure[windows, SHIFTED].all()
    assert not any(window_costs(found.graph, node).is_shifted for node in windows)


@pytest.mark.parametrize(("rows", "kind"), [(40, UnitKind.NATIVE), (2000, UnitKind.LOOP)])
def test_short_windows_become_native_and_long_ones_stay_in_loop_kernels(rows, kind):
    found, (node,) = windows_of(sums(7, 7), rows, 128)
    decisions = heuristic_steps(found.graph, ["small runs"])
    assert found.graph.units[decisions.unit[node]].kind is kind
    assert decisions.restructure[node] == SHIFTED


def test_what_saves_too_little_of_the_program_stays():
    def beside_a_product(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        wide = jnp.tile(x, (20, 20))
        return sums(3, 3)(x), wide @ wide.T

    found, (node,) = windows_of(beside_a_product, 80, 128)
    decisions = heuristic_steps(found.graph, ["small runs"])
    assert decisions.unit[node] == found.graph.default.unit[node]
    assert not decisions.restructure[node]
    alone, (node,) = windows_of(sums(3, 3), 80, 128)
    decisions = heuristic_steps(alone.graph, ["small runs"])
    assert decisions.unit[node] != alone.graph.default.unit[node]


def test_a_filter_in_the_heuristics_form_gives_the_same():
    def erode_and_blur(x: jax.Array) -> jax.Array:
        low = lax.reduce_window(x, np.float32(np.inf), lax.min, (5, 5), (1, 1), "SAME")
        return lax.reduce_window(low, np.float32(0), lax.add, (7, 7), (1, 1), "SAME") / 49.0

    found, windows = windows_of(erode_and_blur, 120, 100)
    decisions = heuristic(found.graph)
    assert decisions is not None
    assert (decisions.restructure[windows] == SHIFTED).all()
    result = rewrite(found.graph, decisions)
    assert compare_outputs(found.result, found.compile(result.data)()).equal
