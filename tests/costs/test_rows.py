"""Rows that are no vector code: what they cost beside those that are."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from support.captures import capture, normal

from graphopt.costs.model import CostModel
from graphopt.costs.rows import narrow_places_extra, odd_rows_ns
from graphopt.hlo.graph.walks import fused_into
from graphopt.machine import own_costs


@pytest.mark.parametrize(
    ("shape", "axis", "longer"),
    [
        ((16, 12, 12), 1, True),
        ((16, 12, 12), 2, False),
        ((16, 12, 16), 1, False),
        ((12, 8), 0, True),
    ],
)
def test_places_along_narrow_columns_take_longer_in_native_code(shape, axis, longer):
    def fn(x):
        return jax.lax.fori_loop(
            0, 9, lambda _, x: x + jnp.argmax(x, axis, keepdims=True) * 1e-3, x
        )

    graph = capture(fn, normal(*shape)).graph
    extra = narrow_places_extra(graph, own_costs())
    assert bool(extra) is longer
    loop = next(node for node, op in enumerate(graph.ops) if op.name == "while")
    none = replace(own_costs(), narrow_complex_ns=1e-9)
    lost = [CostModel(graph, costs).outside(loop).lost_ns for costs in (own_costs(), none)]
    assert lost[0] - lost[1] == pytest.approx(9 * sum(extra.values()))


def test_rows_that_each_read_a_number_stay_rows():
    """Those of 32 elements are scalar code; of 8 they are interleaved, of 64 vectors."""
    costs, found = own_costs(), []
    for width in (8, 32, 64):
        graph = capture(lambda x, b: jnp.tanh(x - b), normal(256, width), normal(256, 1)).graph
        root = next(n for n, op in enumerate(graph.ops) if op.name == "tanh")
        found.append(odd_rows_ns(graph, root, fused_into(graph, graph.default.fuse, root), costs))
    assert found[1] > 0.0 and found[0] == found[2] == 0.0


@pytest.mark.parametrize("shape", [(256, 32), (32,)])
def test_rows_of_whole_arrays_and_of_repeated_ones_become_one(shape):
    graph = capture(lambda x, y: jnp.tanh(x - y), normal(256, 32), normal(*shape)).graph
    root = next(n for n, op in enumerate(graph.ops) if op.name == "tanh")
    assert odd_rows_ns(graph, root, fused_into(graph, graph.default.fuse, root), own_costs()) == 0
