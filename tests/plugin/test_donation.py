"""Programs that donate buffers, where jaxlib keeps them and where it does not."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphopt
from graphopt.hlo.module.index import has_donation, parse
from graphopt.measure import compare_outputs
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.measure.compiling.functions import compile_lowered
from graphopt.outcomes import Outcome
from graphopt.plugin.donation import outweighs_donation

pytestmark = pytest.mark.usefixtures("clean_plugin")


def rollout(state, memory):
    """A short simulator whose states go into a buffer that its caller gives away."""

    def step(carry, _):
        x, v, memory, k = carry
        v = v - 0.1 * jnp.sin(x) - 0.01 * v
        x = x + 0.1 * v
        return (x, v, memory.at[k % 32].set(x), k + 1), jnp.cos(x)

    (x, v, memory, _), seen = jax.lax.scan(step, (state[0], state[1], memory, 0), None, 100)
    return jnp.stack([x, v]), memory, seen.sum()


def arguments():
    # Computed, so that XLA owns the buffers.
    return jnp.linspace(0.1, 1.0, 64).reshape(2, 32) * 1.0, jnp.zeros((32, 32)) + 0.5


def run(policy):
    if policy is not None:
        graphopt.install(policy)
    jax.clear_caches()
    fn = jax.jit(rollout, donate_argnums=(0, 1))
    compiled = fn.lower(*arguments()).compile()
    first = jax.device_get(compiled(*arguments()))
    return first, compiled.memory_analysis().alias_size_in_bytes


def test_a_simulator_with_a_donated_state_is_optimized():
    expected, aliased = run(None)
    found, kept = run("heuristic")
    assert compare_outputs(expected, found).equal
    (record,) = (r for r in graphopt.report().records if r.name == "jit_rollout")
    assert record.outcome is Outcome.REWRITTEN and record.regions
    assert kept == (aliased if own_capabilities().donation else 0)


def test_the_callers_memory_is_never_written():
    """numpy's memory cannot be donated: it stays as it is whatever becomes of the module."""
    state, memory = (np.asarray(a).copy() for a in arguments())
    before = memory.copy()
    graphopt.install("heuristic")
    jax.clear_caches()
    fn = jax.jit(rollout, donate_argnums=(0, 1))
    fn(jnp.asarray(state), jnp.asarray(memory))
    np.testing.assert_array_equal(memory, before)


def large_module():
    fn = jax.jit(lambda x, s: (x - 0.1 * jnp.tanh(s), jnp.sum(s)), donate_argnums=0)
    args = (jnp.ones((1024, 1024)), jnp.ones((1024, 1024)))
    (data,) = compile_lowered(lambda: fn.lower(*args), args).modules
    assert has_donation(parse(data))
    return data


@pytest.mark.parametrize(("saved_ns", "worth"), [(0.0, False), (1e5, False), (1e9, True)])
def test_large_buffers_are_given_up_for_much_only(saved_ns, worth):
    steps = (SimpleNamespace(edit=SimpleNamespace(saved_ns=saved_ns)),)
    assert outweighs_donation(large_module(), SimpleNamespace(steps=steps)) is worth
