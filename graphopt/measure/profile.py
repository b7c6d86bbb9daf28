"""Times of single kernels in place: one profiled run of a whole module.

With the host tracer at its finest level, XLA:CPU's runtime emits one event per executed thunk, named after
its instruction. Counts are exact, so real trip counts come for free. Durations carry the tracer's own
cost, some 150 ns per event, which is calibrated and taken off.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

EVENT_FLOOR_NS: Final = 150.0
"""Duration of the event of a thunk that does next to nothing, beyond what that thunk costs untraced."""

MAX_EVENTS: Final = 200_000
"""Thunks in one profile from which tracing is not worth its time."""

_TRACER_LEVEL: Final = 3


@dataclass(frozen=True)
class KernelTime:
    """One instruction in one profile.

    Attributes:
        executions: times it ran per run of the module.
        ns: median nanoseconds of one execution, the tracer's cost taken off; at least 1.
        total_ns: nanoseconds per run of the module, all executions, likewise corrected.
    """

    executions: float
    ns: float
    total_ns: float


def profile(
    run: Callable[[], Any], names: Collection[str], *, runs: int = 5
) -> dict[str, KernelTime]:
    """Kernel times of the instructions in `names`.

    A kernel that XLA splits over cores emits one event per part on several threads; the event of the
    thunk itself covers them, so the longest events count.

    Args:
        run: runs the module once and waits.
        names: instruction names to look for; others are ignored.
        runs: profiled runs.
    """
    run()
    events = _trace(run, runs)
    wanted = set(names)
    out: dict[str, KernelTime] = {}
    for name, durations in events.items():
        if name not in wanted:
            continue
        net = np.maximum(np.asarray(durations) - EVENT_FLOOR_NS, 1.0)
        median = float(np.median(net))
        # One interrupted execution must not stand for all of a loop's.
        typical = np.minimum(net, 20.0 * median)
        out[name] = KernelTime(len(net) / runs, median, float(typical.sum()) / runs)
    return out


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
            jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        for path in Path(folder).rglob("*.xplane.pb"):
            data = jax.profiler.ProfileData.from_file(str(path))
            for plane in data.planes:
                for line in plane.lines:
                    for event in line.events:
                        events.setdefault(event.name, []).append(event.duration_ns)
    return events
