"""Small steps that repeat run together: the same results, with fewer programs run."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.lazy.record import recorder
from graphopt.lazy.runtime.cut import cache
from graphopt.lazy.runtime.steps import program
from graphopt.lazy.runtime.steps.queue import PATIENCE
from graphopt.lazy.runtime.steps.relation import OWN, SAME, closure
from graphopt.lazy.runtime.steps.work import MAX_WORK, MOST, work_of

START = np.linspace(0.1, 0.9, 12, dtype=np.float32)


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()
    with lt.config(batch_steps="at once"):
        yield
    lt.sync()


def _next(x: Any, v: Any, rate: float = 0.25) -> tuple[Any, Any]:
    v = 0.9 * v - rate * lt.sin(x)
    return x + 0.1 * v, v


def _expected(steps: int, rate: Callable[[int], float] = lambda k: 0.25) -> list[Any]:
    x, v = START.astype(np.float64), np.zeros(12)
    found = []
    for k in range(steps):
        v = 0.9 * v - rate(k) * np.sin(x)
        x = x + 0.1 * v
        found.append(x)
    return found


def _state() -> tuple[Any, Any]:
    return lt.asarray(START), lt.zeros(12)


def _run(steps: int, rate: Callable[[int], float] = lambda k: 0.25) -> Any:
    x, v = _state()
    for k in range(steps):
        with lt.step():
            x, v = _next(x, v, rate(k))
    return x


def _near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", [5, 34, 3 * MOST + 7])
def test_results_are_those_of_step_by_step(steps: int) -> None:
    for _ in range(2):
        _near(_run(steps), _expected(steps)[-1])
    assert lt.metrics().together > steps


def test_steps_wait_until_somebody_looks() -> None:
    x, v = _state()
    for _ in range(6):
        with lt.step():
            x, v = _next(x, v)
    waiting = recorder.state.now.later
    assert len(waiting) > 1 and x.pending
    _near(x, _expected(6)[-1])
    assert not recorder.state.now.later and not v.pending


@pytest.mark.parametrize("ends", ["sync", "eval", "pytree", "other graph"])
def test_whatever_looks_runs_them(ends: str) -> None:
    x, v = _state()
    for _ in range(6):
        with lt.step():
            x, v = _next(x, v)
    if ends == "sync":
        lt.sync()
    elif ends == "eval":
        lt.eval(v)
    elif ends == "pytree":
        jax.tree.map(lambda leaf: leaf, (x, v))
    else:
        assert np.isfinite(float(lt.sum(lt.ones(3))))
    assert not recorder.state.now.later and not x.pending
    _near(x, _expected(6)[-1])


def test_results_of_every_step_that_somebody_holds_are_there() -> None:
    x, v = _state()
    held, sums = [], []
    for k in range(12):
        with lt.step():
            x, v = _next(x, v)
            sums.append(lt.sum(x))
        if k % 3 == 0:
            held.append(x)
    expected = _expected(12)
    for found, wanted in zip(held, expected[::3], strict=True):
        _near(found, wanted)
    _near([float(s) for s in sums], [e.sum() for e in expected])


def test_numbers_may_change_from_step_to_step() -> None:
    def rate(k: int) -> float:
        return 0.25 + 0.01 * k

    for _ in range(2):
        _near(_run(20, rate), _expected(20, rate)[-1])
    assert lt.metrics().together > 20


def test_each_step_may_have_its_own_data() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 12)).astype(np.float32)

    def run() -> Any:
        x = lt.asarray(START)
        for row in rows:
            with lt.step():
                x = 0.5 * x + lt.asarray(row)
        return np.asarray(x)

    expected = START.copy()
    for row in rows:
        expected = 0.5 * expected + row
    for _ in range(2):
        _near(run(), expected)
    assert lt.metrics().together > 20


def test_another_relation_between_steps_ends_a_row() -> None:
    x, v = _state()
    a, b = START.astype(np.float64), np.zeros(12)
    for k in range(24):
        if k % 8 == 7:  # the next step begins with the two in each other's place
            x, v, a, b = v, x, b, a
        with lt.step():
            x, v = _next(x, v)
        b = 0.9 * b - 0.25 * np.sin(a)
        a = a + 0.1 * b
    _near(x, a)
    _near(v, b)


def test_other_threads_see_results() -> None:
    x, v = _state()
    for _ in range(6):
        with lt.step():
            x, v = _next(x, v)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(np.asarray(x * 2.0)))
    thread.start()
    thread.join()
    _near(found[0], 2 * _expected(6)[-1])
    _near(x, _expected(6)[-1])


def test_many_threads_make_steps() -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        x = _run(20 + number)
        found[number] = np.asarray(x)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        _near(found[number], _expected(20 + number)[-1])


def test_gradients_of_steps_that_wait() -> None:
    def loss(x: Any) -> Any:
        return lt.sum(lt.sin(x) * x)

    x = lt.asarray(START)
    reference = START.astype(np.float64)
    for _ in range(9):
        with lt.step():
            x = x - 0.1 * lt.grad(loss)(x)
        reference = reference - 0.1 * (np.cos(reference) * reference + np.sin(reference))
    _near(x, reference)


def test_a_mapped_function_of_steps_that_wait() -> None:
    x, v = _state()
    for _ in range(6):
        with lt.step():
            x, v = _next(x, v)
    _near(lt.vmap(lambda a: a * 2.0)(x), 2 * _expected(6)[-1])
    _near(lt.vmap(lambda a: a)(v + 0.0), np.asarray(v))


def test_a_loop_that_fails_leaves_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, steps: Any) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(program.Program, "values", fail)
    _near(_run(12), _expected(12)[-1])
    assert lt.metrics().fallbacks["steps together: RuntimeError"] == 1
    assert lt.metrics().together == 0


def test_a_loop_that_does_not_compile_leaves_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *arguments: Any) -> Any:
        raise RuntimeError("cannot be traced")

    monkeypatch.setattr(program.Program, "_run", fail)
    _near(_run(12), _expected(12)[-1])
    assert lt.metrics().fallbacks["compile failed: RuntimeError"] == 1


def test_steps_run_at_once_where_that_is_asked_for() -> None:
    with lt.config(batch_steps=False):
        x, v = _state()
        for _ in range(6):
            with lt.step():
                x, v = _next(x, v)
            assert not x.pending
    assert lt.metrics().together == 0


def test_usual_patience_depends_on_steps_alone() -> None:
    usual = PATIENCE[True]
    with lt.config(batch_steps=True):
        _run(usual.first)
        assert lt.metrics().together == 0 and not recorder.state.now.later
        lt.clear_caches()
        _run(usual.first + usual.due + 4 * MOST)
    assert lt.metrics().together >= MOST


def test_graphs_that_do_not_suit_run_at_once() -> None:
    wide = lt.ones((1100, 1100))
    x = lt.asarray(START)
    for _ in range(4):
        with lt.step():
            wide = wide * 0.5 + 1.25
        assert not wide.pending  # too large
        with lt.checked(), lt.step():
            y = x * 0.5
        assert not y.pending
    assert lt.metrics().together == 0


def _walk(start: int, steps: int, size: int) -> tuple[Any, list[Any]]:
    """Goes over a table by computed positions, beyond its end if it is short; position and sums."""
    table = lt.asarray(np.arange(1.0, size + 1.0, dtype=np.float32))
    position, total = lt.asarray(np.array([start], np.int32)), lt.zeros(1)
    sums = []
    for _ in range(steps):
        with lt.step():
            total = total + lt.take(table, position)
            position = position + 2
            sums.append(total)
    return position, sums


def test_indices_are_checked_in_steps_that_run_together() -> None:
    position, sums = _walk(0, 8, 16)
    expected = np.cumsum(1.0 + 2.0 * np.arange(8))
    _near([float(s[0]) for s in sums], expected)
    assert int(position[0]) == 16
    assert lt.metrics().together >= 4


def test_an_index_out_of_range_is_an_error_from_its_step_on() -> None:
    for _ in range(2):
        position, sums = _walk(0, 8, 9)
        lt.sync()
        for k, total in enumerate(sums[:5]):
            assert float(total[0]) == (k + 1) ** 2
        for total in sums[5:]:
            with pytest.raises(lt.LazyIndexError, match="take"):
                float(total[0])
        assert int(position[0]) == 16  # does not depend on what was taken
    assert lt.metrics().together >= 7


def test_steps_of_what_came_of_a_wrong_index_are_errors_too() -> None:
    table = lt.asarray(START)
    with lt.config(tier="compiled"):
        x = lt.take(table, lt.asarray(np.array([3, 99])) + 0)
        lt.sync()
        for _ in range(6):
            with lt.step():
                x = x * 0.5
    with pytest.raises(lt.LazyIndexError):
        np.asarray(x)


def test_what_a_later_step_depends_on() -> None:
    roots = (((0,), frozenset({0})), ((), frozenset({1})), ((), frozenset({2, 3})))
    assert closure(roots, (SAME, 0, 1, OWN)) == [
        ((0,), frozenset({0})),
        ((0,), frozenset({0, 1})),
        ((0,), frozenset({0, 1, 2, 3})),
    ]


def test_steps_that_wait_are_shown_as_what_they_are() -> None:
    x, v = _state()
    for _ in range(6):
        with lt.step():
            x, v = _next(x, v)
    assert "computed" in lt.show(x)
    assert f"{lt.metrics().together} steps together" in str(lt.metrics())


def test_exceptions_in_a_step_leave_what_waits() -> None:
    x, v = _state()
    for _ in range(6):
        with lt.step():
            x, v = _next(x, v)
    with pytest.raises(ZeroDivisionError), lt.step():
        x, v = _next(x, v)
        _ = 1 / 0
    _near(x, _expected(7)[-1])


def test_arrays_that_others_have_are_used_at_once() -> None:
    given = jnp.asarray(START)
    x, outside = lt.zeros(12), lt.from_jax(given)
    for _ in range(4):
        with lt.step():
            x = 0.5 * x + outside
        assert not x.pending
    given.delete()  # as a jitted function does to which it is donated
    _near(x, START * (2 - 0.5**3))
    for k in range(8):
        with lt.step():
            x = x * 0.5
        if k == 5:
            lt.to_jax(x).delete()
            x = lt.asarray(START)
    _near(x, START / 4)


def test_forgotten_graphs_still_run() -> None:
    x, v = _state()
    for _ in range(6):
        with lt.step():
            x, v = _next(x, v)
    lt.clear_caches()
    assert not cache.entries()
    _near(x, _expected(6)[-1])


def test_products_count_by_their_multiply_adds() -> None:
    a, b = lt.ones((64, 32)), lt.ones((32, 128))
    product = (a @ b)._node
    assert product.instr is not None
    assert work_of(product.instr) == 64 * 32 * 128 // 8 < MAX_WORK
