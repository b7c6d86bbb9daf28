"""Which outputs the heuristic computes in one pass over what they read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from support.captures import capture, captured, node, normal

from graphopt.hlo import rewrite
from graphopt.policy.heuristic.steps import heuristic


def test_outputs_of_one_shape_are_computed_in_one_pass():
    found = captured("adam_step")
    decisions = heuristic(found.graph)
    assert (decisions.join & ~found.graph.default.join).any()
    after = rewrite(found.graph, decisions).clusters
    assert after < rewrite(found.graph, found.graph.default).clusters


def test_outputs_that_stay_in_a_cache_are_not_joined():
    def two(x, y):
        return jnp.tanh(x) + y, jnp.tanh(y) * x

    small = capture(two, normal(128, 256), normal(128, 256)).graph
    decisions = heuristic(small) or small.default
    assert not (decisions.join & ~small.default.join).any()
    large = capture(two, normal(512, 1024), normal(512, 1024)).graph
    assert (heuristic(large).join & ~large.default.join).any()


def test_several_smaller_outputs_are_joined_together():
    """Each alone would stay in a cache; all of them do not."""

    def five(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.tanh(x * k) + y for k in range(1, 6))

    found = capture(five, normal(256, 300), normal(256, 300))
    joined = heuristic(found.graph).join & ~found.graph.default.join
    assert joined.sum() == 4


def test_kernels_that_compute_long_are_not_joined():
    def light(x: jax.Array) -> tuple[jax.Array, ...]:
        return x * 2.0, x + 1.0, x - 3.0

    def heavy(x: jax.Array) -> tuple[jax.Array, ...]:
        y = x
        for _ in range(12):
            y = jnp.sin(y) + jnp.tan(y)
        return x * 2.0, x + 1.0, y

    found = capture(heavy, normal(512, 512))
    long = found.graph.operand_lists[node(found.graph, "tuple")][2]
    decisions = heuristic(found.graph)
    assert decisions.join.sum() == 1
    assert not decisions.join[long]
    assert heuristic(capture(light, normal(512, 512)).graph).join.sum() == 2
