"""Kernels of a decision vector: equal kernels share a key, others do not, and a profile knows them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import capture, captured, normal

from graphopt.hlo import build_graph, rewrite, settle
from graphopt.hlo.module.repeat import repeat_module
from graphopt.measure.bank.kernels import COUNT, FEATURES, combine, kernel_keys
from graphopt.measure.bank.profile import profile
from graphopt.measure.compiling.stub import StubCompiler

NAMES = ("knapsack", "momentum_train", "layernorm", "stack_machine")
INDEX = {name: i for i, (name, _) in enumerate(FEATURES)}


def keys(graph, decisions=None) -> list[str]:
    return sorted(k.key for k in kernel_keys(graph, decisions or graph.default).values())


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32 - 1))
def test_any_legal_decisions_have_kernels_with_finite_features(name, seed):
    graph = captured(name).graph
    decisions = graph.masks.sample(np.random.default_rng(seed), graph.default, 0.3)
    kernels = kernel_keys(graph, decisions)
    assert kernels
    settled, _ = settle(graph, decisions)
    for item, kernel in kernels.items():
        assert 0 <= item < len(settled)
        assert len(kernel.features) == COUNT == len(FEATURES)
        assert np.isfinite(kernel.features).all() and min(kernel.features) >= 0
    assert kernel_keys(graph, decisions) == kernels


@pytest.mark.parametrize("name", ["knapsack", "momentum_train", "stack_machine"])
def test_names_and_places_do_not_count(name):
    """Each kernel of a module that holds a program three times is one of the program's."""
    graph = captured(name).graph
    tripled = build_graph(repeat_module(captured(name).data, 3))
    assert set(keys(tripled)) == set(keys(graph))


def test_equal_kernels_of_different_programs_share_their_key():
    def shared(x):
        return jnp.tanh(x) * 2 + jnp.sin(x)

    one = capture(lambda x: (jnp.sort(shared(x)),), normal(100)).graph
    two = capture(lambda x: (jnp.cumsum(jnp.sort(shared(x))),), normal(100)).graph
    assert set(keys(one)) <= set(keys(two))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: jnp.sort(jnp.tanh(x) * 3 + jnp.sin(x)),
        lambda x: jnp.sort(jnp.tanh(x) * 2 - jnp.sin(x)),
        lambda x: jnp.sort(jnp.sin(x) - jnp.tanh(x) * 2),
    ],
    ids=["constant", "operation", "order"],
)
def test_another_body_is_another_key(other):
    base = capture(lambda x: jnp.sort(jnp.tanh(x) * 2 + jnp.sin(x)), normal(100)).graph
    changed = capture(other, normal(100)).graph
    assert set(keys(base)) != set(keys(changed))


def test_another_shape_or_unit_is_another_key():
    def fn(x):
        return jnp.tanh(x) * 2 + jnp.sin(x)

    small, large = capture(fn, normal(1000)).graph, capture(fn, normal(200_000)).graph
    assert not set(keys(small)) & set(keys(large))
    (root,) = np.flatnonzero(~large.default.fuse & (large.masks.unit.sum(axis=1) > 1))[-1:]
    seen = set()
    for unit in np.flatnonzero(large.masks.unit[root]):
        decisions = large.default.copy()
        decisions.unit[root] = unit
        seen.add(tuple(keys(large, decisions)))
    assert len(seen) == large.masks.unit[root].sum()


def test_features_add_up():
    graph = capture(lambda x: jnp.tanh(x) * 2 + jnp.sin(x), normal(1000)).graph
    (kernel,) = kernel_keys(graph, graph.default).values()
    values = dict(zip(INDEX, kernel.features, strict=True))
    assert values["bytes_in"] == pytest.approx(np.log1p(4000))
    assert values["bytes_out"] == pytest.approx(np.log1p(4000))
    assert values["elements"] == pytest.approx(np.log1p(1000))
    assert (values["operands"], values["outputs"]) == pytest.approx((np.log1p(1), np.log1p(1)))
    assert (values["rank"], values["item_bytes"], values["native"]) == (1, 4, 0)
    assert np.expm1(values["transcendental"]) > 2000


def test_a_region_adds_its_parts_by_executions():
    one = np.zeros(COUNT)
    one[INDEX["work"]], one[INDEX["rank"]] = np.log1p(10), 2
    two = np.zeros(COUNT)
    two[INDEX["work"]], two[INDEX["threads"]] = np.log1p(5), 4
    both = combine([(one, 1.0), (two, 100.0)])
    assert both[INDEX["work"]] == pytest.approx(np.log1p(10 + 500))
    assert both[INDEX["rank"]] == 2
    assert (both[INDEX["native"]], both[INDEX["threads"]]) == (1, 1)


def test_a_profile_counts_what_runs():
    """Fifty steps of a loop: what its body holds runs fifty times per run."""

    def fn(x):
        def step(state, _):
            return jnp.sort(jnp.sin(state) + 1.0), None

        return jax.lax.scan(step, x, None, length=50)[0]

    program = capture(fn, normal(4096))
    result = rewrite(program.graph, program.graph.default)
    run = StubCompiler(program.data, [np.asarray(program.args[0])]).compile(result.data)
    times = profile(run, result.items, runs=3)
    sorts = [n for n, item in result.items.items() if program.graph.ops[item].name == "sort"]
    (name,) = [n for n in sorts if n in times]
    assert times[name].executions == 50
    assert times[name].ns >= 1
    assert profile(run, ["no such instruction"], runs=1) == {}
