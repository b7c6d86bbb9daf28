"""The step 'small runs': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from support.captures import capture, normal
from support.loops import kernel_by_kernel
from support.stepping import check_acts, edit_of, fields_of, loop

from graphopt.machine import decide_with
from graphopt.machine.cost_rows import DEFAULT
from graphopt.policy.heuristic import small_runs
from graphopt.policy.heuristic.small_runs import Limits

NAME = "small runs"


def chain(x):
    """Many small kernels, one after the other."""
    total = jnp.zeros((4, 4))
    for i in range(40):
        total = total.at[i % 4].set(jnp.tanh(total @ x[i % 4]))
    return total


def test_small_kernels_become_regions():
    edit = check_acts(NAME, chain, normal(4, 4))
    assert "unit" in fields_of(edit) and edit.saved_ns > 0


def test_what_is_inside_a_native_loop_is_left_alone():
    assert edit_of(NAME, loop, normal(64), after=("native loops",)) is None


def test_one_kernel_is_no_run():
    assert edit_of(NAME, jnp.tanh, normal(64, 64)) is None


def test_what_python_unrolled_is_left_alone_where_it_would_compile_many_times_as_long():
    def transport(cost):
        rows, columns = jnp.zeros(40), jnp.zeros(40)
        for _ in range(30):
            rows = -logsumexp(cost + columns[None], axis=1)
            columns = -logsumexp(cost + rows[:, None], axis=0)
        return rows, columns

    assert edit_of(NAME, transport, normal(40, 40)) is None


def test_products_whose_code_is_too_much_are_left_out():
    def decoded(x, layers, last):
        def step(_, x):
            for layer in layers:
                x = jnp.tanh(jnp.cumsum(x[::-1])[::-1] * 0.01) @ layer
            return x + (jnp.resize(x, len(last)) @ last)[: len(x)]

        return lax.fori_loop(0, 64, step, x)

    args = normal(128), normal(8, 128, 128), normal(512, 512)
    edit = check_acts(NAME, decoded, *args)
    graph = kernel_by_kernel(capture(decoded, *args)).graph
    nodes = [node for change in edit.changes if change.field == "unit" for node in change.nodes]
    assert len(nodes) > 8 and not any(graph.ops[node].name == "dot" for node in nodes)


def chains_beside_tiny_ones(x, y):
    """Tiny kernels, and among them some with long chains of operations."""
    for _ in range(4):
        x = jnp.flip(jnp.cumsum(x) * 0.5, 0)
        for k in range(20):
            y = jnp.where(y > 0.1 * k, y * 0.9 + x[0], y - 0.3)
        y = y[::-1] * jnp.sum(y)
    return x, y


def test_tiny_kernels_become_native_where_all_short_ones_compile_too_long(monkeypatch):
    def changed(earned_runs: float) -> int:
        limits = Limits(min_saved_share=1e-9, costly_share=1e-9, earned_runs=earned_runs)
        monkeypatch.setattr(small_runs, "LIMITS", limits)
        edit = edit_of(NAME, chains_beside_tiny_ones, normal(8), normal(1500))
        return edit.nodes if edit else 0

    with decide_with(DEFAULT):
        assert changed(30_000.0) == 0
        assert 0 < changed(100_000.0) < changed(150_000.0)
