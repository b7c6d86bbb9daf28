"""All programs of this folder: ``REPORTS``, and by name the builders of both precisions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from benchmarks.trackers import (
    gradients,
    indexing,
    linear_algebra,
    loops,
    networks,
    others,
    samplers,
    simulators,
)
from benchmarks.trackers.common import Built, Reported

_FAMILIES = (loops, simulators, samplers, gradients, linear_algebra, indexing, networks, others)

REPORTS: tuple[Reported, ...] = tuple(chain.from_iterable(family.REPORTS for family in _FAMILIES))
"""Every program with the report that it follows."""

WORKLOADS: dict[str, Callable[[], Built]] = {r.name: r.build for r in REPORTS if not r.x64}
"""Name -> builder, for single precision."""

WORKLOADS64: dict[str, Callable[[], Built]] = {r.name: r.build for r in REPORTS if r.x64}
"""Name -> builder, for programs that need JAX_ENABLE_X64=1."""
