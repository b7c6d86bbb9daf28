"""Kernels that overwrite what others read: what they may compute themselves, and what is written before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import Captured, capture, node, nodes, normal
from support.rewriting import checked, fused_where_legal

from graphopt.hlo.plan.clusters import form_clusters
from graphopt.hlo.plan.overwritten import Overwritten

RULE = "in-place-order"


def around(x: jax.Array) -> jax.Array:
    return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]


def diffused(x: jax.Array) -> jax.Array:
    return x.at[1:-1, 1:-1].add(0.1 * (around(x) - 4 * x[1:-1, 1:-1]))


def in_a_loop(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: diffused(y), x)


def two_fields(x: jax.Array) -> Any:
    """Each is updated from the other: what the second reads is what the first has become."""

    def step(_: Any, fields: Any) -> Any:
        e, h = fields
        e = e.at[1:].add(0.3 * (h[1:] - h[:-1]))
        return e, h.at[:-1].add(jnp.tanh(e[1:] - e[:-1]))

    return jax.lax.fori_loop(0, 3, step, (x, jnp.roll(x, 1)))


def turned(x: jax.Array) -> jax.Array:
    """Reads in another order what it overwrites."""

    def step(_: Any, y: jax.Array) -> jax.Array:
        return y.at[1:-1].set(jnp.tanh(y[1:-1][::-1]) + y[2:] * y[:-2])

    return jax.lax.fori_loop(0, 3, step, x)


def carried(x: jax.Array) -> Any:
    """What the loop carries is overwritten by a kernel that is no update."""

    def step(y: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        late = jnp.sin(y[::-1])
        return y * 0.5 + late, late.sum()

    return jax.lax.scan(step, x, length=3)


PROGRAMS: dict[str, Captured] = {}


def program_of(fn: Any) -> Captured:
    if fn.__name__ not in PROGRAMS:
        PROGRAMS[fn.__name__] = capture(fn, normal(12, 12))
    return PROGRAMS[fn.__name__]


@pytest.mark.parametrize("fn", [in_a_loop, turned])
def test_what_a_kernel_overwrites_it_reads_only_as_xla_made_it(fn):
    program = program_of(fn)
    rewritten = checked(program, fused_where_legal(program.graph))
    assert rewritten.overrides[RULE] > 0


@pytest.mark.parametrize("fn", [diffused, two_fields, carried])
def test_all_that_may_be_fused(fn):
    program = program_of(fn)
    checked(program, fused_where_legal(program.graph))


def test_a_value_computed_before_reads_where_the_kernel_behind_it_writes():
    program = program_of(in_a_loop)
    graph = program.graph
    slices = nodes(graph, "slice")
    outside = [n for n in slices if not graph.default.fuse[n]]
    assert outside, "XLA copies the neighbours"
    value = graph.operand_lists[node(graph, "dynamic-update-slice")][1]
    decisions = fused_where_legal(graph)
    decisions.fuse[value] = False
    rewritten = checked(program, decisions)
    assert RULE not in rewritten.overrides
    assert set(slices) <= set(form_clusters(graph, decisions).clusters[value].nodes)


def test_without_the_rule_the_kernel_would_read_what_it_has_written(monkeypatch):
    program = program_of(turned)
    monkeypatch.setattr(Overwritten, "keeps_out", lambda self, root, node: False)
    with pytest.raises(AssertionError):
        checked(program, fused_where_legal(program.graph))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    fn=st.sampled_from([diffused, in_a_loop, two_fields, turned, carried]),
    seed=st.integers(0, 2**32 - 1),
    change=st.sampled_from([0.1, 0.3, 0.6]),
)
def test_any_legal_decisions_beside_fused_readers_compute_the_same(fn, seed, change):
    program = program_of(fn)
    graph = program.graph
    rng = np.random.default_rng(seed)
    checked(program, graph.masks.sample(rng, fused_where_legal(graph), change))
