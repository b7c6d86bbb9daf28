"""Overlapping windows: what they cost in which form, and what the heuristic makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.captures import Captured, capture, nodes, normal

from graphopt.costs.windows import KEEP, RUNNING, SHIFTED, WindowCosts, window_costs
from graphopt.hlo import rewrite
from graphopt.hlo.restructure import CODE
from graphopt.machine import CpuCosts, UnitKind, decide_with
from graphopt.machine.cost_rows import DEFAULT, QUICK_CALLS
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import heuristic, heuristic_steps

MASKED = QUICK_CALLS
"""Costs of machines whose vector instructions have masks."""


def sums(*size: int) -> Callable[[jax.Array], jax.Array]:
    """Sums over windows of a size, the edges padded."""

    def fn(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, np.float32(0), lax.add, size, (1,) * len(size), "SAME")

    return fn


def windows_of(fn: Callable[[jax.Array], jax.Array], *shape: int) -> tuple[Captured, list[int]]:
    found = capture(fn, normal(*shape))
    return found, nodes(found.graph, "reduce-window")


def costs_of(
    fn: Callable[[jax.Array], jax.Array], *shape: int, costs: CpuCosts = MASKED
) -> WindowCosts:
    found, (node,) = windows_of(fn, *shape)
    return window_costs(found.graph, node, costs)


def test_with_masked_vectors_large_windows_are_shifted_and_small_ones_and_short_rows_are_not():
    large = costs_of(sums(7, 7), 96, 96)
    assert large.native_form == SHIFTED and large.is_shifted_in_loops
    assert 1.5 * large.native_ns < large.plain_ns
    small = costs_of(sums(2, 2), 96, 96)
    assert small.native_form == KEEP and small.native_ns == small.plain_ns
    assert costs_of(sums(3, 3), 96, 96).native_form == KEEP
    assert costs_of(sums(7, 7), 96, 3).native_form == KEEP
    assert costs_of(sums(7, 7, 1), 96, 96, 24).native_form == SHIFTED


def test_without_masks_small_windows_are_shifted_too_and_rows_of_few_elements_stay():
    for window in (sums(3, 3), sums(1, 5), sums(7, 7)):
        costs = costs_of(window, 64, 64, costs=DEFAULT)
        assert costs.native_form == SHIFTED and costs.is_shifted_in_loops
    large = costs_of(sums(7, 7), 96, 96, costs=DEFAULT)
    assert large.native_ns < 0.5 * large.plain_ns
    assert costs_of(sums(1, 4), 100, 4, costs=DEFAULT).native_form == KEEP


def cumulative(op: str, **options: Any) -> Callable[[jax.Array], jax.Array]:
    return lambda x: getattr(lax, op)(x, axis=1, **options)


def test_cumulative_operations_along_short_rows_run_over_them():
    assert costs_of(cumulative("cumsum"), 40, 16, costs=DEFAULT).native_form == RUNNING
    assert costs_of(cumulative("cummin"), 40, 16, costs=DEFAULT).native_form == RUNNING
    assert costs_of(cumulative("cumsum"), 40, 4, costs=DEFAULT).native_form == KEEP
    assert costs_of(cumulative("cumsum"), 40, 16, costs=MASKED).native_form == KEEP


@pytest.mark.parametrize("costs", [DEFAULT, MASKED])
def test_cumulative_sums_keep_their_order(costs):
    found, windows = windows_of(lambda x: jnp.cumsum(x, axis=0), 4096, 80)
    assert found.graph.masks.restructure[windows, CODE[SHIFTED]].all()
    for node in windows:
        known = window_costs(found.graph, node, costs)
        assert known.native_form != SHIFTED and not known.is_shifted_in_loops


def test_a_cumulative_sum_in_a_native_loop_is_a_loop_and_gives_the_same_bits():
    def resample(x: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            x = jnp.cumsum(x, axis=1) / 16
            return x, x.max()

        return lax.scan(step, x, None, length=50)

    found, windows = windows_of(resample, 40, 16)
    with decide_with(DEFAULT):
        decisions = heuristic(found.graph)
    assert decisions is not None
    assert CODE[RUNNING] in decisions.restructure[windows]
    for a, b in zip(
        found.result, found.compile(rewrite(found.graph, decisions).data)(), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("rows", "kind"), [(40, UnitKind.NATIVE), (2000, UnitKind.LOOP)])
def test_short_windows_become_native_and_long_ones_stay_in_loop_kernels(rows, kind):
    found, (node,) = windows_of(sums(7, 7), rows, 128)
    decisions = heuristic_steps(found.graph, ["small runs"])
    assert found.graph.units[decisions.unit[node]].kind is kind
    assert decisions.restructure[node] == CODE[SHIFTED]


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
    assert (decisions.restructure[windows] == CODE[SHIFTED]).all()
    result = rewrite(found.graph, decisions)
    assert compare_outputs(found.result, found.compile(result.data)()).equal


@pytest.mark.parametrize("costs", [DEFAULT, MASKED])
def test_windows_that_the_library_sums_stay_there(costs):
    def sums_of_squares(x: jax.Array) -> jax.Array:
        apart = (1, 32, 32)
        return lax.reduce_window(x * x, np.float32(0), lax.add, apart, apart, "VALID")

    found, (node,) = windows_of(sums_of_squares, 256, 64, 64)
    assert found.graph.units[found.graph.default.unit[node]].kind is UnitKind.LIBRARY
    with decide_with(costs):
        decisions = heuristic_steps(found.graph, ("small runs",))
    assert decisions.unit[node] == found.graph.default.unit[node]


def test_with_masks_what_an_element_costs_depends_on_the_window():
    line, small, large = (
        costs_of(sums(*size), 96, 96).plain_ns / elements
        for size, elements in (((1, 9), 9), ((4, 4), 16), ((5, 5), 25))
    )
    assert small < line < large

    def highest(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, np.float32(-np.inf), lax.max, (5, 5), (1, 1), "SAME")

    assert costs_of(highest, 96, 96).plain_ns > costs_of(sums(5, 5), 96, 96).plain_ns
