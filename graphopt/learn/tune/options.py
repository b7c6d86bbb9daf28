"""Compile options of a whole module that matter on CPU; they need a compile that we own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from graphopt.learn.tune.confirm import Runs
from graphopt.learn.tune.program import Subject
from graphopt.machine import probe
from graphopt.measure import Comparison, compare, compare_outputs
from graphopt.store import Store
from graphopt.store.winners import put_options

MIN_GAIN: Final = 1.02


def option_choices() -> list[dict[str, str]]:
    """Option sets worth a try on this machine."""
    return [
        {"xla_cpu_prefer_vector_width": str(width)}
        for width in (512, 128)
        if width <= probe().simd_bits
    ]


def tune_options(
    subject: Subject,
    transform: Callable[[bytes], bytes | None],
    store: Store,
    end: float,
) -> tuple[dict[str, str], Comparison | None]:
    """Options that make the winner faster still, with the measurement; stores them.

    Results must stay within the tolerances: vector width changes the order of summation only.
    """
    left = end - time.perf_counter()
    if (
        subject.donates
        or len(subject.modules) > 1
        or left < 2.0 * (subject.default.compile_s + 0.5)
    ):
        return {}, None
    plain = Runs(subject.compile(transform), donates=False)
    reference = plain()
    best: tuple[dict[str, str], Comparison | None] = ({}, None)
    for options in option_choices():
        if end - time.perf_counter() < subject.default.compile_s + 0.5:
            break
        candidate = Runs(subject.compile(transform, options), donates=False)
        if not compare_outputs(reference, candidate()).equal:
            continue
        share = max(0.5, (end - time.perf_counter()) / 3)
        times = compare(plain, candidate, budget_s=min(3.0, share), min_pairs=15)
        if times.low > MIN_GAIN and (best[1] is None or times.speedup > best[1].speedup):
            best = (options, times)
    options, found = best
    ratio = (found.speedup, found.low, found.high) if found is not None else (1.0, 1.0, 1.0)
    put_options(store, subject.digest, options, ratio)
    return best
