"""What overlapping windows cost: in XLA's loop kernels, in native code, and as shifted arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.hlo.schema import HloInstructionProto
from graphopt.machine import UnitKind, unit_index

LOOP_NS: Final = 0.27
NATIVE_NS: Final = 0.08
"""One element of one window, in a loop kernel and in native code: ``benchmarks.rates --windows``."""

SHIFTED_NS: Final = 0.12
SHIFTED_LOOP_NS: Final = 0.4
"""One element of an array that is combined with a shifted one, in native code and in a loop kernel."""

MIN_ROW: Final = 64
"""Shifts along rows that are shorter do not vectorise."""

MIN_WINDOW: Final = 9
"""Smaller windows are as fast in native code."""

SHIFTED_MARGIN: Final = 1.5
"""A window is written as shifted arrays where that is so much faster by the estimate."""

LONG_NS: Final = 100_000.0
"""Longer loop kernels stay with XLA, which splits them over the cores."""

SPLIT_NS: Final = 5_000.0
"""Handing a part of a loop kernel to another core, and waiting for it."""

MIN_SAVED_NS: Final = 5_000.0
MIN_SAVED_SHARE: Final = 0.02
"""What changing one window operation must save per run of the program, and as a part of its time."""


@dataclass(frozen=True)
class WindowCosts:
    """Nanoseconds of one reduce-window on one core.

    Attributes:
        loop_ns: in a loop kernel.
        native_ns: in native code.
        passes: arrays that are combined with shifted ones; 0 where that is not legal or known to be slow.
        shifted: elements of one of them.
    """

    loop_ns: float
    native_ns: float
    passes: int
    shifted: int

    @property
    def is_shifted(self) -> bool:
        """True if shifted arrays are clearly faster in native code."""
        return 0.0 < SHIFTED_MARGIN * self._shifted_ns(SHIFTED_NS) < self.native_ns

    @property
    def is_shifted_in_loops(self) -> bool:
        """The same in loop kernels."""
        return 0.0 < SHIFTED_MARGIN * self._shifted_ns(SHIFTED_LOOP_NS) < self.loop_ns

    @property
    def best_native_ns(self) -> float:
        """In native code, in the form that `is_shifted` says."""
        return self._shifted_ns(SHIFTED_NS) if self.is_shifted else self.native_ns

    @property
    def best_loop_ns(self) -> float:
        """In loop kernels, in the form that `is_shifted_in_loops` says."""
        return self._shifted_ns(SHIFTED_LOOP_NS) if self.is_shifted_in_loops else self.loop_ns

    def _shifted_ns(self, rate: float) -> float:
        return float(self.passes * self.shifted) * rate


def window_costs(graph: Graph, node: int) -> WindowCosts:
    """Costs of a reduce-window."""
    windows = HloInstructionProto.FromString(graph.source.attributes[node]).window.dimensions
    sizes = [max(1, w.size) for w in windows]
    combined = float(graph.elements[node]) * prod(sizes)
    passes = 0
    if graph.masks.restructure[node, CODE["window-doubling"]] and _shifts_well(
        graph, node, windows
    ):
        passes = 1 + sum((size - 1).bit_length() + size.bit_count() - 1 for size in sizes)
    read = max(graph.elements[node], graph.elements[graph.operand_lists[node][0]])
    return WindowCosts(combined * LOOP_NS, combined * NATIVE_NS, passes, int(read))


def _shifts_well(graph: Graph, node: int, windows: Sequence[Any]) -> bool:
    """True for windows where shifted arrays are known to be fast, and that are no cumulative sums.

    Cumulative sums often decide something (where a random number falls among probabilities), so that another
    order of adding can give another result altogether.
    """
    cumulative = any(
        w.size > 1 and max(w.padding_low, w.padding_high) >= w.size - 1 for w in windows
    )
    rows_stay = windows[-1].size <= 1 or graph.dim_lists[node][-1] >= MIN_ROW
    many = prod(max(1, w.size) for w in windows) >= MIN_WINDOW
    return many and rows_stay and not cumulative and all(w.stride <= 1 for w in windows)


def write_shifted(graph: Graph, decisions: Decisions, node: int, costs: WindowCosts) -> None:
    """Has a window in native code written as shifted arrays if that is faster."""
    if costs.is_shifted:
        decisions.restructure[node] = CODE["window-doubling"]


def place_window(
    graph: Graph, decisions: Decisions, node: int, costs: WindowCosts, program_ns: float
) -> None:
    """Gives a window operation outside native code the faster form and unit; changes `decisions`."""
    native = unit_index(graph.units, UnitKind.NATIVE)
    threads = graph.units[decisions.unit[node]].threads
    now = costs.loop_ns / threads + (SPLIT_NS if threads > 1 else 0.0)
    may_move = costs.loop_ns <= LONG_NS and graph.masks.unit[node, native]
    then = costs.best_native_ns if may_move else costs.best_loop_ns / threads
    saved = (now - then) * float(graph.executions[node])
    if saved <= max(MIN_SAVED_NS, MIN_SAVED_SHARE * program_ns):
        return
    if may_move:
        decisions.unit[node] = native
        write_shifted(graph, decisions, node, costs)
    elif costs.is_shifted_in_loops:
        decisions.restructure[node] = CODE["window-doubling"]
