"""Reshapes of arrays in memory stand outside of native kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import Captured, capture, nodes

from graphopt.hlo import rewrite
from graphopt.measure import compare_outputs
from graphopt.policy.costs import CostModel
from graphopt.policy.heuristic import STEPS, heuristic_steps
from graphopt.policy.native import make_native


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
    make_native(graph, CostModel(graph), decisions, loop)
    left = np.flatnonzero(graph.default.fuse & ~decisions.fuse).tolist()
    assert left and set(left) <= set(views(program))
    result = program.compile(rewrite(graph, decisions).data)()
    assert compare_outputs(program.result, result).equal


def test_they_stay_fused_outside_of_native_code(program):
    assert views(program)
    decisions = heuristic_steps(program.graph, [step for step in STEPS if step != "native loops"])
    assert decisions.fuse[views(program)].all()
