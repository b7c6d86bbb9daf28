"""Graphs whose callers wait for each result are compiled for it, and give the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.lazy.runtime import cut
from graphopt.lazy.runtime.waiting import MAX_CHANGES, REPEATS, WAITED_BEFORE, Waiting

DATA = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()
    with lt.config(background=False):
        yield
    lt.set_optimizer()


def _value(x: Any) -> Any:
    for k in range(3):
        x = lt.tanh(x * (1.5 + k)) - lt.flip(x)
    return lt.sum(x)


def _expected() -> float:
    x = DATA.astype(np.float64)
    for k in range(3):
        x = np.tanh(x * (1.5 + k)) - np.flip(x)
    return float(x.sum())


def _entry() -> Any:
    (entry,) = cut.cache.entries()
    return entry


def test_a_graph_that_is_observed_is_compiled_for_it_at_once() -> None:
    x = lt.asarray(DATA)
    for _ in range(WAITED_BEFORE + 3):
        np.testing.assert_allclose(float(_value(x)), _expected(), rtol=1e-3, atol=1e-3)
    assert _entry().waiting.compiled
    assert lt.metrics().compiles == 1


def test_a_graph_that_is_waited_for_later_is_compiled_anew_and_back() -> None:
    x = lt.asarray(DATA)
    for _ in range(3):
        with lt.step():
            _ = _value(x)
    assert not _entry().waiting.compiled
    for _ in range(REPEATS + 1):
        found = float(_value(x))
    assert _entry().waiting.compiled
    np.testing.assert_allclose(found, _expected(), rtol=1e-3, atol=1e-3)
    for _ in range(REPEATS + 1):
        with lt.step():
            last = _value(x)
    assert not _entry().waiting.compiled
    np.testing.assert_allclose(float(last), _expected(), rtol=1e-3, atol=1e-3)
    assert lt.metrics().compiles == 1 + MAX_CHANGES


def test_no_optimizer_means_no_other_program() -> None:
    lt.set_optimizer(None)
    x = lt.asarray(DATA)
    for _ in range(3):
        with lt.step():
            _ = _value(x)
    for _ in range(REPEATS + 4):
        np.testing.assert_allclose(float(_value(x)), _expected(), rtol=1e-3, atol=1e-3)
    assert _entry().outcome == ""
    assert lt.metrics().compiles == 1


def test_runs_of_one_kind_are_counted_in_a_row() -> None:
    waiting = Waiting()
    for cause, row in (("float", 1), ("numpy", 2), ("step", -1), ("eval", -2), ("bool", 1)):
        waiting.count(cause)
        assert waiting.row == row
