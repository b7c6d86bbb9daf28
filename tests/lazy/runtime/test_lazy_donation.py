"""Buffers given to compiled graphs: what anybody can still look at keeps its value."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphopt.lazy as lt
from graphopt.lazy.runtime import cut, donation
from graphopt.lazy.runtime.trace import Plan

SHAPE = (3, 5)
STEPS_BEFORE = 3  # op by op, compiled, and once with buffers that the runtime made


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(donation, "MIN_BYTES", 1)
    lt.set_optimizer(None)  # under any optimizer, some versions of jaxlib keep no donation
    lt.clear_caches()
    yield
    lt.set_optimizer()


def _start(seed: int = 0) -> tuple[list[Any], list[Any]]:
    data = np.random.default_rng(seed).normal(size=(2, *SHAPE)).astype(np.float32)
    return [lt.asarray(x) for x in data], list(data)


def _step(state: list[Any], rate: float = 0.25) -> None:
    with lt.step():
        state[1] = state[1] * 0.5 + lt.tanh(state[0])
        state[0] = state[0] - rate * state[1]


def _expected(state: list[Any], rate: float = 0.25) -> None:
    state[1] = state[1] * np.float32(0.5) + np.tanh(state[0])
    state[0] = state[0] - np.float32(rate) * state[1]


def _donated(run: Any) -> int:
    before = lt.metrics().donated
    run()
    return int(lt.metrics().donated - before)


def test_a_training_step_writes_into_its_own_buffers() -> None:
    state, model = _start()
    pointers = set()

    def run() -> None:
        for k in range(12):
            _step(state, 0.25 + k)
            _expected(model, 0.25 + k)
            if k > STEPS_BEFORE:
                lt.eval(state, wait=True)
                pointers.add(frozenset(x._node.data.unsafe_buffer_pointer() for x in state))

    assert _donated(run) >= 10
    assert len(pointers) == 1
    for x, y in zip(state, model, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128", "bfloat16"])
def test_other_types_are_kept(dtype: str) -> None:
    x = lt.asarray(np.arange(12), dtype=getattr(lt, dtype))
    for k in range(6):
        held = lt.to_jax(x) if k % 2 else None
        with lt.step():
            x = x * 2 + 1
        assert held is None or held.dtype == np.dtype(x._node.aval.dtype.np)
    expected = np.arange(12) * 64 + 63
    assert np.asarray(x).dtype == np.dtype(x._node.aval.dtype.np)
    np.testing.assert_allclose(np.real(np.asarray(x)).astype(float), expected, rtol=1e-2)


def _jax(x: Any) -> Any:
    return lt.to_jax(x)


def _part(x: Any) -> Any:
    return lt.to_jax(x).addressable_data(0)  # another array of the same buffer


def _elsewhere(x: Any, scale: float) -> Any:
    """`x` times a number, recorded by another thread: cuts of this one do not compute it."""
    handed: list[Any] = []
    thread = threading.Thread(target=lambda: handed.append(x * scale + 0.0))
    thread.start()
    thread.join()
    return handed[0]


def _pending(x: Any) -> Any:
    return _elsewhere(x, 1.0)


def _inner(x: Any) -> Any:
    return _elsewhere(x * 4.0, 0.25)  # on a value that only the recording of this thread has


def _gradient(x: Any) -> Any:
    _, pull = lt.vjp(lambda y: y * y, x)
    return lambda: pull(lt.full(SHAPE, 0.5))[0]


HOLDERS: dict[str, Any] = {
    "tensor": lambda x: x,
    "copy": lambda x: x.__copy__(),
    "numpy": np.asarray,
    "memory": lambda x: memoryview(np.asarray(x)),
    "jax": _jax,
    "part": _part,
    "dlpack": np.from_dlpack,
    "pending": _pending,
    "inner": _inner,
    "gradient": _gradient,
    "generator": lambda x: (y for y in [x]),
}


def _value(held: Any) -> Any:
    if callable(held):
        held = held()
    return np.asarray(next(held) if hasattr(held, "__next__") else held)


ACTION = st.tuples(st.sampled_from(sorted(HOLDERS)), st.integers(0, 1))


@given(st.lists(st.lists(ACTION, max_size=2), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_somebody_holds_keeps_its_value(rounds: list[list[tuple[str, int]]]) -> None:
    _hold(rounds)


def _hold(rounds: list[list[tuple[str, int]]]) -> None:
    state, model = _start()
    for _ in range(STEPS_BEFORE):
        _step(state)
        _expected(model)
    held: list[tuple[str, Any, Any]] = []
    for actions in rounds:
        for name, which in actions:
            held.append((name, HOLDERS[name](state[which]), model[which].copy()))
        _step(state)
        _expected(model)
    _step(state)
    _expected(model)
    for name, thing, value in held:
        np.testing.assert_allclose(_value(thing), value, rtol=1e-3, atol=1e-4, err_msg=name)
    for x, y in zip(state, model, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", sorted(HOLDERS))
def test_each_holder_alone(name: str) -> None:
    _hold([[(name, 0), (name, 1)], []])


def test_a_buffer_in_use_every_time_ends_it() -> None:
    state, model = _start()
    seen = []
    for _ in range(STEPS_BEFORE):
        _step(state)
        _expected(model)
    for _ in range(donation.PATIENCE + 3):
        seen.append((lt.to_jax(state[0]), model[0].copy()))
        _step(state)
        _expected(model)
    compiles = lt.metrics().compiles

    def run() -> None:
        for _ in range(5):
            _step(state)

    assert _donated(run) == 0
    assert lt.metrics().compiles == compiles  # and it is not tried again
    for array, value in seen:
        np.testing.assert_allclose(np.asarray(array), value, rtol=1e-3, atol=1e-4)


class _Failing:
    """An executable that fails before it runs."""

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError("no memory")


def test_a_run_that_fails_loses_nothing() -> None:
    state, model = _start()
    for _ in range(STEPS_BEFORE + 1):
        _step(state)
        _expected(model)
    entry = next(e for e in cut.cache.entries() if e.giving.pairing.leaves)
    working, entry.executable = entry.executable, _Failing()
    with pytest.raises(lt.LazyError, match="no memory"):
        _step(state)
    entry.executable = working
    _expected(model)
    for x, y in zip(state, model, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-3)


def test_a_compile_that_fails_keeps_the_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    state, model = _start()
    for _ in range(STEPS_BEFORE + 1):
        _step(state)
        _expected(model)
    monkeypatch.setattr(donation, "PATIENCE", 0)
    monkeypatch.setattr(jax, "jit", _Failing())
    for _ in range(3):
        held = lt.to_jax(state[0])
        value = model[0].copy()
        _step(state)
        _expected(model)
        np.testing.assert_allclose(np.asarray(held), value, rtol=1e-3)
    np.testing.assert_allclose(np.asarray(state[0]), model[0], rtol=1e-3)


def test_results_take_the_buffer_of_what_they_update() -> None:
    state, _ = _start()
    for _ in range(STEPS_BEFORE):
        _step(state)
    entry = next(e for e in cut.cache.entries() if e.giving.pairing.leaves)
    plan: Plan = entry.plan
    pairing = entry.giving.pairing
    assert sorted(pairing.order) == [0, 1]
    made = {step.out: step.instr.op.name for step in plan.steps}
    taken = dict(zip(pairing.leaves, pairing.order, strict=True))
    for leaf, root in taken.items():
        readers = [s for s in plan.steps if plan.leaf_slots[leaf] in s.inputs]
        wanted = "add" if readers[0].instr.op.name == "multiply" else "subtract"
        assert made[plan.root_slots[root]] == wanted
