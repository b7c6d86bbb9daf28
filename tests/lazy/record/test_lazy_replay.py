"""Recordings that follow earlier ones: the same values as recordings that do not, however they differ."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphopt.lazy as lt
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import recorder, traces
from graphopt.lazy.runtime import compiling

DATA = [np.random.default_rng(k).normal(size=(2, 3)).astype(np.float32) for k in range(4)]

NUMBERS = st.sampled_from([0, 1, 2, -3, 0.0, -0.0, 1.0, 0.5, 2.5, True, float("inf")])
STATEMENT = st.one_of(
    st.tuples(st.just("unary"), st.sampled_from(["tanh", "sin", "abs"]), st.integers(0, 9)),
    st.tuples(
        st.just("binary"),
        st.sampled_from(["add", "multiply", "maximum"]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    st.tuples(st.just("number"), st.sampled_from("+-*r"), st.integers(0, 9), NUMBERS),
    st.tuples(st.just("sum"), st.sampled_from([0, 1, None]), st.integers(0, 9)),
    st.tuples(st.just("gradient"), st.integers(0, 9), st.sampled_from([0.5, 2.0, 3.0])),
    st.tuples(st.just("write"), st.integers(0, 9), st.integers(0, 9), st.sampled_from([0, 5.0])),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("hold"), st.integers(0, 9)),
    st.tuples(st.just("look"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("step")),
)
PROGRAM = st.lists(STATEMENT, min_size=1, max_size=14)


def run(program: list[tuple[Any, ...]], shift: float) -> list[Any]:
    """What the tensors of a program hold at its end, and what it saw on the way."""
    pool = [lt.asarray(x + shift) for x in DATA]
    seen: list[Any] = []
    for statement in program:
        _statement(statement, pool, seen)
    return seen + [np.array(x) for x in pool]


def _statement(statement: tuple[Any, ...], pool: list[Any], seen: list[Any]) -> None:
    name, *rest = statement

    def pick(k: int) -> Any:
        return pool[k % len(pool)]

    if name == "unary":
        pool.append(getattr(lt, rest[0])(pick(rest[1])))
    elif name == "binary":
        pool.append(getattr(lt, rest[0])(pick(rest[1]), pick(rest[2])))
    elif name == "number":
        x, value = pick(rest[1]), rest[2]
        table = {"+": lambda: x + value, "-": lambda: x - value, "*": lambda: x * value}
        pool.append(table.get(rest[0], lambda: value - x)())
    elif name == "sum":
        total = lt.sum(pick(rest[1]), axis=rest[0], keepdims=True)
        pool.append(lt.broadcast_to(total, (2, 3)) * 0.1)
    elif name == "gradient":
        scale = rest[1]
        pool.append(lt.grad(lambda y: lt.sum(lt.tanh(y * scale) * y + y))(pick(rest[0])))
    elif name == "write":
        pick(rest[0])[0, rest[1] % 3] = rest[2]
    elif name == "drop" and len(pool) > 2:
        del pool[rest[0] % len(pool)]
    elif name == "hold":
        pool.append(lt.asarray(pick(rest[0]), copy=True))
    elif name == "look":
        seen.append(np.array(lt.sum(pick(rest[0]))))
    elif name == "fail":
        with pytest.raises(ValueError, match="broadcast"):
            pick(rest[0]) + lt.ones((5, 7))
    elif name == "sync":
        lt.sync()
    elif name == "step":
        with lt.step():
            pool[0] = pool[0] * 0.75 + pool[-1]


@given(st.lists(PROGRAM, min_size=1, max_size=3), st.sampled_from([0.0, 0.25]))
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_programs_are_the_same_with_and_without(
    programs: list[list[tuple[Any, ...]]], shift: float
) -> None:
    # op by op: nothing is compiled, so equal means equal bit by bit
    with lt.config(tier="op-by-op"), np.errstate(all="ignore"):
        with lt.config(replay=False):
            expected = [run(program, k * shift) for program in programs for k in range(2)]
        lt.sync()
        for _ in range(3):  # programs share beginnings: each follows and leaves the others
            found = [run(program, k * shift) for program in programs for k in range(2)]
            for mine, others in zip(found, expected, strict=True):
                assert len(mine) == len(others)
                for a, b in zip(mine, others, strict=True):
                    np.testing.assert_array_equal(a, b)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    lt.sync()
    lt.clear_caches()
    traces.tree.clear()
    recorder.state.now.restart()
    lt.reset_metrics()
    yield
    lt.sync()
    compiling.background.drain()  # later tests count compiles


def test_a_loop_follows_from_its_second_round_on() -> None:
    w, x = lt.asarray(DATA[0]), lt.asarray(DATA[1])
    gradient = lt.value_and_grad(lambda w, rate: lt.sum(lt.tanh(w * x) * rate))
    for k in range(8):
        with lt.step():
            _, g = gradient(w, 0.5 + k)  # the rate changes
            w = w - 0.1 * g
    found = lt.metrics()
    assert (found.graphs, found.distinct_graphs) == (8, 1)
    assert found.followed >= 5
    reference = DATA[0].copy()
    for k in range(8):
        reference -= 0.1 * (0.5 + k) * DATA[1] / np.cosh(reference * DATA[1]) ** 2
    np.testing.assert_allclose(np.asarray(w), reference, rtol=1e-4, atol=1e-5)


def test_nothing_new_is_kept_while_following() -> None:
    x = lt.asarray(DATA[0])
    for k in range(6):
        moves = traces.tree.moves
        x = lt.tanh(x * (2.5 + k)) + 0.5
        lt.sync()
        assert k == 0 or traces.tree.moves == moves


def test_branches_of_a_trace_stay_known() -> None:
    x = lt.asarray(DATA[0])
    sizes = []
    for k in range(12):
        y = lt.sin(x)
        y = lt.exp(y) if k % 3 else lt.cos(y) * 0.25
        expected = np.sin(DATA[0])
        expected = np.exp(expected) if k % 3 else np.cos(expected) * 0.25
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-6)
        sizes.append(traces.tree.moves)
    assert sizes[3] == sizes[-1]


def test_other_tensors_alive_are_another_graph() -> None:
    x = lt.asarray(DATA[0])
    for keep in (False, True, False, True):
        first = lt.sin(x)
        second = first * 2.5
        if not keep:
            del first
        lt.sync()
        assert not second.pending
        assert lt.metrics().cuts[-1].nodes == 2
        if keep:
            assert not first.pending
            np.testing.assert_allclose(np.asarray(first), np.sin(DATA[0]), rtol=1e-6)
    assert lt.metrics().distinct_graphs == 2


def test_a_number_used_twice_is_not_two_numbers_that_were_equal_once() -> None:
    x = lt.asarray(DATA[0])
    for low, high in ((-0.5, 0.5), (-0.5, -0.5), (0.25, 0.75)):
        y = lt.clip(x * 2.0, low, high) + low * 0 + x * high
        expected = np.clip(DATA[0] * 2, low, high) + DATA[0] * np.float32(high)
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-6)


def test_one_tensor_in_two_places_and_two_tensors_are_told_apart() -> None:
    a, b = lt.asarray(DATA[0]), lt.asarray(DATA[1])
    for left, right in ((a, b), (a, a), (b, a), (b, b), (a, b)):
        found = np.asarray(left * right - right)
        x, y = np.asarray(left), np.asarray(right)
        np.testing.assert_allclose(found, x * y - y, rtol=1e-6)


def test_an_exception_in_a_step_leaves_what_was_recorded() -> None:
    x = lt.asarray(DATA[0])
    for k in range(4):
        with pytest.raises(RuntimeError, match="stop"), lt.step():
            kept = x * 3.0
            raise RuntimeError("stop")
        with lt.step():
            x = x + 1
        np.testing.assert_allclose(np.asarray(kept), (DATA[0] + k) * 3, rtol=1e-5)


def test_trees_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_MOVES", 50)
    for n in range(1, 40):
        x = lt.ones(n)
        np.testing.assert_allclose(np.asarray(lt.sin(x) * 2.5 + x), np.sin(1) * 2.5 + 1, rtol=1e-6)
        assert traces.tree.moves < 60


def test_buffers_that_nobody_needs_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "LIMIT_BYTES", 1 << 20)
    local = recorder.state.now
    local.restart()
    for k in range(40):
        x = lt.asarray(np.full((64, 1024), k, np.float32))
        y = lt.sin(x) + k
        del x
        assert local.recording.held_bytes <= 3 << 20
    np.testing.assert_allclose(np.asarray(y)[0, 0], np.sin(39) + 39, rtol=1e-6)


def test_a_pending_tensor_does_not_keep_buffers_of_others() -> None:
    big, other = lt.asarray(np.ones((256, 256), np.float32)), lt.asarray(DATA[0])
    alone = other * 2.5
    kept = lt.sum(big * 3.0)
    assert float(kept) == 3.0 * 256 * 256  # `alone` shares nothing with it
    assert alone.pending
    recording = alone._node.recording
    assert recording is None or big._node not in recording.slots
    np.testing.assert_allclose(np.asarray(alone), DATA[0] * 2.5)


def test_threads_follow_the_same_tree() -> None:
    errors: list[BaseException] = []
    shared = lt.asarray(DATA[0]) * 2.5

    def work(number: int) -> None:
        try:
            for k in range(12):
                x = lt.asarray(DATA[number % 4]) * (number + 2.5) + shared
                for _ in range(k % 3):
                    x = lt.tanh(x) * 1.5
                expected = DATA[number % 4] * (number + 2.5) + DATA[0] * 2.5
                for _ in range(k % 3):
                    expected = np.tanh(expected) * 1.5
                np.testing.assert_allclose(np.asarray(x), expected, rtol=1e-5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_operands_of_another_thread_may_be_younger() -> None:
    handed: list[Any] = []
    mine = lt.asarray(DATA[0]) * 2.5

    def work() -> None:
        handed.append(lt.sin(mine) + 0.5)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    both = handed[0] * mine  # recorded here, on a value of the younger recording
    expected = (np.sin(DATA[0] * 2.5) + 0.5) * DATA[0] * 2.5
    np.testing.assert_allclose(np.asarray(both), expected, rtol=1e-5)


def test_generators_keep_their_tensors() -> None:
    def powers(x: Any) -> Iterator[Any]:
        y = x
        while True:
            yield y
            y = y * x

    for _ in range(3):
        source = powers(lt.asarray(DATA[0]))
        next(source)
        square = next(source)
        lt.sync()
        cube = next(source)
        np.testing.assert_allclose(np.asarray(cube), DATA[0] ** 3, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(square), DATA[0] ** 2, rtol=1e-5)
    gc.collect()


def test_a_number_given_twice_to_one_operation() -> None:
    x = lt.asarray(DATA[0])
    for same in (True, False, True):
        one = recorder.scalar(2.5, x.dtype, x.device)
        two = one if same else recorder.scalar(-1.5, x.dtype, x.device)
        nodes = ((x > 0)._node, one, two)
        found = recorder.record(OPS["where"], nodes)
        expected = np.where(DATA[0] > 0, 2.5, 2.5 if same else -1.5)
        np.testing.assert_array_equal(np.asarray(found), expected)
