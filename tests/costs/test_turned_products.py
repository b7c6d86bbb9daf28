"""Which products are turned in native code, and what a loop that keeps an operand saves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture

from graphopt.costs.products import product_costs
from graphopt.costs.turned_products import TURNED, TurnedForms, kept_operands
from graphopt.hlo import Graph
from graphopt.machine.cost_rows import DEFAULT


def dots(graph: Graph) -> list[int]:
    """All products."""
    return [node for node, op in enumerate(graph.ops) if op.name == "dot"]


def chains(count: int, rows: int, columns: int) -> Graph:
    """A loop of the slopes of a regression for several chains."""

    def fn(x: Any, y: Any, b: Any) -> Any:
        slope = jax.vmap(lambda b: x.T @ (jax.nn.sigmoid(x @ b) - y))
        return jax.lax.fori_loop(0, 50, lambda _, b: b - 0.01 * slope(b), b)

    x, y = np.ones((rows, columns), np.float32), np.ones(rows, np.float32)
    return capture(fn, x, y, np.ones((count, columns), np.float32)).graph


@pytest.mark.parametrize("count, rows, columns", [(4, 200, 10), (8, 200, 12), (2, 50, 4)])
def test_a_few_chains_are_turned(count: int, rows: int, columns: int) -> None:
    graph = chains(count, rows, columns)
    first, last = dots(graph)
    assert set(TurnedForms(graph, DEFAULT).of(first)) == {TURNED}
    assert product_costs(graph, first, DEFAULT).native_form == TURNED
    assert product_costs(graph, last, DEFAULT).native_form in ("dot-rows", "dot-reduce")


def test_many_chains_stay_as_they_are():
    graph = chains(32, 200, 10)
    assert all(TURNED not in TurnedForms(graph, DEFAULT).of(dot) for dot in dots(graph))


def network(keep: bool) -> Graph:
    """A loop of a product by a turned matrix, which the loop keeps or changes."""

    def fn(w: Any, x: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            w, x = state
            return (w if keep else w * 0.99), jnp.tanh(x @ w.T)

        return jax.lax.fori_loop(0, 50, step, (w, x))[1]

    return capture(fn, np.ones((64, 64), np.float32), np.ones((4, 64), np.float32)).graph


def test_an_operand_that_the_loop_keeps_is_rearranged_for_nothing():
    kept, changed = network(keep=True), network(keep=False)
    (dot,), (other,) = dots(kept), dots(changed)
    assert kept_operands(kept)[dot, "dot-blocks"] == {1}
    assert (other, "dot-blocks") not in kept_operands(changed)
    with_it = product_costs(kept, dot, DEFAULT).native_ns
    without = product_costs(changed, other, DEFAULT).blocks_ns
    assert without is not None and with_it < without
    assert without - with_it >= 64 * 64 * DEFAULT.moved_ns - 1.0


def test_products_outside_of_loops_keep_their_forms():
    graph = capture(
        lambda x, w: jnp.tanh(x @ w), np.ones((8, 64), np.float32), np.ones((64, 16), np.float32)
    ).graph
    (dot,) = dots(graph)
    assert not TurnedForms(graph, DEFAULT).of(dot)
