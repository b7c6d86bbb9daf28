"""What windows cost: in XLA's loop kernels, in native code, and as shifted arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from graphopt.costs.elements import FLOATS
from graphopt.hlo import Graph
from graphopt.hlo.legal.library_support import reducer
from graphopt.hlo.restructure import CODE
from graphopt.machine import CpuCosts, UnitKind, own_costs

MARGIN: Final = 1.2
"""A window is written in another form where that is so much faster by the estimate."""

LONGEST_NATIVE_NS: Final = 100_000.0
"""Windows outside of loops that take longer in native code, on one core, are better split."""

LEAST_STEPS: Final = 8
"""The compiler unrolls shorter windows."""

SHIFTED: Final = "window-doubling"
RUNNING: Final = "window-running"
KEEP: Final = "keep"


@dataclass(frozen=True)
class WindowCosts:
    """Nanoseconds of one reduce-window on one core.

    Attributes:
        loop_ns: in a loop kernel, or in the library's call that XLA makes of it.
        plain_ns: as it is in native code.
        shifted_ns: as shifted arrays in native code; None where that is not legal or known to be slow.
        shifted_loop_ns: as shifted arrays in loop kernels, likewise.
        running_ns: as a loop over the dimension in native code, likewise.
    """

    loop_ns: float
    plain_ns: float
    shifted_ns: float | None = None
    shifted_loop_ns: float | None = None
    running_ns: float | None = None

    @property
    def native_form(self) -> str:
        """Name of the restructure that is clearly the fastest in native code; "keep" if none is."""
        return self._native()[0]

    @property
    def native_ns(self) -> float:
        """In native code, in the form that `native_form` says."""
        return self._native()[1]

    @property
    def is_shifted_in_loops(self) -> bool:
        """True if shifted arrays are clearly faster in loop kernels."""
        shifted = self.shifted_loop_ns
        return shifted is not None and MARGIN * shifted < self.loop_ns

    def _native(self) -> tuple[str, float]:
        forms = ((SHIFTED, self.shifted_ns), (RUNNING, self.running_ns))
        found = min(((ns, form) for form, ns in forms if ns is not None), default=None)
        if found is None or MARGIN * found[0] >= self.plain_ns:
            return KEEP, self.plain_ns
        return found[1], found[0]


def window_costs(graph: Graph, node: int, costs: CpuCosts | None = None) -> WindowCosts:
    """Costs of a reduce-window; on this machine by default."""
    costs = costs or own_costs()
    windows = graph.source.protos[node].window.dimensions
    sizes = [max(1, w.size) for w in windows]
    combined = float(graph.elements[node]) * prod(sizes)
    if all(w.size <= max(w.stride, 1) for w in windows):
        by_library = graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY
        apart_ns = costs.library_element_ns if by_library else costs.apart_loop_ns
        return WindowCosts(combined * apart_ns, combined * costs.apart_native_ns)
    in_loop, in_native = _element_ns(sizes, costs)
    if _is_extreme(graph, node) and int(graph.dtype[node]) in FLOATS:
        combined *= costs.window_extreme
    plain = WindowCosts(
        combined * in_loop,
        combined * in_native,
        running_ns=_running_ns(graph, node, sizes, costs),
    )
    legal = graph.masks.restructure[node, CODE[SHIFTED]]
    if not legal or not _shifts_well(graph, node, windows, costs):
        return plain
    read = max(graph.elements[node], graph.elements[graph.operand_lists[node][0]])
    passes = _passes(sizes) * float(read)
    ends = passes * costs.shifted_row_ns / _row(graph.dim_lists[node], sizes)
    return replace(
        plain,
        shifted_ns=passes * costs.shifted_ns + ends,
        shifted_loop_ns=passes * costs.shifted_loop_ns + ends,
    )


def native_window_ns(dims: Sequence[int], sizes: Sequence[int], costs: CpuCosts) -> float:
    """Nanoseconds of windows one element apart in native code, plain or as shifted arrays.

    Args:
        dims: of the result.
        sizes: of the window, one per dimension.
        costs: of the machine.
    """
    shifted = costs.shifted_ns + costs.shifted_row_ns / _row(dims, sizes)
    return prod(dims) * min(prod(sizes) * _element_ns(sizes, costs)[1], _passes(sizes) * shifted)


def _element_ns(sizes: Sequence[int], costs: CpuCosts) -> tuple[float, float]:
    """Nanoseconds of an element of a window that overlaps others, in a loop kernel and in native code."""
    if sum(size > 1 for size in sizes) <= 1:
        return costs.window_line_ns, costs.window_line_ns
    large = prod(sizes) > costs.unrolled_window
    return costs.window_loop_ns, costs.window_long_ns if large else costs.window_native_ns


def _passes(sizes: Sequence[int]) -> int:
    """Arrays that are combined to windows of certain sizes, padding among them."""
    return 1 + sum((size - 1).bit_length() + size.bit_count() - 1 for size in sizes)


def _row(dims: Sequence[int], sizes: Sequence[int]) -> int:
    """Elements that lie one after the other in memory and are shifted together."""
    moving = [d for d, size in enumerate(sizes) if size > 1]
    return max(1, prod(dims[max(moving, default=0) :]))


def _running_ns(graph: Graph, node: int, sizes: Sequence[int], costs: CpuCosts) -> float | None:
    """Nanoseconds as a loop over one dimension; None where that is not legal or known to be slow."""
    if max(sizes) < LEAST_STEPS or not graph.masks.restructure[node, CODE[RUNNING]]:
        return None
    return max(sizes) * costs.running_step_ns + float(graph.elements[node]) * costs.running_ns


def _shifts_well(graph: Graph, node: int, windows: Sequence[Any], costs: CpuCosts) -> bool:
    """True for windows where shifted arrays are known to be fast, and that are no sums that accumulate.

    Cumulative sums often decide something (where a random number falls among probabilities), so that another
    order of adding can give another result altogether.
    """
    extents = graph.dim_lists[graph.operand_lists[node][0]]
    cumulative = any(w.size >= n > 1 for w, n in zip(windows, extents, strict=True))
    many = prod(max(1, w.size) for w in windows) >= costs.shifted_window
    ordered = cumulative and not _is_exact(graph, node)
    return many and not ordered and all(w.stride <= 1 for w in windows)


def _is_exact(graph: Graph, node: int) -> bool:
    """True where combining in another order gives the same bits: integers, maxima and minima."""
    exact = int(graph.dtype[node]) not in FLOATS
    return exact or _is_extreme(graph, node)


def _is_extreme(graph: Graph, node: int) -> bool:
    return reducer(graph, node) in ("maximum", "minimum")
