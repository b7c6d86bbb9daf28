"""What a loop in parts saves, and what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from graphopt.forms.scan_parts.estimates import (
    ROW_NS,
    contracted,
    in_loop_ns,
    kept_ns,
    moved_ns,
    row_ns,
    together_ns,
)
from graphopt.forms.scan_parts.movable import nbytes
from graphopt.forms.scan_parts.parts import Parts
from graphopt.machine import CpuCosts

KERNEL_NS: Final = 3_000.0
"""To start a kernel over all iterations, on more than one core."""

INNERMOST_BYTES: Final = 1 << 15
"""Of the innermost cache."""

INNERMOST: Final = 5.0
"""The innermost cache is so much faster than the caches are on average."""

CALLED: Final = 8
"""Products that sum over as many are calls of a library; shorter ones are computed while they are added."""


def added_ns(variable: Any, products: Sequence[Any], costs: CpuCosts) -> float:
    """Nanoseconds to add to a value that is carried, in one iteration.

    Args:
        variable: the value.
        products: equations that make what is added, and that are computed behind the loop in one.
        costs: of the machine.
    """
    moved, rate = 2.0 * nbytes(variable), costs.cached_bytes_per_ns
    if nbytes(variable) <= INNERMOST_BYTES:
        rate *= INNERMOST
    elif nbytes(variable) > costs.cached_bytes:
        rate = costs.bytes_per_ns
    passed = moved / rate
    if products and max(map(contracted, products)) < CALLED:
        passed -= sum(together_ns(e, costs) for e in products)
    return ROW_NS + max(passed, 0.0)


def saved_ns(parts: Parts, costs: CpuCosts) -> tuple[float, float]:
    """Nanoseconds that the parts save in all iterations, and what they take beside."""
    scan = parts.scan
    stays = set(map(id, parts.core))
    outside = (*parts.ahead, *parts.behind)

    def rows(variables: Iterable[Any]) -> float:
        return sum(row_ns(v, scan.trips, costs) for v in variables)

    gone = [e for e in outside if id(e) not in stays]
    saved = sum(in_loop_ns(e, costs) - together_ns(e, costs) for e in gone)
    saved += rows(set(scan.row_vars) - set(parts.rows))
    saved += rows(v for v in scan.row_outs if v not in parts.kept)
    for place, found in parts.sums.items():
        products = parts.terms.products([term for _, term in found.terms])
        saved += added_ns(scan.carry_vars[place], products, costs)
    if not parts.states:
        saved += costs.short_loop_ns
    taken = sum(together_ns(e, costs) for e in outside if id(e) in stays)
    taken += sum(kept_ns(v, scan.trips, costs) for v in parts.kept if v not in scan.row_outs)
    taken += sum(moved_ns(v, scan.trips, costs) for v in parts.made)
    taken += rows(v for v in parts.rows if v not in scan.row_vars)
    kernels = len(parts.made) + len(parts.sums)
    return scan.trips * saved, scan.trips * taken + kernels * KERNEL_NS
