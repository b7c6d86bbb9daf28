"""Loops without steps: repeated operations are found, and recorded and run round by round."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.lazy.record import recorder
from graphopt.lazy.record.rounds import MIN_MOVES, find_rounds
from graphopt.lazy.runtime.cut import cache

LIMIT = 400


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()
    with lt.config(trace_limit=LIMIT):
        yield
    lt.sync()


def _pendulum(x: Any, v: Any, xp: Any = lt) -> tuple[Any, Any]:
    force = xp.sin(x) + 0.25 * xp.cos(x * 2.5)
    v = 0.9 * v - 0.125 * force
    return x + 0.1 * v, v


def _run(steps: int) -> tuple[Any, Any]:
    x, v = lt.asarray(np.linspace(0.1, 0.9, 12, dtype=np.float32)), lt.zeros(12)
    for _ in range(steps):
        x, v = _pendulum(x, v)
    return x, v


def _expected(steps: int) -> Any:
    x, v = np.linspace(0.1, 0.9, 12), np.zeros(12)
    for _ in range(steps):
        x, v = _pendulum(x, v, np)
    return x


def _near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 39, 200, 501])
def test_results_are_those_of_the_loop(steps: int) -> None:
    for _ in range(3):
        _near(_run(steps)[0], _expected(steps))


def test_a_long_loop_is_a_few_small_graphs() -> None:
    for _ in range(3):
        _near(_run(1000)[0], _expected(1000))
    found = lt.metrics()
    assert found.cut_causes["trace limit"] == 1  # rounds are known from then on
    assert found.cut_causes["round"] > 100
    assert found.distinct_graphs < 8
    assert max(len(e.plan.steps) for e in cache.entries() if e.state == "ready") < 2 * MIN_MOVES


def test_rounds_run_together() -> None:
    with lt.config(batch_steps="at once"):
        for _ in range(2):
            _near(_run(1000)[0], _expected(1000))
    assert lt.metrics().together > 100


def test_a_loop_that_changes_is_recorded_as_it_comes() -> None:
    x, v = _run(0)
    reference, u = np.linspace(0.1, 0.9, 12), np.zeros(12)
    for k in range(400):
        x, v = _pendulum(x, v)
        reference, u = _pendulum(reference, u, np)
        if k > 150 and k % 70 == 0:
            x, reference = x * 0.5, reference * 0.5
        if k == 300:
            total = float(lt.sum(v))
            assert abs(total - u.sum()) < 1e-3
    _near(x, reference)


def test_what_is_kept_of_rounds_is_there() -> None:
    x, v = _run(0)
    kept = []
    for k in range(300):
        x, v = _pendulum(x, v)
        if k % 25 == 0:
            kept.append(x)
    for k, found in enumerate(kept):
        _near(found, _expected(25 * k + 1))


def test_gradients_in_a_loop() -> None:
    def loss(w: Any) -> Any:
        return lt.sum(lt.tanh(w) * w - 0.3 * w)

    w = lt.asarray(np.linspace(-1, 1, 6, dtype=np.float32))
    reference = np.linspace(-1, 1, 6)
    for _ in range(120):
        w = w - 0.05 * lt.grad(loss)(w)
        slope = np.tanh(reference) + reference / np.cosh(reference) ** 2 - 0.3
        reference = reference - 0.05 * slope
    _near(w, reference)
    assert lt.metrics().cut_causes["round"] > 3


def test_own_numbers_and_arrays_in_every_round() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    x, reference = lt.zeros(5), np.zeros(5)
    for k, row in enumerate(rows):
        x = 0.5 * x + lt.asarray(row) * (2.0 + k)
        x = lt.tanh(x) + 0.01 * k
        reference = np.tanh(0.5 * reference + row * (2.0 + k)) + 0.01 * k
    _near(x, reference)
    assert lt.metrics().cut_causes["round"] > 3


def test_steps_of_a_loop_are_left_to_those_who_mark_them() -> None:
    with lt.config(step_limit=LIMIT), lt.step():
        x, _ = _run(200)
    _near(x, _expected(200))
    assert "round" not in lt.metrics().cut_causes


def _last_move(record: Callable[[Any, int], Any], times: int) -> Any:
    with lt.config(trace_limit=10_000):
        x = lt.ones(3)
        for k in range(times):
            x = record(x, k)
        found = recorder.state.now.next.parent
        lt.sync()
    return found


def test_short_rounds_are_taken_together() -> None:
    found = find_rounds(_last_move(lambda x, k: lt.sin(x) * 1.5, 2 * MIN_MOVES))
    assert found is not None
    assert len(found.whole) == MIN_MOVES
    assert {i.op.name for i in found.whole if i} == {"sin", "multiply"}


def test_what_does_not_repeat_has_no_rounds() -> None:
    names = ("sin", "cos", "tanh", "exp")
    order = np.random.default_rng(1).integers(0, 4, 200)
    assert find_rounds(_last_move(lambda x, k: getattr(lt, names[order[k]])(x), 200)) is None


def test_equal_operations_on_other_values_are_no_round() -> None:
    early: list[Any] = []

    def record(x: Any, k: int) -> Any:
        early.append(x)
        return x + early[k // 2]  # ever further back

    assert find_rounds(_last_move(record, 100)) is None
