"""Random loops: following earlier traces gives what recording anew gives, and leaves nothing behind."""

from typing import Any

import pytest
from rich.console import Console

import graphopt.lazy as lt
from graphopt.evaluate.fuzzing import lazy_loops
from graphopt.evaluate.fuzzing.lazy_loops import check_loop, fuzz_lazy_loops, left_behind


@pytest.fixture(autouse=True)
def fresh() -> None:
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()


@pytest.mark.parametrize("seed", range(2004, 2012))
def test_random_loops_op_by_op(seed: int) -> None:
    assert check_loop(seed, "op-by-op") is None


@pytest.mark.parametrize("seed", range(2100, 2103))
def test_random_loops_compiled(seed: int) -> None:
    assert check_loop(seed, "compiled") is None


def test_loops_follow_earlier_traces() -> None:
    lt.reset_metrics()
    for seed in range(2000, 2004):
        assert check_loop(seed, "op-by-op") is None
    found = lt.metrics()
    assert found.followed > found.graphs / 4


def test_values_that_differ_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def other_values(loop: Any, x: Any, y: Any) -> Any:
        calls.append(0)
        return x + 0.001 * len(calls)

    monkeypatch.setattr(lazy_loops, "_STATEMENTS", (other_values,))
    found = fuzz_lazy_loops(1, 1, Console(quiet=True))
    assert found
    assert "differs" in found[0].what


def test_what_is_left_behind_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def product(loop: Any, x: Any, y: Any) -> Any:
        return x * y

    def hoarded(loop: Any, x: Any, y: Any) -> Any:
        kept.append(x * y)
        return kept[-1]

    monkeypatch.setattr(lazy_loops, "_STATEMENTS", (product,))
    assert left_behind(3) == 0
    monkeypatch.setattr(lazy_loops, "_STATEMENTS", (hoarded,))
    assert left_behind(3) >= 2 * lazy_loops.ROUNDS
