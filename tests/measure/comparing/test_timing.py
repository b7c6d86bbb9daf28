"""Interleaved timing against a clock that tells what we want."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from graphopt.measure.comparing import timing
from graphopt.measure.comparing.timing import compare


@dataclass
class Clock:
    """A clock that only the functions under measurement move."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


@dataclass
class Work:
    """Takes so many seconds, give or take a share of noise."""

    clock: Clock
    seconds: float
    noise: float = 0.0
    seed: int = 0
    calls: int = 0
    prepared: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def __call__(self) -> None:
        self.calls += 1
        self.clock.now += self.seconds * float(np.exp(self.noise * self.rng.standard_normal()))


def test_times_and_ratios_are_those_of_the_clock(clock):
    found = compare(Work(clock, 3e-3), Work(clock, 2e-3), budget_s=0.5)
    assert found.verdict == "faster"
    assert (found.baseline_s, found.candidate_s) == pytest.approx((3e-3, 2e-3))
    assert (found.low, found.speedup, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert compare(Work(clock, 2e-3), Work(clock, 3e-3), budget_s=0.5).verdict == "slower"


@pytest.mark.parametrize("seconds", [2e-6, 1e-4, 1e-3, 5e-2, 0.7])
def test_fast_and_slow_functions(clock, seconds):
    found = compare(Work(clock, 1.5 * seconds), Work(clock, seconds), budget_s=1.0)
    assert found.speedup == pytest.approx(1.5)
    assert found.candidate_s == pytest.approx(seconds)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_noise_alone_is_rarely_a_difference(clock, noise):
    found = [
        compare(Work(clock, 5e-3, noise, s), Work(clock, 5e-3, noise, s + 1), budget_s=0.3, seed=s)
        for s in range(0, 400, 2)
    ]
    wrong = sum(c.verdict != "no difference" for c in found)
    assert wrong <= 0.12 * len(found)
    assert all(c.low <= c.speedup <= c.high for c in found)


def test_a_real_difference_is_seen_through_noise(clock):
    found = [
        compare(Work(clock, 6e-3, 0.1, s), Work(clock, 5e-3, 0.1, s + 1), budget_s=0.5)
        for s in range(0, 60, 2)
    ]
    assert all(c.verdict == "faster" for c in found)


def test_more_noise_makes_wider_intervals(clock):
    def width(noise):
        found = compare(Work(clock, 5e-3, noise, 1), Work(clock, 5e-3, noise, 2), budget_s=0.5)
        return found.high - found.low

    assert width(0.0) == 0 < width(0.03) < width(0.3)


def test_a_disturbance_that_lasts_hits_both(clock):
    """The machine gets three times slower half way: the ratio does not care."""

    class Drifting(Work):
        def __call__(self) -> None:
            self.clock.now += self.seconds * (3.0 if self.clock.now > 0.3 else 1.0)

    found = compare(Drifting(clock, 6e-3), Drifting(clock, 5e-3), budget_s=0.8)
    assert found.speedup == pytest.approx(1.2, rel=0.01)
    assert found.verdict == "faster"


def test_the_budget_and_the_number_of_pairs_hold(clock):
    start = clock.now
    found = compare(Work(clock, 5e-3), Work(clock, 5e-3), budget_s=0.2)
    # Pairs of 10 ms until the budget is spent, after some calls that warm up and count repeats.
    assert found.pairs == 20
    assert 0.2 <= clock.now - start <= 0.24
    assert compare(Work(clock, 1.0), Work(clock, 1.0), budget_s=0.1, min_pairs=4).pairs == 4
    assert compare(Work(clock, 1e-3), Work(clock, 1e-3), budget_s=99, max_pairs=21).pairs == 21


def test_a_slow_function_is_not_run_more_than_needed(clock):
    slow = Work(clock, 2.0)
    compare(slow, Work(clock, 2.0), budget_s=0.1, min_pairs=5)
    assert slow.calls == 2 + 5


def test_a_clear_answer_ends_early(clock):
    clear = compare(
        Work(clock, 6e-3, 0.01, 1), Work(clock, 5e-3, 0.01, 2), budget_s=5.0, stop_when_clear=True
    )
    assert clear.pairs == 9 and clear.verdict == "faster"
    same = compare(
        Work(clock, 5e-3, 0.05, 1), Work(clock, 5e-3, 0.05, 2), budget_s=1.0, stop_when_clear=True
    )
    assert same.pairs > 40
    assert compare(Work(clock, 6e-3), Work(clock, 5e-3), budget_s=1.0).pairs > 40


def test_early_ends_are_rarely_wrong(clock):
    """Looking several times must not make noise into an answer."""
    ended = sum(
        compare(
            Work(clock, 5e-3, 0.1, s), Work(clock, 5e-3, 0.1, s + 1), budget_s=1.2, stop_when_clear=True
        ).pairs in (9, 13, 19, 27, 39, 57, 81)
        for s in range(0, 400, 2)
    )  # fmt: skip
    assert ended <= 0.03 * 200


def test_what_needs_preparation_is_prepared_outside_of_the_time(clock):
    @dataclass
    class Prepared(Work):
        ready: int = 0

        def prepare(self, runs: int) -> None:
            self.prepared.append(runs)
            self.ready = runs
            self.clock.now += 100.0

        def __call__(self) -> None:
            if self.prepared:
                assert self.ready > 0
                self.ready -= 1
            super().__call__()

    work = Prepared(clock, 1e-3)
    found = compare(work, Prepared(clock, 1e-3), budget_s=1e9, max_pairs=9)
    assert found.baseline_s == pytest.approx(1e-3)
    assert len(work.prepared) == 9
    assert work.ready == 0
