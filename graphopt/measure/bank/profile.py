"""Times of single kernels in place: one profiled run of a whole module.

With the host tracer at its finest level, XLA:CPU's runtime emits one event per executed thunk, named after
its instruction. Counts are exact, so real trip counts come for free. Durations carry the tracer's own
cost, some 200 ns per event, which is taken off: the untraced time of the run says how much it is.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import NDArray

TRACER_NS: Final = 190.0
"""What tracing adds to one event, where a profile holds too few events to tell."""

TRACER_RANGE_NS: Final = (100.0, 350.0)
"""Range in which calibrated values are believed."""

DISPATCH_NS: Final = 25.0
"""What the executor spends on a thunk beside the thunk itself."""

MIN_CALIBRATION_EVENTS: Final = 300
"""Thunks per run from which their number, not their work, shows in the time of the run."""

_TRACER_LEVEL: Final = 3


@dataclass(frozen=True)
class KernelTime:
    """One instruction in one profile.

    Attributes:
        executions: times it ran per run of the module.
        ns: its part in the time of the run per execution, in nanoseconds: the median duration, the
            tracer's cost taken off.
    """

    executions: float
    ns: float


def profile(
    run: Callable[[], Any],
    names: Collection[str],
    *,
    runs: int = 5,
    library: Collection[str] = (),
) -> dict[str, KernelTime]:
    """Kernel times of the instructions in `names`.

    A kernel that XLA splits over cores emits one event per part on several threads; the event of the
    thunk itself covers them, so the longest events count.

    Args:
        run: runs the module once and waits.
        names: instruction names to look for; others are ignored.
        runs: profiled runs.
        library: which of `names` the kernel library executes.
    """
    untraced = 1e9 * _seconds(run)
    wanted = set(names)
    events = {n: np.asarray(d) for n, d in _trace(run, runs).items() if n in wanted}
    overhead = _tracer_cost(events, untraced, runs)
    net = {name: max(float(np.median(d)) - overhead, 1.0) for name, d in events.items()}
    counts = {name: len(d) / runs for name, d in events.items()}
    _fit_library(net, counts, untraced, library)
    return {name: KernelTime(counts[name], net[name]) for name in net}


def _fit_library(
    net: dict[str, float], counts: dict[str, float], untraced: float, library: Collection[str]
) -> None:
    """Lets library kernels fill what the others leave of the run: they trace their own tasks, too."""
    mine = [name for name in net if name in library]
    rest = sum(counts[n] * (net[n] + DISPATCH_NS) for n in net if n not in set(mine))
    total = sum(counts[n] * net[n] for n in mine)
    left = max(untraced - rest, 0.1 * total)
    if total > left:
        for name in mine:
            net[name] *= left / total


def _seconds(run: Callable[[], Any]) -> float:
    """Median time of a few untraced runs."""
    run()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _tracer_cost(events: dict[str, NDArray[np.float64]], untraced: float, runs: int) -> float:
    """Nanoseconds per event that make the net durations add up to the untraced run."""
    counts = np.array([len(d) / runs for d in events.values()])
    if counts.sum() < MIN_CALIBRATION_EVENTS:
        return TRACER_NS
    # Medians: a traced run is interrupted far more often than an untraced one.
    medians = np.array([np.median(d) for d in events.values()])
    low, high = TRACER_RANGE_NS
    for _ in range(30):  # the net sum falls with the cost: bisection
        middle = 0.5 * (low + high)
        net = (counts * (np.maximum(medians - middle, 1.0) + DISPATCH_NS)).sum()
        low, high = (middle, high) if net > untraced else (low, middle)
    return 0.5 * (low + high)


def _trace(run: Callable[[], Any], runs: int) -> dict[str, list[float]]:
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = _TRACER_LEVEL
    options.python_tracer_level = 0
    events: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="graphopt-profile-") as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            for _ in range(runs):
                run()
        finally:
            jax.profiler.stop_trace()
        for path in Path(folder).rglob("*.xplane.pb"):
            data = jax.profiler.ProfileData.from_file(str(path))
            for plane in data.planes:
                for line in plane.lines:
                    for event in line.events:
                        events.setdefault(event.name, []).append(event.duration_ns)
    return events
