"""Reshapes stand outside of kernels: of arrays in memory in native code, of results everywhere."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import Captured, capture, nodes

from graphopt.costs.model import CostModel
from graphopt.hlo import rewrite
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import make_native


def liberties(board: jax.Array, table: jax.Array, wide: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A loop whose kernel gathers through a reshaped table of places; `wide` keeps XLA from its own call."""

    def step(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        board, table, wide = carry
        places = table.reshape(-1, 2)
        found = board[places[:, 0], places[:, 1]].reshape(4, 27, 4) == 1
        turned = table[:, ::-1]
        return jnp.where(found.any(2), board + 1, board), turned, wide.at[i].add(1.0)

    board, _, wide = jax.lax.fori_loop(0, 10, step, (board, table, wide))
    return board, wide


@pytest.fixture(scope="module")
def program() -> Captured:
    rng = np.random.default_rng(0)
    board = rng.integers(0, 3, (4, 27)).astype(np.int32)
    table = np.stack([rng.integers(0, 4, (4, 27, 4)), rng.integers(0, 27, (4, 27, 4))], -1)
    return capture(liberties, board, table.astype(np.int32), np.zeros(1 << 18, np.float32))


def views(program: Captured) -> list[int]:
    """Fused bitcasts of values in memory."""
    graph = program.graph
    return [
        node
        for node, op in enumerate(graph.ops)
        if op.name == "bitcast"
        and graph.default.fuse[node]
        and not graph.default.fuse[graph.operand_lists[node][0]]
    ]


def test_they_leave_native_kernels_and_results_stay(program):
    graph = program.graph
    decisions = graph.default.copy()
    (loop,) = nodes(graph, "while")
    make_native(Context(graph, CostModel(graph), decisions), decisions, loop)
    left = np.flatnonzero(graph.default.fuse & ~decisions.fuse).tolist()
    assert left and set(left) <= set(views(program))
    result = program.compile(rewrite(graph, decisions).data)()
    assert compare_outputs(program.result, result).equal


def test_they_stay_fused_outside_of_native_code(program):
    assert views(program)
    decisions = heuristic_steps(program.graph, [step for step in STEPS if step != "native loops"])
    assert decisions.fuse[views(program)].all()


def layer(x: jax.Array, bias: jax.Array, weights: jax.Array, scale: float) -> jax.Array:
    """The result of a kernel, reshaped for a product."""
    y = jnp.maximum(x + bias, 0.0) * scale
    return y.reshape(-1, y.shape[-1]) @ weights


def ended(fn, *args) -> tuple[Captured, list[int]]:
    """A program, and the values that the step writes in their own dimensions."""
    program = capture(fn, *args)
    decisions = heuristic_steps(program.graph, ["views"])
    result = program.compile(rewrite(program.graph, decisions).data)()
    assert compare_outputs(program.result, result).equal
    return program, np.flatnonzero(program.graph.default.fuse & ~decisions.fuse).tolist()


def arrays(*dims: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(d).astype(np.float32) for d in dims]


def test_kernels_end_in_front_of_reshapes():
    x, bias, weights = arrays((16, 24, 36), (36,), (36, 4))
    program, values = ended(lambda x, b, w: layer(x, b, w, 2.0), x, bias, weights)
    (value,) = values
    graph = program.graph
    (view,) = graph.user_lists[value]
    assert graph.ops[view].name == "bitcast" and not graph.default.fuse[view]
    assert graph.dim_lists[value] == [16, 24, 36] and graph.dim_lists[view] == [384, 36]


def test_what_is_written_as_a_view_is_read_by_others():
    """A kernel that computed the value again reads it; the view splits a dimension, which saves nothing."""
    x, bias, weights = arrays((384, 36), (36,), (384, 6, 4))

    def fn(x: jax.Array, bias: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = (x + bias) * 0.5 + x
        return y.reshape(384, 6, 6) @ weights, y.T * 2.0

    program, values = ended(fn, x, bias, weights)
    assert [program.graph.ops[value].name for value in values] == ["add"]
    assert len(program.graph.user_lists[values[0]]) == 2


def test_short_kernels_and_added_dimensions_of_one_element_stay():
    """Nothing to save, or no division: one more dimension of one element is no reshape."""
    small = arrays((2, 3, 4), (4,), (4, 4))
    assert ended(lambda x, b, w: layer(x, b, w, 2.0), *small)[1] == []
    x, bias, weights = arrays((1, 8192, 36), (36,), (36, 4))
    assert ended(lambda x, b, w: layer(x, b, w, 2.0), x, bias, weights)[1] == []


def test_dimensions_that_are_split_or_short_stay():
    """Splitting one takes no division; a loop over four elements is not vectorised either way."""
    x, bias, weights = arrays((384, 36), (36,), (384, 6, 4))

    def split(x: jax.Array, bias: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.maximum(x + bias, 0.0).reshape(384, 6, 6) @ weights

    assert ended(split, x, bias, weights)[1] == []
    x, bias, weights = arrays((64, 24, 4), (4,), (4, 4))
    assert ended(lambda x, b, w: layer(x, b, w, 2.0), x, bias, weights)[1] == []


def test_kernels_that_only_reorder_memory_end_there_too():
    """Heads and channels of an attention block change places before a product."""
    x, weights = arrays((8, 4, 64, 16), (64, 4))

    def fn(x: jax.Array, weights: jax.Array) -> jax.Array:
        return x.transpose(0, 2, 1, 3).reshape(512, 64) @ weights

    program, values = ended(fn, x, weights)
    assert [program.graph.ops[value].name for value in values] == ["copy"]


def flat_state(x: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
    """An ODE solver's loop: a flat state whose right-hand side wants rows; energies read the old one."""

    def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        rows = state.reshape(-1, row.shape[0])
        moved = (rows - 0.1 * jnp.sin(rows) + row).reshape(-1)
        return moved, (state * state[::-1]).sum()

    return jax.lax.scan(step, x, None, length=7)


def test_kernels_of_carried_values_end_in_front_of_reshapes():
    """The reshape names the loop's own buffer, which the kernel in front of it writes now."""
    x, row = arrays((24 * 36,), (36,))
    program, values = ended(flat_state, x, row)
    graph = program.graph
    (value,) = [v for v in values if graph.dim_lists[v] == [24, 36]]
    assert graph.source.frozen[value] is not None  # XLA computed it within the kernel of the view
    everything = heuristic_steps(graph, list(STEPS))
    result = program.compile(rewrite(graph, everything).data)()
    assert compare_outputs(program.result, result).equal
