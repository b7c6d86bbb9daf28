"""What iterations share is computed once, and the loop computes what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.captures import MACHINE, capture
from support.restructured import everywhere, native, run_program

from graphopt.hlo import apply_restructures, build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.loops.invariants import MAX_BYTES, plan_of
from graphopt.hlo.restructure.sites import Candidate
from graphopt.measure import compare_outputs, compile_with

NAME = "invariants"
Fn = Callable[..., Any]


def table(rows: int, columns: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """[rows, columns]; features of a regression."""
    return (np.random.default_rng(rows).normal(size=(rows, columns)) / columns).astype(dtype)


X = table(60, 7)
Y = (np.arange(60) % 3 == 0).astype(np.float32)
B = np.linspace(-1.0, 1.0, 7).astype(np.float32)


def slope(x: Any, y: Any, b: Any) -> Any:
    """Gradient of a logistic regression."""
    return x.T @ (jax.nn.sigmoid(x @ b) - y) + 0.1 * b


def descent(x: Any, y: Any, b: Any) -> Any:
    """A loop of products of one matrix from both sides."""
    return jax.lax.fori_loop(0, 20, lambda _, b: b - 0.1 * slope(x, y, b), b)


def nested(x: Any, y: Any, b: Any) -> Any:
    """The matrix is carried through a loop of loops of unknown length."""

    def outer(i: Any, b: Any) -> Any:
        def going(state: Any) -> Any:
            return (state[1] < 3 + i % 2) & (jnp.abs(state[0]).max() < 90.0)

        def step(state: Any) -> Any:
            return state[0] - 0.1 * slope(x, y, state[0]), state[1] + 1

        inner = jax.lax.while_loop(going, step, (b, 0))[0]
        return jnp.where(((x @ b) ** 2).sum() > 1e6, b, inner)

    return jax.lax.fori_loop(0, 5, outer, b)


def branches(x: Any, y: Any, b: Any) -> Any:
    """It is used in one branch of a conditional; another returns what it is given."""

    def step(i: Any, b: Any) -> Any:
        options = (lambda b: b, lambda b: b - 0.1 * slope(x, y, b), lambda b: b + x[0])
        return jax.lax.switch(i % 3, options, b)

    return jax.lax.fori_loop(0, 11, step, b)


def constant(y: Any, b: Any) -> Any:
    """The matrix is known when the program is compiled."""
    return jax.lax.fori_loop(0, 9, lambda _, b: b - 0.1 * slope(X, y, b), b)


def layers(weights: Any, v: Any) -> Any:
    """Parts of one array are taken out of it in every iteration."""

    def step(_: Any, v: Any) -> Any:
        for i in range(3):
            v = jnp.tanh(v @ weights[i].T)
        return v

    return jax.lax.fori_loop(0, 6, step, v)


def overwritten(x: Any, b: Any) -> Any:
    """Every iteration begins with a turned copy and writes into it; `x` is multiplied besides."""

    def step(i: Any, b: Any) -> Any:
        def put(j: Any, turned: Any) -> Any:
            return turned.at[:, j].add(b[j % 7] + i)

        turned = jax.lax.fori_loop(0, 5, put, x.T)
        return jnp.tanh(turned.sum(1) * 0.01 + b + (x @ b).sum() * 0.1)

    return jax.lax.fori_loop(0, 6, step, b)


PROGRAMS: dict[str, tuple[Fn, tuple[Any, ...]]] = {
    "descent": (descent, (X, Y, B)),
    "f64": (descent, (X.astype(np.float64), Y.astype(np.float64), B.astype(np.float64))),
    "nested": (nested, (X, Y, B)),
    "branches": (branches, (X, Y, B)),
    "constant": (constant, (Y, B)),
    "layers": (layers, (np.stack([table(32, 32) * s for s in (5, 6, 7)]), table(4, 32))),
}


def plans(fn: Fn, *args: Any) -> list[Any]:
    """What could be computed once, of every loop that has something."""
    graph = capture(fn, *args).graph
    loops = np.flatnonzero(graph.masks.restructure[:, CODE[NAME]])
    return [plan_of(Candidate(graph, int(loop))) for loop in loops]


def inside_loops(graph: Any, name: str) -> int:
    """Operations of a name that run more than once."""
    return sum(op.name == name and graph.executions[i] > 1 for i, op in enumerate(graph.ops))


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_stay_the_same(name: str) -> None:
    fn, args = PROGRAMS[name]
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_a_tall_matrix_is_turned_for_both_products_once():
    graph = capture(descent, X, Y, B).graph
    after = apply_restructures(graph, everywhere(graph, NAME).restructure).graph
    assert (
        inside_loops(graph, "dot") == inside_loops(graph, "fusion") == 1
    )  # one kernel turns it too
    assert inside_loops(after, "dot") == 2 and inside_loops(after, "transpose") == 0
    once = [i for i, op in enumerate(after.ops) if op.name == "transpose"]
    assert len(once) == 1
    products = [i for i, op in enumerate(after.ops) if op.name == "dot"]
    matrices = {tuple(after.dim_lists[after.operand_lists[i][0]]) for i in products}
    assert matrices == {(7, 60)}


def test_products_in_loops_and_branches_inside_are_found():
    (outer, inner) = sorted(plans(nested, X, Y, B), key=lambda plan: len(plan.dots))[::-1]
    assert len(outer.dots) > len(inner.dots) >= 1
    assert any(plan.dots for plan in plans(branches, X, Y, B))


def test_kernels_of_parts_move_ahead_of_the_loop():
    fn, args = PROGRAMS["layers"]
    (plan,) = plans(fn, *args)
    assert len(plan.kernels) == 3 and not plan.dots


def test_a_copy_that_is_overwritten_stays():
    """Ahead of the loop there would be one for all iterations."""
    graph = capture(overwritten, X, B).graph
    after = apply_restructures(graph, everywhere(graph, NAME).restructure).graph
    copies = [i for i, op in enumerate(after.ops) if op.name == "copy"]
    tables = [i for i in copies if after.elements[i] == X.size]
    assert tables and all(after.executions[i] > 1 for i in tables)
    wanted, results = run_program(overwritten, (X, B), NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize("rows, columns", [(60, 60), (8, 7), (60, 32), (7, 60)])
def test_other_matrices_stay_as_they_are(rows: int, columns: int) -> None:
    def fn(x: Any, b: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda _, b: jnp.tanh(b + (x @ b).sum()), b)

    assert not any(
        plan.dots for plan in plans(fn, table(rows, columns), np.ones(columns, np.float32))
    )


def test_a_matrix_that_changes_is_not_turned():
    def fn(x: Any, b: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, b = state
            return x * 0.9, jnp.tanh(b + (x @ b).sum())

        return jax.lax.fori_loop(0, 9, step, (x, b))

    assert not any(plan.dots for plan in plans(fn, X, B))


def test_a_large_matrix_is_not_held_twice():
    rows = MAX_BYTES // 16 + 1

    def fn(x: Any, b: Any) -> Any:
        return jax.lax.fori_loop(0, 2, lambda _, b: jnp.tanh(b + (x @ b).sum()), b)

    assert not plans(fn, np.ones((rows, 4), np.float32), np.ones(4, np.float32))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_loops_of_products(data: st.DataObject) -> None:
    fn, args = _random(data.draw)
    default = compile_with(fn, args)
    graph = build_graph(max(default.modules, key=len), MACHINE)
    wanted = default()
    allowed = np.flatnonzero(graph.masks.restructure[:, CODE[NAME]])
    decisions = graph.default.copy()
    for loop in allowed.tolist():
        decisions.restructure[loop] = CODE[NAME] * data.draw(st.booleans())
    for chosen in (decisions, native(graph, decisions)):
        written = rewrite(graph, chosen).data
        got = compile_with(fn, args, lambda _, written=written: written)()
        assert compare_outputs(wanted, got).equal


def _random(draw: Any) -> tuple[Fn, tuple[Any, ...]]:
    """A loop of some products, in a loop, a conditional or neither; roundings do not grow in it."""
    rows, columns = draw(st.sampled_from([(40, 5), (64, 12), (33, 16), (50, 25)]))
    kinds = draw(
        st.lists(st.sampled_from(["right", "left", "known", "part"]), min_size=1, max_size=4)
    )
    around = [draw(st.sampled_from(["loop", "branch", "plain"])) for _ in kinds]
    trips = draw(st.integers(1, 5))
    x, known = 0.4 * table(rows, columns), 0.4 * table(rows, columns + 1)[:, 1:]

    def one(kind: str, x: Any, stack: Any, v: Any) -> Any:
        if kind == "right":
            return v + jnp.tanh(x @ v).sum() * 0.1
        if kind == "left":
            return jnp.tanh(0.5 * v + x.T @ jnp.sin(x @ v))
        if kind == "known":
            return jnp.cos(0.5 * v + known.T @ (known @ v))
        return v * 0.5 + stack[1].T @ jnp.tanh(stack[0] @ v)

    def fn(x: Any, stack: Any, v: Any) -> Any:
        def step(i: Any, v: Any) -> Any:
            for kind, how in zip(kinds, around, strict=True):
                if how == "loop":
                    v = jax.lax.fori_loop(0, trips, lambda _, v, k=kind: one(k, x, stack, v), v)
                elif how == "branch":
                    v = jax.lax.cond(
                        i % 2 == 0, lambda v, k=kind: one(k, x, stack, v), lambda v: v, v
                    )
                else:
                    v = one(kind, x, stack, v)
            return v

        return jax.lax.fori_loop(0, 6, step, v)

    return fn, (x, np.stack([x * 0.5, x]), np.linspace(0.0, 1.0, columns).astype(np.float32))
