"""Products by the kernel library never read a broadcast inside their cluster."""

from __future__ import annotations

import pytest
from jax import lax
from support.captures import capture, node, normal

from graphopt.hlo import rewrite
from graphopt.measure import compare_outputs


def rows(v, shape):
    return lax.broadcast_in_dim(v, shape, (0,))


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, v: a @ rows(v * 2, (16, 64)),
        lambda a, v: a @ lax.broadcast_in_dim(v[0] * 2, (16, 64), ()),
        lambda a, v: a @ rows(v * 2, (16, 8, 8)).reshape(16, 64),
        lambda a, v: a @ (rows(v * 2, (16, 64)) * rows(v, (16, 64)) + rows(a[0], (16, 64))),
        lambda a, v: rows(v * 2, (16, 16)) @ a,
        lambda a, v: lax.broadcast_in_dim(v * 2, (64, 16), (1,)) @ a,
    ],
)
def test_a_product_of_a_broadcast_is_that_of_its_elements(fn):
    """XLA's library reads beyond a row that a right operand repeats."""
    program = capture(fn, normal(16, 16), normal(16))
    graph = program.graph
    decisions = graph.default.copy()
    decisions.fuse[graph.masks.fuse[:, 1]] = True
    assert not decisions.fuse[node(graph, "dot")]
    result = program.compile(rewrite(graph, decisions).data)()
    assert compare_outputs(program.result, result).equal
