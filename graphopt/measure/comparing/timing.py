"""Interleaved timing: ratios that hold on a noisy machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

MIN_SAMPLE_S: Final = 2e-3
"""One sample repeats a fast function until it takes about this long."""

SLOW_S: Final = 0.05
"""A function that takes longer is warm after two calls."""


@dataclass(frozen=True)
class Comparison:
    """Time of a baseline against a candidate, measured in turn.

    Attributes:
        baseline_s: median seconds of the baseline.
        candidate_s: median seconds of the candidate.
        speedup: median of the paired ratios baseline / candidate; above 1 means faster.
        low: lower end of the 95 % bootstrap interval of `speedup`.
        high: upper end of it.
        pairs: number of interleaved pairs.
    """

    baseline_s: float
    candidate_s: float
    speedup: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> str:
        """``faster``, ``slower`` or ``no difference``: whether the interval excludes 1."""
        if self.low > 1.0:
            return "faster"
        return "slower" if self.high < 1.0 else "no difference"


def compare(
    baseline: Callable[[], Any],
    candidate: Callable[[], Any],
    *,
    budget_s: float = 2.0,
    min_pairs: int = 9,
    max_pairs: int = 101,
    stop_when_clear: bool = False,
    seed: int = 0,
) -> Comparison:
    """Times two callables in turn, A B B A, until the budget is spent.

    Args:
        baseline: runs once and waits for its result; its method ``prepare(runs)``, if there is one, is
            called before each timed sample.
        candidate: likewise.
        budget_s: seconds to spend, warm-up not counted; `min_pairs` are always taken.
        min_pairs: fewest pairs.
        max_pairs: most pairs.
        stop_when_clear: end before the budget once the sign test is beyond doubt; looked at a few times
            only, at a level that keeps the chance of a false answer under 1 % over all looks.
        seed: of the bootstrap.
    """
    repeats = max(_repeats(baseline), _repeats(candidate))
    times: list[tuple[float, float]] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + budget_s
        while len(times) < max_pairs and (len(times) < min_pairs or time.perf_counter() < end):
            if len(times) % 2:
                second = _sample(candidate, repeats)
                first = _sample(baseline, repeats)
            else:
                first = _sample(baseline, repeats)
                second = _sample(candidate, repeats)
            times.append((first, second))
            if stop_when_clear and len(times) in _LOOKS and _is_clear(times):
                break
    finally:
        if collecting:
            gc.enable()
    return summarise(np.asarray(times), seed)


_LOOKS: Final = frozenset({9, 13, 19, 27, 39, 57, 81})
_SURE: Final = {9: 9, 13: 13, 19: 17, 27: 23, 39: 31, 57: 42, 81: 56}
"""Pairs that must agree, of so many, before the sign test is clear (two-sided level 0.1-0.4 % a look)."""


def _is_clear(times: list[tuple[float, float]]) -> bool:
    faster = sum(first > second for first, second in times)
    return max(faster, len(times) - faster) >= _SURE[len(times)]


def summarise(times: np.ndarray[Any, Any], seed: int = 0) -> Comparison:
    """Medians and bootstrap interval of paired times.

    Args:
        times: float64 [P, 2]; seconds of baseline and candidate in each of P pairs.
        seed: of the bootstrap.
    """
    ratios = times[:, 0] / times[:, 1]
    rng = np.random.default_rng(seed)
    draws = rng.choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return Comparison(
        baseline_s=float(np.median(times[:, 0])),
        candidate_s=float(np.median(times[:, 1])),
        speedup=float(np.median(ratios)),
        low=float(low),
        high=float(high),
        pairs=len(ratios),
    )


def _repeats(run: Callable[[], Any]) -> int:
    """Calls per sample, after a warm-up."""
    run()
    start = time.perf_counter()
    run()
    once = max(time.perf_counter() - start, 1e-7)
    if once >= SLOW_S:
        return 1
    for _ in range(max(1, min(20, int(MIN_SAMPLE_S / once)))):
        run()
    return max(1, min(2000, int(MIN_SAMPLE_S / once)))


def _sample(run: Callable[[], Any], repeats: int) -> float:
    prepare = getattr(run, "prepare", None)
    if prepare is not None:
        prepare(repeats)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats
