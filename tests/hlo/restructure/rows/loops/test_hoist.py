"""What is computed ahead of a loop is what its iterations computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.captures import MACHINE
from support.restructured import native

from graphopt.hlo import apply_restructures, build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.loops.hoist import plan_of
from graphopt.hlo.restructure.sites import Candidate
from graphopt.measure import compare_outputs, compile_with

Fn = Callable[..., Any]


def hoisted(graph: Any) -> Any:
    """XLA's decisions with every legal loop's constants and random numbers computed ahead."""
    decisions = graph.default.copy()
    for loop in np.flatnonzero(graph.masks.restructure[:, CODE["hoist"]]).tolist():
        plan = plan_of(Candidate(graph, loop))
        assert plan is not None and plan.rows
        decisions.restructure[loop] = CODE["hoist"]
        decisions.restructure[list(plan.loops)] = CODE["unroll"]
    return decisions


def run(fn: Fn, *args: Any, least: int = 1) -> tuple[Any, list[Any]]:
    """XLA's result of a function, and the results with `least` or more loops hoisted (plain and native)."""
    default = compile_with(fn, args)
    data = max(default.modules, key=len)
    graph = build_graph(data, MACHINE)
    decisions = hoisted(graph)
    assert (decisions.restructure == CODE["hoist"]).sum() >= least
    out = []
    for chosen in (decisions, native(graph, decisions)):
        written = rewrite(graph, chosen).data
        assert written != data
        out.append(compile_with(fn, args, lambda _, written=written: written)())
    return default(), out


def assert_same(wanted: Any, results: list[Any]) -> None:
    for got in results:
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(a, b)


def test_bits_from_one_key_per_iteration_are_the_same():
    def fn(seed: jax.Array) -> Any:
        def step(total: jax.Array, key: jax.Array) -> Any:
            draw = jax.random.bits(key, (3, 5))
            return total * 3 + draw.sum(), total

        return jax.lax.scan(step, jnp.uint32(1), jax.random.split(jax.random.PRNGKey(seed), 9))

    assert_same(*run(fn, jnp.int32(5)))


def test_bits_from_the_counter_are_the_same_backwards_and_from_another_start():
    def fn(seed: jax.Array) -> Any:
        key = jax.random.PRNGKey(seed)

        def step(i: jax.Array, total: jax.Array) -> jax.Array:
            return total * 5 + jax.random.bits(jax.random.fold_in(key, i), (7,))

        def backwards(total: jax.Array, key: jax.Array) -> Any:
            return total * 3 + jax.random.bits(key, (7,)), total

        total = jax.lax.fori_loop(3, 17, step, jnp.zeros(7, jnp.uint32))
        return jax.lax.scan(backwards, total, jax.random.split(key, 6), reverse=True)

    assert_same(*run(fn, jnp.int32(5), least=2))


def test_a_counter_that_starts_elsewhere_reads_the_right_rows():
    def fn(table: jax.Array) -> Any:
        def step(state: Any) -> Any:
            i, total = state
            return i + 1, jnp.tanh(total) + jnp.sin(jnp.exp(jnp.tanh(table[i - 3])) * i)

        return jax.lax.while_loop(lambda s: s[0] < 17, step, (3, jnp.zeros(5)))

    table = np.random.default_rng(0).standard_normal((14, 5)).astype(np.float32)
    wanted, results = run(fn, jnp.asarray(table))
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_the_bytes_of_a_word_are_the_same():
    """A scalar becomes an array of narrower elements."""

    def fn(seed: jax.Array) -> Any:
        def step(total: jax.Array, key: jax.Array) -> Any:
            word = jax.random.bits(key, ())
            parts = jax.lax.bitcast_convert_type(word, jnp.uint8)
            return total * 3 + parts.astype(jnp.uint32), word

        keys = jax.random.split(jax.random.PRNGKey(seed), 9)
        return jax.lax.scan(step, jnp.zeros(4, jnp.uint32), keys)

    assert_same(*run(fn, jnp.int32(5)))


def test_without_the_inner_loops_written_out_nothing_breaks():
    """A search may choose one replacement without the other."""

    def fn(seed: jax.Array) -> Any:
        def step(total: jax.Array, key: jax.Array) -> Any:
            return total * 3 + jax.random.bits(key, (4,)), None

        keys = jax.random.split(jax.random.PRNGKey(seed), 6)
        return jax.lax.scan(step, jnp.zeros(4, jnp.uint32), keys)[0]

    args = (jnp.int32(5),)
    default = compile_with(fn, args)
    graph = build_graph(max(default.modules, key=len), MACHINE)
    decisions = graph.default.copy()
    legal = graph.masks.restructure[:, CODE["hoist"]]
    assert legal.any()
    decisions.restructure[legal] = CODE["hoist"]
    written = rewrite(graph, decisions).data
    assert_same(default(), [compile_with(fn, args, lambda _: written)()])


def test_a_loop_inside_another_reads_its_own_rows():
    """The inner loop's keys differ from one outer iteration to the next."""

    def fn(seed: jax.Array) -> Any:
        def inner(total: jax.Array, key: jax.Array) -> Any:
            return total * 3 + jax.random.bits(key, (4,)), None

        def outer(total: jax.Array, key: jax.Array) -> Any:
            total, _ = jax.lax.scan(inner, total, jax.random.split(key, 5))
            return total ^ (total >> 3), total

        keys = jax.random.split(jax.random.PRNGKey(seed), 4)
        return jax.lax.scan(outer, jnp.zeros(4, jnp.uint32), keys)

    assert_same(*run(fn, jnp.int32(5)))


def test_every_operation_that_is_repeated():
    """Padding, reversal, transposition, sums, parts of parts, constants of one and of many values."""

    def fn(table: jax.Array, x: jax.Array) -> Any:
        def step(x: jax.Array, row: jax.Array) -> Any:
            deep = jnp.sin(jnp.exp(jnp.tanh(row)) * jnp.arange(12, dtype=jnp.float32).reshape(3, 4))
            parts = [
                jnp.pad(deep, ((1, 0), (0, 2)), constant_values=2.0),
                jnp.pad(deep[::-1], ((0, 1), (2, 0))),
                jnp.concatenate([deep.T, jnp.ones((4, 1))], axis=1)
                .reshape(4, 4)[:, :3]
                .repeat(2, 0)[:4]
                .T[:, [0, 1, 2, 3, 0, 1]][jnp.array([0, 1, 2, 0])],
                jnp.broadcast_to(jnp.sin(jnp.exp(deep.sum(axis=1, keepdims=True))), (3, 6))[
                    jnp.array([0, 1, 2, 1])
                ],
                jnp.clip(jax.lax.slice(jnp.tile(deep, (3, 3)), (1, 1), (8, 12), (2, 2)), -0.3, 0.4),
            ]
            for part in parts:
                x = jnp.tanh(x * 0.9 + part)
            return x, jnp.sum(x)

        return jax.lax.scan(step, x, table)

    rng = np.random.default_rng(0)
    table, x = rng.standard_normal((8, 3, 4)), rng.standard_normal((4, 6))
    wanted, results = run(fn, jnp.asarray(table, jnp.float32), jnp.asarray(x, jnp.float32))
    for got in results:
        assert compare_outputs(wanted, got).equal


def turned(angle: jax.Array, x: jax.Array, scale: jax.Array) -> Any:
    """Sums of two forms of one point set, by factors that are known before, and dear."""

    def step(total: jax.Array, turn: jax.Array) -> Any:
        along = jnp.tanh(jnp.abs(jnp.cos(turn)) ** 1.5 * x) - jnp.sin(turn) * x[::-1]
        return total + along * scale, ()

    return jax.lax.scan(step, x, jnp.arange(12.0) * angle)[0]


def plans(fn: Fn, *args: Any) -> list[Any]:
    """What of each loop may be computed ahead."""
    graph = build_graph(max(compile_with(fn, args).modules, key=len), MACHINE)
    loops = [n for n, op in enumerate(graph.ops) if op.name == "while"]
    return [plan for n in loops if (plan := plan_of(Candidate(graph, n))) is not None]


def test_what_all_elements_share_makes_none_of_them_dear():
    x = np.linspace(0.0, 1.0, 100, dtype=np.float32)
    (plan,) = plans(turned, np.float32(0.3), x, x)
    assert plan.rows and all(item.dims in ((), (1,)) for item in plan.rows.values())


def joined(x: jax.Array, base: jax.Array) -> Any:
    """Powers of two parts, computed further together."""

    def step(total: jax.Array, i: jax.Array) -> Any:
        parts = [base ** (jnp.arange(96.0) - i), base ** (jnp.arange(96.0) + i)]
        return total * 0.5 + jnp.sqrt(jnp.concatenate(parts)), ()

    return jax.lax.scan(step, x, jnp.arange(20.0))[0]


def test_parts_that_are_joined_are_as_dear_together():
    (plan,) = plans(joined, np.ones(192, np.float32), np.float32(1.01))
    assert [item.dims for item in plan.rows.values()] == [(192,)]
    assert_same(*run(joined, np.ones(192, np.float32), np.float32(1.01)))


def spread(x: jax.Array, base: jax.Array) -> Any:
    """Powers of powers that many elements share."""

    def step(total: jax.Array, i: jax.Array) -> Any:
        shared = (base ** (jnp.arange(48.0) - i)) ** 1.5 + jnp.tanh(base * i)
        table = jnp.stack([shared, shared]) ** x[0]
        return total * 0.5 + table[None] + 1.0, ()

    return jax.lax.scan(step, x, jnp.arange(20.0))[0]


def test_what_is_dear_for_every_element_is_not_computed_again():
    x = np.ones((2, 2, 48), np.float32)
    (plan,) = plans(spread, x, np.float32(1.01))
    assert [item.dims for item in plan.rows.values()] == [(2, 48)]
    assert_same(*run(spread, x, np.float32(1.01)))


def powers(x: jax.Array, base: jax.Array) -> Any:
    """Powers that depend on the counter, shared by the rows of a table; what becomes of them is cheap."""

    def step(total: jax.Array, i: jax.Array) -> Any:
        known = base ** (jnp.arange(96.0) - i)
        return jnp.maximum(total * 0.5, known[None, :] + 1.0), ()

    return jax.lax.scan(step, x, jnp.arange(20.0))[0]


def test_dear_values_are_computed_ahead_also_behind_cheap_ones():
    x = np.ones((32, 96), np.float32)
    (plan,) = plans(powers, x, np.float32(1.01))
    assert [item.dims for item in plan.rows.values()] == [(96,)]
    assert_same(*run(powers, x, np.float32(1.01)))


def test_what_all_iterations_share_is_in_memory_once_or_a_number():
    def fn(seed: jax.Array, x: jax.Array, one: jax.Array) -> Any:
        def step(total: jax.Array, key: jax.Array) -> Any:
            power = jnp.broadcast_to(x[:, None], (24, 4))
            drawn = jax.random.uniform(key, (24, 4)) ** power * jnp.broadcast_to(one, (24, 4))
            return total * 0.5 + drawn**1.5, ()

        keys = jax.random.split(jax.random.PRNGKey(seed), 30)
        return jax.lax.scan(step, jnp.zeros((24, 4)), keys)[0]

    args = (jnp.int32(5), np.linspace(1.0, 2.0, 24, dtype=np.float32), np.full((1, 1), 2, "f4"))
    wanted, results = run(fn, *args)
    for got in results:
        assert compare_outputs(wanted, got).equal
    graph = build_graph(max(compile_with(fn, args).modules, key=len), MACHINE)
    after = apply_restructures(graph, hoisted(graph).restructure).graph
    spread = [
        (n, after.operand_lists[n][0])
        for n, op in enumerate(after.ops)
        if op.name == "broadcast" and list(after.dim_lists[n]) == [30, 96]
    ]
    assert all(after.default.fuse[n] for n, _ in spread)
    rows = [row for _, row in spread if after.dim_lists[row] == [96]]
    computed = [after.operand_lists[row][0] for row in rows]
    assert rows and not after.default.fuse[[*rows, *computed]].any()
    repeated = [after.operand_lists[n][0] for n in computed if after.ops[n].name == "broadcast"]
    assert repeated and all(after.elements[n] == 24 for n in repeated)


def test_only_the_rest_stays_in_the_loop():
    """No random number is left in the body, and what is read from memory is the last value, not its bits."""

    def fn(seed: jax.Array) -> Any:
        def step(x: jax.Array, key: jax.Array) -> Any:
            return jnp.tanh(x + jax.random.normal(key, (6,))), None

        return jax.lax.scan(step, jnp.zeros(6), jax.random.split(jax.random.PRNGKey(seed), 50))

    graph = build_graph(max(compile_with(fn, (jnp.int32(0),)).modules, key=len), MACHINE)
    decisions = hoisted(graph)
    (loop,) = np.flatnonzero(decisions.restructure == CODE["hoist"]).tolist()
    plan = plan_of(Candidate(graph, loop))
    assert plan is not None
    assert [row.dims for row in plan.rows.values()] == [(6,)]
    after = apply_restructures(graph, decisions.restructure)
    (again,) = np.flatnonzero((after.origin == loop) & ~after.fresh).tolist()
    (body,) = (
        c for c in after.graph.computations if c.caller == again and c.role.name == "LOOP_BODY"
    )
    inside = {after.graph.ops[n].name for n in range(body.first, body.end)}
    assert "tanh" in inside
    assert not inside & {"xor", "shift-left", "while", "log-plus-one"}
    outside = after.graph.computations[-1]
    assert "xor" in {after.graph.ops[n].name for n in range(outside.first, outside.end)}


@pytest.mark.parametrize(
    ("reason", "length", "count", "carried"),
    [
        ("hoist-nothing", 8, 4, True),
        ("hoist-memory", 512, 20_000, False),
        ("hoist-trips", 1 << 15, 1, False),
    ],
)
def test_refused_with_a_reason(reason, length, count, carried):
    def fn(seed: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            total, own = carry
            next_key = jax.random.fold_in(own if carried else key, 1)
            draw = jax.random.uniform(next_key, (count,))
            return (jnp.tanh(total + draw), next_key if carried else own), None

        key = jax.random.PRNGKey(seed)
        keys = jax.random.split(key, length)
        return jax.lax.scan(step, (jnp.zeros(count), key), keys)[0][0]

    graph = build_graph(max(compile_with(fn, (jnp.int32(0),)).modules, key=len), MACHINE)
    code = CODE["hoist"]
    assert not graph.masks.restructure[:, code].any()
    loops = [n for n, op in enumerate(graph.ops) if op.name == "while"]
    assert reason in {graph.masks.why_not(loop, "restructure", code) for loop in loops}


@st.composite
def programs(draw: st.DrawFn) -> tuple[Fn, int]:
    """A loop that mixes carried values with what its counter, its keys and a constant array give."""
    trips = draw(st.integers(2, 9))
    first = draw(st.integers(-3, 3))
    dims = tuple(draw(st.lists(st.integers(1, 5), min_size=0, max_size=3)))
    steps = draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=4))
    keyed = draw(st.booleans())

    def fn(x: jax.Array, table: jax.Array) -> Any:
        key = jax.random.PRNGKey(3)

        def body(i: jax.Array, x: jax.Array) -> jax.Array:
            drawn = jax.random.normal(jax.random.fold_in(key, i), dims) if keyed else None
            row = jnp.sin(jnp.exp(jnp.tanh(table[i - first])))
            value = row if drawn is None else row + drawn
            for step in steps:
                value = step(value, i)
            return jnp.tanh(x * 0.5 + value.reshape(-1)[: x.size].sum() + row)

        return jax.lax.fori_loop(first, first + trips, body, x)

    rng = np.random.default_rng(draw(st.integers(0, 9)))
    args = (rng.standard_normal(dims), rng.standard_normal((trips, *dims)))
    return fn, tuple(jnp.asarray(a, jnp.float32) for a in args)


_STEPS: tuple[Any, ...] = (
    lambda v, i: v * (i.astype(jnp.float32) + 0.5),
    lambda v, i: jnp.flip(v),
    lambda v, i: v.T,
    lambda v, i: jnp.concatenate([v.reshape(-1), v.reshape(-1) * 2])[1:],
    lambda v, i: v.reshape(-1)[::2],
    lambda v, i: jnp.where(v > i, v, -v),
    lambda v, i: jnp.exp(-jnp.abs(v)).sum(axis=-1) if v.ndim else v,
    lambda v, i: jnp.pad(v.reshape(-1), (1, 2)),
    lambda v, i: jnp.clip(v, -1.0, 1.0) + jnp.float32(2),
    lambda v, i: jnp.broadcast_to(v.reshape(1, -1), (2, v.size)),
)


@given(programs())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_loops_compute_what_they_computed(program):
    fn, args = program
    default = compile_with(fn, args)
    graph = build_graph(max(default.modules, key=len), MACHINE)
    decisions = hoisted(graph)
    for chosen in (decisions, native(graph, decisions)):
        written = rewrite(graph, chosen).data
        got = compile_with(fn, args, lambda _, written=written: written)()
        assert compare_outputs(default(), got).equal
