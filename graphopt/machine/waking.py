"""How fast two cores wake each other: measured where a decision depends on it, once per process."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

ROUND_TRIPS: Final = 100
"""Four milliseconds where waking is fast."""


@cache
def round_trip_ns() -> float:
    """Nanoseconds until a sleeping thread on another core is awake and has woken its waker.

    The shortest of `ROUND_TRIPS`, as other work only delays them; infinite where it cannot be measured: on
    one core, without threads, or where threads cannot be kept on a core.
    """
    with suppress(AttributeError, OSError, RuntimeError):
        here, *others = sorted(os.sched_getaffinity(0))
        if others:
            with _kept_on(here), _answering(others[0]) as (ask, answer):
                return float(min(_round_trip(ask, answer) for _ in range(ROUND_TRIPS)))
    return math.inf


def _round_trip(ask: int, answer: int) -> int:
    start = time.perf_counter_ns()
    os.write(ask, b".")
    os.read(answer, 1)
    return time.perf_counter_ns() - start


@contextmanager
def _kept_on(core: int) -> Iterator[None]:
    """Keeps the calling thread on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _answering(core: int) -> Iterator[tuple[int, int]]:
    """A thread on a core that writes back what it reads.

    Yields:
        where to write to it, and where to read what it writes.
    """
    asked, ask = os.pipe()
    answer, answered = os.pipe()

    def serve() -> None:
        with suppress(OSError):
            os.sched_setaffinity(0, {core})
            while data := os.read(asked, 1):
                os.write(answered, data)
        os.close(asked)
        os.close(answered)

    try:
        threading.Thread(target=serve, name="graphopt-waking", daemon=True).start()
        yield ask, answer
    finally:
        os.close(ask)
        os.close(answer)
