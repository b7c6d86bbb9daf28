"""The step 'packed functions': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from support.captures import capture, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.steps import heuristic_steps

NAME = "packed functions"


def simulation(state):
    """A loop of 200 steps over scalars."""

    def step(state, _):
        return [jnp.exp(x * 0.3 - 0.1 * i) for i, x in enumerate(state)], None

    return jax.lax.scan(step, state, None, length=200)[0]


def arguments(count):
    """A state of so many scalars."""
    return ([np.float32(0.01 * i) for i in range(count)],)


def test_many_scalar_functions_are_computed_together():
    edit = check_acts(NAME, simulation, *arguments(30), after=("native loops",))
    assert "restructure" in fields_of(edit) and edit.saved_ns > 0


def test_three_are_too_few():
    assert edit_of(NAME, simulation, *arguments(3), after=("native loops",)) is None


def test_kernels_outside_native_code_stay():
    def once(state):
        return [jnp.log1p(x * 0.3) for x in state]

    assert edit_of(NAME, once, [np.full(4, 0.1 * i, np.float32) for i in range(30)]) is None


def test_what_a_packed_function_reads_stays_in_native_code():
    def layers(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight + 0.5)
        return x

    graph = capture(layers, [normal(16, 16) for _ in range(8)], normal(4, 16)).graph
    before = heuristic_steps(graph, ("small runs",))
    after = heuristic_steps(graph, ("small runs", NAME))
    native = unit_index(graph.units, UnitKind.NATIVE)
    roots = ~after.fuse & before.fuse & graph.masks.unit[:, native]
    assert (after.restructure == CODE["pack"]).any() and roots.any()
    assert (after.unit[roots] == native).all()
