"""The step "short loops": rounds of random numbers become one kernel, loops that do more stay."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, normal
from support.loops import kernel_by_kernel
from support.stepping import check_acts_on, edit_of, fields_of

from graphopt.costs.model import CostModel
from graphopt.hlo import RESTRUCTURES
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.steps import decide, heuristic_steps
from graphopt.policy.heuristic.support.chains import chain_at, decided_chains
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import program_ns

NAME = "short loops"


def bits(count: int) -> Any:
    return lambda seed: jax.random.bits(jax.random.PRNGKey(seed), (count,))


@pytest.mark.parametrize("count", [24, 3_000, 70_000])
def test_rounds_of_random_numbers_become_one_kernel(count):
    program = capture(bits(count), np.int32(7))
    if count == 24:  # a native loop over so few numbers is fast as it is
        program = kernel_by_kernel(program)
    edit = check_acts_on(program, NAME)
    assert fields_of(edit) == {"restructure"}
    assert RESTRUCTURES[int(edit.changes[0].values[0])].name == "unroll"


def test_a_loop_that_reads_elsewhere_is_no_chain():
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 5, lambda i, x: jnp.sin(x) * 0.5 + x[::-1], x)

    assert edit_of(NAME, fn, normal(5_000)) is None


def test_a_loop_of_many_iterations_is_no_chain():
    def fn(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 500, lambda i, x: jnp.sin(x) * 0.5, x)

    assert edit_of(NAME, fn, normal(5_000)) is None


def test_a_chain_is_no_native_loop_beside():
    graph = kernel_by_kernel(capture(bits(3_000), np.int32(7))).graph
    decided = heuristic_steps(graph, (NAME, "native loops"))
    kinds = [unit.kind for unit in graph.units]
    (loop,) = np.flatnonzero(decided.restructure == CODE["unroll"]).tolist()
    assert kinds[decided.unit[loop]] is not UnitKind.NATIVE
    assert np.array_equal(decided.unit, graph.default.unit)


def test_the_programs_estimate_counts_chains_as_kernels():
    graph = capture(bits(3_000), np.int32(7)).graph
    model = CostModel(graph)
    before = Context(graph, model, graph.default)
    after = Context(graph, model, decide(graph, (NAME,), model).decisions)
    assert decided_chains(before) == []
    (chain,) = decided_chains(after)
    assert chain == chain_at(before, chain.loop)
    assert program_ns(after) == pytest.approx(program_ns(before) - chain.saved_ns)


def test_large_arrays_are_split_and_small_ones_are_not():
    for count, split in ((3_000, False), (400_000, True)):
        graph = capture(bits(count), np.int32(7)).graph
        context = Context(graph, CostModel(graph), graph.default)
        (loop,) = [node for node, op in enumerate(graph.ops) if op.name == "while"]
        chain = chain_at(context, loop)
        assert chain is not None
        assert (chain.kernel_ns < chain.single_ns) == split
