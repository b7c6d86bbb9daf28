"""What the heuristic computes ahead of loops, and what it leaves in them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import MACHINE

from graphopt.hlo import build_graph
from graphopt.hlo.restructure import CODE
from graphopt.measure import compile_with
from graphopt.policy.heuristic.steps import heuristic_steps


def walk(steps: int, walkers: int, carried: bool) -> Any:
    """A random walk whose keys are given, or carried from step to step."""

    def fn(seed: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            x, own = state
            draw = jax.random.normal(own if carried else key, (walkers,))
            own = jax.random.split(own)[0] if carried else own
            return (jnp.tanh(x + draw), own), None

        key = jax.random.PRNGKey(seed)
        keys = jax.random.split(key, steps)
        return jax.lax.scan(step, (jnp.zeros(walkers), key), keys)[0][0]

    return fn


@pytest.mark.parametrize(
    ("steps", "walkers", "carried", "moves"),
    [
        (200, 32, False, True),
        (10, 2, False, False),
        (200, 32, True, False),
    ],
)
def test_random_numbers_are_drawn_ahead_where_that_is_much(
    steps: int, walkers: int, carried: bool, moves: bool
) -> None:
    fn = walk(steps, walkers, carried)
    graph = build_graph(max(compile_with(fn, (jnp.int32(0),)).modules, key=len), MACHINE)
    decisions = heuristic_steps(graph, ("ahead of loops",))
    hoisted = np.flatnonzero(decisions.restructure == CODE["hoist"])
    assert len(hoisted) == int(moves)
    rounds = np.flatnonzero(decisions.restructure == CODE["unroll"])
    assert bool(len(rounds)) == moves
    for node in rounds.tolist():  # they lie in the body of the loop that needs them
        computation = graph.computations[graph.computation[node]]
        assert computation.caller in hoisted.tolist()
