"""What overlapping windows cost: in XLA's loop kernels, in native code, and as shifted arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from graphopt.hlo import Graph
from graphopt.hlo.restructure import CODE
from graphopt.machine import CpuCosts, own_costs

SHIFTED_MARGIN: Final = 1.5
"""A window is written as shifted arrays where that is so much faster by the estimate."""


@dataclass(frozen=True)
class WindowCosts:
    """Nanoseconds of one reduce-window on one core.

    Attributes:
        loop_ns: in a loop kernel.
        plain_ns: as it is in native code.
        shifted_ns: as shifted arrays in native code; None where that is not legal or known to be slow.
        shifted_loop_ns: as shifted arrays in loop kernels, likewise.
    """

    loop_ns: float
    plain_ns: float
    shifted_ns: float | None = None
    shifted_loop_ns: float | None = None

    @property
    def is_shifted(self) -> bool:
        """True if shifted arrays are clearly faster in native code."""
        return self.shifted_ns is not None and SHIFTED_MARGIN * self.shifted_ns < self.plain_ns

    @property
    def is_shifted_in_loops(self) -> bool:
        """The same in loop kernels."""
        shifted = self.shifted_loop_ns
        return shifted is not None and SHIFTED_MARGIN * shifted < self.loop_ns

    @property
    def native_ns(self) -> float:
        """In native code, in the form that `is_shifted` says."""
        return self.plain_ns if self.shifted_ns is None or not self.is_shifted else self.shifted_ns


def window_costs(graph: Graph, node: int, costs: CpuCosts | None = None) -> WindowCosts:
    """Costs of a reduce-window; on this machine by default."""
    costs = costs or own_costs()
    windows = graph.source.protos[node].window.dimensions
    sizes = [max(1, w.size) for w in windows]
    combined = float(graph.elements[node]) * prod(sizes)
    plain = WindowCosts(combined * costs.window_loop_ns, combined * costs.window_native_ns)
    legal = graph.masks.restructure[node, CODE["window-doubling"]]
    if not legal or not _shifts_well(graph, node, windows, costs):
        return plain
    passes = 1 + sum((size - 1).bit_length() + size.bit_count() - 1 for size in sizes)
    read = max(graph.elements[node], graph.elements[graph.operand_lists[node][0]])
    moved = float(passes * read)
    return replace(
        plain,
        shifted_ns=moved * costs.shifted_ns,
        shifted_loop_ns=moved * costs.shifted_loop_ns,
    )


def _shifts_well(graph: Graph, node: int, windows: Sequence[Any], costs: CpuCosts) -> bool:
    """True for windows where shifted arrays are known to be fast, and that are no cumulative sums.

    Cumulative sums often decide something (where a random number falls among probabilities), so that another
    order of adding can give another result altogether.
    """
    cumulative = any(
        w.size > 1 and max(w.padding_low, w.padding_high) >= w.size - 1 for w in windows
    )
    rows_stay = windows[-1].size <= 1 or graph.dim_lists[node][-1] >= costs.shifted_row
    many = prod(max(1, w.size) for w in windows) >= costs.shifted_window
    return many and rows_stay and not cumulative and all(w.stride <= 1 for w in windows)
