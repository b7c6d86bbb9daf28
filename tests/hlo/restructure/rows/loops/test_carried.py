"""Arrays that loops carry are updated in place without copies, and hold what they held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import MACHINE, capture
from support.restructured import everywhere, run_program

from graphopt.hlo import apply_restructures, build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.measure import compile_with

NAME = "no-copy"
TABLE = np.arange(40, dtype=np.int32)
STATE = (TABLE, np.int32(3))


def loop(step: Callable[[Any, Any], Any], trips: int = 12) -> Callable[[Any], Any]:
    """A loop of `step`, a function of the counter and the state."""
    return lambda state: jax.lax.fori_loop(0, trips, step, state)


def exchange(i: Any, state: Any) -> Any:
    """Two elements change places."""
    a, b = (5 * i + 2) % 40, (7 * i) % 40
    x, n = state
    return x.at[a].set(x[b]).at[b].set(x[a]), n


def twice(i: Any, state: Any) -> Any:
    """One element is written to two places."""
    x, n = state
    a = x[(5 * i + 2) % 40]
    return x.at[(7 * i) % 40].set(a).at[(3 * i + 1) % 40].add(a), n


def walk(i: Any, state: Any) -> Any:
    """The element at a place decides what is written there, and what the next place is."""
    x, place = state
    here, beside = x[place], x[(place + 1) % 40]
    return x.at[place].set(here + beside), (place + here + beside + i) % 40


def late(i: Any, x: Any) -> Any:
    """All of the old array is added after the update."""
    return x.at[i].set(x[(3 * i) % 40] + 1) + (x[::-1] // 2)


def history(i: Any, state: Any) -> Any:
    """The old array is carried on in another place."""
    x, _ = state
    return x.at[i].set(x[(3 * i) % 40] + 1), x


def doubled(i: Any, state: Any) -> Any:
    """The new array is carried on in two places: without a copy XLA aborts."""
    x, _ = exchange(i, (state[0], i))
    return x, x


def copies(graph: Any) -> int:
    """Copies of the whole table in the bodies of loops."""
    return sum(
        op.name == "copy" and graph.elements[node] == TABLE.size and graph.executions[node] > 1
        for node, op in enumerate(graph.ops)
    )


def agree(fn: Callable[..., Any], *args: Any) -> None:
    """Compares XLA's result and that without copies, in kernels and as native code, bit by bit."""
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(a, b)


def both(i: Any, state: Any) -> Any:
    """Two arrays, each updated by an element of the other: both are read before either is written."""
    x, y = state
    a, b = (3 * i) % 40, (7 * i + 1) % 40
    return x.at[a].set(y[b] + 1), y.at[b].set(x[a] - 1)


@pytest.mark.parametrize("step", [exchange, twice, walk])
def test_no_copy_is_left(step):
    graph = capture(loop(step), STATE).graph
    assert copies(graph) > 0
    decisions = everywhere(graph, NAME)
    after = apply_restructures(graph, decisions.restructure).graph
    assert copies(after) == 0
    agree(loop(step), STATE)


def test_no_copy_is_left_of_arrays_that_read_each_other():
    state = (TABLE, TABLE[::-1].copy())
    graph = capture(loop(both), state).graph
    assert copies(graph) > 0
    after = apply_restructures(graph, everywhere(graph, NAME).restructure).graph
    assert copies(after) == 0
    agree(loop(both), state)


@pytest.mark.parametrize("step", [late, history, doubled])
def test_what_is_read_later_is_copied(step):
    state = TABLE if step is late else (TABLE, TABLE)
    graph = capture(loop(step), state).graph
    assert copies(graph) > 0
    assert not graph.masks.restructure[:, CODE[NAME]].any()


def test_arrays_that_change_places_are_copied():
    def swap(i: Any, state: Any) -> Any:
        x, y = state
        return y.at[i].set(x[(i + 1) % 40]), x.at[i].set(y[(i + 2) % 40])

    graph = capture(loop(swap), (TABLE, TABLE + 3)).graph
    assert not graph.masks.restructure[:, CODE[NAME]].any()


def test_a_loop_that_is_replaced_keeps_its_copies():
    """An iteration of the new loop is four of the old one, with versions between them."""
    fn = loop(exchange)
    graph = capture(fn, STATE).graph
    decisions = everywhere(graph, NAME)
    loops = graph.masks.restructure[:, CODE["unroll-by-4"]]
    assert loops.any()
    decisions.restructure[loops] = CODE["unroll-by-4"]
    data = rewrite(graph, decisions).data
    argument = jnp.asarray(TABLE)
    got = compile_with(fn, ((argument, STATE[1]),), lambda _: data)()
    np.testing.assert_array_equal(got[0], fn(jax.tree.map(jnp.asarray, STATE))[0])
    np.testing.assert_array_equal(argument, TABLE)


def test_two_arrays_whose_readers_would_wait_for_each_other():
    """Each array is read by what comes after the update of the other: one of the two keeps its copies."""

    def step(i: Any, state: Any) -> Any:
        x, y = state
        new_x = x.at[i].set(y[(3 * i) % 40] + x[(i + 5) % 40])
        new_y = y.at[i].set(new_x[(2 * i) % 40] + y[(i + 7) % 40])
        return new_x.at[(i + 1) % 40].set(y[(i + 1) % 40]), new_y

    agree(loop(step), (TABLE, TABLE[::-1].copy()))


def test_random_numbers_drawn_ahead_of_the_loop():
    """The loop stays a loop: copies may be left out of it."""

    def fn(x: Any, seed: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), i)
            at, other = jax.random.randint(key, (2,), 0, 40)
            return x.at[at].set(x[other] + 1).at[other].set(x[at])

        return jax.lax.fori_loop(0, 20, step, x)

    args = (jnp.asarray(TABLE), jnp.uint32(3))
    graph = capture(fn, *args).graph
    decisions = everywhere(graph, NAME)
    decisions.restructure[graph.masks.restructure[:, CODE["hoist"]]] = CODE["hoist"]
    data = rewrite(graph, decisions).data
    after = build_graph(data, MACHINE)
    assert copies(after) == 0
    np.testing.assert_array_equal(compile_with(fn, args, lambda _: data)(), fn(*args))


def test_the_callers_array_is_untouched():
    graph = capture(loop(walk), STATE).graph
    data = rewrite(graph, everywhere(graph, NAME)).data
    argument = jnp.asarray(TABLE)
    compile_with(loop(walk), ((argument, STATE[1]),), lambda _: data)()
    np.testing.assert_array_equal(argument, TABLE)


READS: dict[str, Callable[[Any, Any], Any]] = {
    "element": lambda old, at: old[(at + 3) % 8, 1] + jnp.zeros(3, jnp.int32),
    "row": lambda old, at: jax.lax.dynamic_slice(old, ((at + 2) % 8, 0), (1, 3))[0] * 2,
    "sum": lambda old, _: old.sum(0) // 5,
    "other": lambda old, at: old[(at + 1) % 8],
}
"""How an update reads a version of an array: three numbers."""


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_reads_and_updates(data):
    """Updates of two arrays in any order, which read any version of either, or take its place."""
    moves = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, 1),
                st.sampled_from(sorted(READS)),
                st.integers(0, 3),  # how many versions ago
                st.sampled_from(["set", "add", "rows", "take", "swap"]),
                st.integers(1, 6),
            ),
            min_size=1,
            max_size=5,
        )
    )

    def step(i: Any, state: Any) -> Any:
        versions = [[state[0]], [state[1]]]
        for k, read, ago, write, stride in moves:
            if write in ("take", "swap"):  # of the other array's version, as a whole
                mine, other = versions[k][-1], versions[1 - k][-1]
                versions[k].append(other)
                if write == "swap":
                    versions[1 - k].append(mine)
                continue
            source = versions[1 - k if read == "other" else k]
            old = source[max(0, len(source) - 1 - ago)]
            new = versions[k][-1]
            at = (stride * i + ago) % 8
            value = READS[read](old, at) - i
            if write == "rows":
                start = (at % 6, 0)
                new = jax.lax.dynamic_update_slice(new, jnp.stack([value, value + 1]), start)
            else:
                new = getattr(new.at[at], write)(value)
            versions[k].append(new)
        return versions[0][-1], versions[1][-1]

    first = np.arange(24, dtype=np.int32).reshape(8, 3)
    state = (first, first[::-1].copy())
    graph = capture(loop(step), state).graph
    if graph.masks.restructure[:, CODE[NAME]].any():
        agree(loop(step), state)
