"""Products as sums along rows: operands in the order of the sum, results equal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture
from support.restructured import everywhere, run_program

from graphopt.hlo import apply_restructures
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.turned.rows import forbids
from graphopt.hlo.restructure.sites import Candidate
from graphopt.measure import compare_outputs

NAME = "dot-rows"


def array(*dims: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Small numbers."""
    return (np.random.default_rng(sum(dims)).normal(size=dims) / dims[-1]).astype(dtype)


def product(*numbers: Any) -> Any:
    """A product with these dimension numbers."""
    return lambda a, b: jax.lax.dot_general(a, b, numbers)


def rule(fn: Any, *args: Any) -> str | None:
    """The rule that forbids the row for the only product of a program; None where it is legal."""
    graph = capture(fn, *args).graph
    (dot,) = [i for i, op in enumerate(graph.ops) if op.name == "dot"]
    found = forbids(Candidate(graph, dot))
    assert (found is None) == bool(graph.masks.restructure[dot, CODE[NAME]])
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "a, b, numbers",
    [
        ((5, 70), (70, 6), (((1,), (0,)), ((), ()))),
        ((70, 5), (70, 6), (((0,), (0,)), ((), ()))),
        ((70, 5), (6, 70), (((0,), (1,)), ((), ()))),
        ((3, 5, 70), (3, 70, 6), (((2,), (1,)), ((0,), (0,)))),
    ],
)
def test_results_stay_the_same(a: Any, b: Any, numbers: Any, dtype: Any) -> None:
    args = array(*a, dtype=dtype), array(*b, dtype=dtype)
    wanted, results = run_program(product(*numbers), args, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize(
    "a, b, numbers, name",
    [
        ((5, 70), (6, 70), (((1,), (1,)), ((), ())), "dot-along"),
        ((5, 70), (70, 1), (((1,), (0,)), ((), ())), "dot-along"),
        ((200, 70), (70, 200), (((1,), (0,)), ((), ())), "dot-size"),
        ((5, 70), (70, 6), (((1,), (0,)), ((), ())), None),
    ],
)
def test_where_it_is_legal(a: Any, b: Any, numbers: Any, name: str | None) -> None:
    assert rule(product(*numbers), array(*a), array(*b)) == name


def test_what_a_loop_keeps_is_brought_into_order_once():
    def fn(x: Any, r: Any) -> Any:
        step = lambda _, r: jnp.tanh(r + (r @ x).sum())  # noqa: E731
        return jax.lax.fori_loop(0, 9, step, r)

    graph = capture(fn, array(70, 6), array(5, 70)).graph
    decisions = everywhere(graph, NAME)
    loops = graph.masks.restructure[:, CODE["invariants"]]
    assert loops.any()
    decisions.restructure[loops] = CODE["invariants"]
    after = apply_restructures(graph, decisions.restructure).graph
    moved = [
        (after.dim_lists[i], after.executions[i])
        for i, op in enumerate(after.ops)
        if op.name == "transpose" and not after.default.fuse[i]
    ]
    assert moved == [([6, 70], 1)]


def test_a_form_that_reads_its_operand_in_a_kernel_leaves_it_there():
    """Only what is read from memory is brought into another order ahead of the loop."""

    def fn(x: Any, r: Any) -> Any:
        step = lambda _, r: jnp.tanh(r + (r @ x).sum())  # noqa: E731
        return jax.lax.fori_loop(0, 9, step, r)

    graph = capture(fn, array(6, 6), array(5, 6)).graph
    decisions = everywhere(graph, "dot-reduce")
    loops = graph.masks.restructure[:, CODE["invariants"]]
    decisions.restructure[loops] = CODE["invariants"]
    after = apply_restructures(graph, decisions.restructure).graph
    broadcasts = [i for i, op in enumerate(after.ops) if op.name == "broadcast"]
    large = [i for i in broadcasts if after.elements[i] >= 5 * 6 * 6]
    assert large and all(after.executions[i] > 1 for i in large)


def test_what_changes_is_brought_into_order_in_memory():
    """It is no part of the kernel that adds up, which would read it in the old order."""
    graph = capture(product(((1,), (0,)), ((), ())), array(5, 70), array(70, 6)).graph
    after = apply_restructures(graph, everywhere(graph, NAME).restructure).graph
    kept = [
        i for i, op in enumerate(after.ops) if op.name == "transpose" and not after.default.fuse[i]
    ]
    assert [after.dim_lists[i] for i in kept] == [[6, 70]]
