"""Computations cut into calls of few kernels: the same kernels, in the same order, with the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import capture, captured, normal, proto_of
from support.loops import with_loops
from support.restructured import everywhere, native

from graphopt.hlo import rewrite
from graphopt.hlo.emit.sequences import is_kernel
from graphopt.hlo.graph.in_place import InPlaceAnalysis, broken_hazards
from graphopt.hlo.module.index import parse
from graphopt.hlo.module.schedule import IN_ORDER_THUNKS
from graphopt.hlo.module.small_calls import is_small_call_proto
from graphopt.machine import UnitKind

NAME = "sequential"


def many(x: jax.Array) -> Any:
    """More kernels than two levels of calls hold, tuples and a loop among them, on f32[80, 24]."""
    rows = [jnp.cumsum(row) * (k + 1.0) for k, row in enumerate(x)]
    order = [jnp.argsort(row) for row in rows[::8]]
    last = jax.lax.fori_loop(0, 3, lambda i, c: (c[1], jnp.sort(c[0] + i)), (rows[0], rows[1]))
    return rows, order, last, jnp.stack(rows).sum(0)


def states(x: jax.Array) -> Any:
    """A loop whose state is many arrays, each of which is read by the next and written in place."""

    def step(i: Any, state: Any) -> Any:
        turned = [jnp.cumsum(row) * 0.1 for row in state]
        return tuple(row.at[i].set(turned[k - 1][0]) for k, row in enumerate(state))

    return jax.lax.fori_loop(0, 5, step, tuple(x))


def thunk_sequences(module: Any) -> Iterator[list[Any]]:
    """Kernels of every computation that XLA runs kernel by kernel."""
    by_id = {c.id: c for c in module.computations}
    waiting, seen = [module.entry_computation_id], set()
    while waiting:
        computation = by_id[waiting.pop()]
        if computation.id in seen:
            continue
        seen.add(computation.id)
        yield [i for i in computation.instructions if is_kernel(i)]
        for instruction in computation.instructions:
            called = instruction.opcode in ("while", "conditional", "call")
            if called and not is_small_call_proto(instruction):
                waiting += instruction.called_computation_ids


def in_order(module: Any, computation_id: int) -> list[str]:
    """Names of the kernels of a computation as they run, calls of sequences entered."""
    computation = next(c for c in module.computations if c.id == computation_id)
    names = []
    for instruction in filter(is_kernel, computation.instructions):
        if instruction.opcode == "call" and not is_small_call_proto(instruction):
            names += in_order(module, instruction.called_computation_ids[0])
        else:
            names.append(instruction.name)
    return names


def equal(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in pairs)


def test_no_sequence_is_longer_than_xla_runs_in_order():
    program = capture(many, normal(80, 24))
    result = rewrite(program.graph, everywhere(program.graph, NAME))
    module = proto_of(result.data)
    lengths = [len(kernels) for kernels in thunk_sequences(module)]
    assert max(lengths) <= IN_ORDER_THUNKS and len(lengths) > IN_ORDER_THUNKS
    assert result.sequences == 1
    assert equal(program.result, program.compile(result.data)())


def test_the_same_kernels_run_in_the_same_order():
    program = capture(many, normal(80, 24))
    before = proto_of(rewrite(program.graph, program.graph.default).data)
    after = proto_of(rewrite(program.graph, everywhere(program.graph, NAME)).data)
    expected = in_order(before, before.entry_computation_id)
    assert len(expected) > IN_ORDER_THUNKS**2
    assert in_order(after, after.entry_computation_id) == expected


def test_every_computation_stands_behind_what_it_calls():
    program = capture(many, normal(80, 24))
    module = proto_of(rewrite(program.graph, everywhere(program.graph, NAME)).data)
    seen: set[int] = set()
    for computation in module.computations:
        for instruction in computation.instructions:
            assert seen.issuperset(instruction.called_computation_ids)
        seen.add(computation.id)
    assert module.computations[-1].id == module.entry_computation_id


def test_elements_are_passed_not_the_state_of_a_loop():
    """Whoever takes the whole state keeps all of its buffers alive."""
    program = capture(states, normal(12, 40))
    module = proto_of(rewrite(program.graph, everywhere(program.graph, NAME)).data)
    calls = [
        (computation, instruction)
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "call" and not is_small_call_proto(instruction)
    ]
    assert calls
    for computation, call in calls:
        by_id = {i.id: i for i in computation.instructions}
        assert not any(by_id[o].shape.tuple_shapes for o in call.operand_ids)


def test_promises_of_in_place_writers_are_kept():
    program = capture(states, normal(12, 40))
    result = rewrite(program.graph, everywhere(program.graph, NAME))
    analysis = InPlaceAnalysis(parse(result.data))
    assert any(analysis.hazards.values()) and not broken_hazards(analysis)
    assert equal(program.result, program.compile(result.data)())


def test_native_code_is_not_cut():
    program = capture(states, normal(12, 40))
    graph = program.graph
    assert rewrite(graph, everywhere(graph, NAME)).sequences
    result = rewrite(graph, native(graph, everywhere(graph, NAME)))
    assert result.regions and not result.sequences
    alone = rewrite(graph, native(graph, graph.default))
    assert equal(program.compile(alone.data)(), program.compile(result.data)())


@pytest.mark.parametrize(
    "name",
    "fibonacci twin_carry shared_zeros knapsack viterbi stack_machine scan_grad momentum_train mlp_grad "
    "conv_grad conv_kinds attention_grad cholesky_solve sorting random_walk fft_filter checkpointed_steps "
    "ordered_debug indexed_updates gather_scatter flat_state keys_in_loops draws_in_loop safe_newton".split(),
)
def test_results_are_bit_equal(name):
    program = captured(name)
    graph = program.graph
    result = rewrite(graph, with_loops(graph, UnitKind.RUNTIME, everywhere(graph, NAME)))
    assert result.sequences
    assert equal(program.result, program.compile(result.data)())


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=12, max_size=40),
    st.integers(0, 2**16),
)
def test_random_programs_of_many_kernels(kinds, seed):
    """Each step makes a new array of two earlier ones, by an operation that is a kernel of its own."""
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, 1 << 30, (len(kinds), 2)).tolist()

    def fn(x: jax.Array, y: jax.Array) -> Any:
        made = [x, y]
        for kind, (i, j) in zip(kinds, picks, strict=True):
            a, b = made[i % len(made)], made[j % len(made)]
            makes = (
                lambda a, b: jnp.sort(a) + b, lambda a, b: jnp.cumsum(a) * 0.1 - b,
                lambda a, b: a[::-1] * jnp.tanh(b), lambda a, b: jnp.where(a > b, a, b * 0.5),
                lambda a, b: jax.lax.cond(a[0] > 0, lambda: a + b, lambda: a - b),
                lambda a, b: a.at[jnp.argmax(b)].set(b[0]),
            )  # fmt: skip
            made.append(makes[kind](a, b))
        return made[2:]

    program = capture(fn, normal(33, seed=seed), normal(33, seed=seed + 1))
    graph = program.graph
    result = rewrite(graph, everywhere(graph, NAME))
    assert equal(program.result, program.compile(result.data)())
