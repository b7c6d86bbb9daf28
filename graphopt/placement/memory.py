"""Peak memory of placements, from the lifetimes of values in schedule order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.tasks import TaskGraph


def peak_memory(
    tasks: TaskGraph,
    order: NDArray[np.int32],
    device: NDArray[np.int16],
    fused: NDArray[np.bool_],
    devices: int,
) -> NDArray[np.float64]:
    """float64 [B, D]: largest sum of bytes that live at once on each device.

    A value is allocated on every device that needs it at its place in the order, and freed after its
    last consumer there; arguments and results of the program stay. Fused values take no memory.

    Args:
        tasks: the graph.
        order: int32 [N]; schedule order.
        device: int16 [B, N]; device of every task.
        fused: bool [B, N]; values that are never written.
        devices: number of devices D.
    """
    count = len(tasks)
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    by_position = np.argsort(position[tasks.consumer], kind="stable")
    producer = tasks.operands[by_position]
    consumer = tasks.consumer[by_position]
    at = position[consumer]
    forever = tasks.is_input | tasks.output
    start = np.where(tasks.is_input, 0, position)
    peaks = np.empty((len(device), devices))
    for b in range(len(device)):
        last = np.full((devices, count), -1, np.int64)
        # Of repeated indices the last assignment stays: that of the latest consumer.
        last[device[b, consumer], producer] = at
        made = device[b]
        computed = ~tasks.is_input
        last[made[computed], np.flatnonzero(computed)] = np.maximum(
            last[made[computed], np.flatnonzero(computed)], position[computed]
        )
        peaks[b] = _peak_of(last, start, forever, np.where(fused[b], 0, tasks.nbytes))
    return peaks


def _peak_of(
    last: NDArray[np.int64],
    start: NDArray[np.int64],
    forever: NDArray[np.bool_],
    nbytes: NDArray[np.int64],
) -> NDArray[np.float64]:
    """float64 [D] from last uses int64 [D, N] (-1: never there)."""
    devices, count = last.shape
    peaks = np.zeros(devices)
    for d in range(devices):
        there = np.flatnonzero(last[d] >= 0)
        if not len(there):
            continue
        change = np.bincount(start[there], nbytes[there], count + 2)
        ending = there[~forever[there]]
        change -= np.bincount(last[d, ending] + 1, nbytes[ending], count + 2)
        peaks[d] = change.cumsum().max()
    return peaks
