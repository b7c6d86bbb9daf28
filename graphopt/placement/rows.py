"""Tasks as rows of bounded fan-in, so that a compiled loop can run over them.

A task with more operands than `FAN_IN` gets helper rows before it, which gather its operands group by
group on its own device and take no time. Axis letters: R rows, P operands per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.tasks import TaskGraph

FAN_IN: Final = 3
_BUCKETS: Final = 8
"""Lengths are rounded up to one of so many steps per power of two, to compile seldom."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Schedule rows.

    Attributes:
        task: int32 [R]; task of each row.
        final: bool [R]; the row computes the task's value; False: a helper of that task.
        operands: int32 [length, P]; rows of the operands; `length` itself stands for none.
        length: padded number of rows, at least R.
    """

    task: NDArray[np.int32]
    final: NDArray[np.bool_]
    operands: NDArray[np.int32]
    length: int


def make_rows(tasks: TaskGraph, order: NDArray[np.int32]) -> Rows:
    """Rows of a graph in a topological order int32 [N]."""
    task: list[int] = []
    final: list[bool] = []
    inputs: list[list[int]] = []
    row_of = [-1] * len(tasks)
    for node in order.tolist():
        pending = [row_of[o] for o in tasks.operand_lists[node]]
        while len(pending) > FAN_IN:
            inputs.append(pending[:FAN_IN])
            pending = [*pending[FAN_IN:], len(task)]
            task.append(node)
            final.append(False)
        row_of[node] = len(task)
        inputs.append(pending)
        task.append(node)
        final.append(True)
    length = _round_up(len(task))
    operands = np.full((length, FAN_IN), length, np.int32)
    for row, rows in enumerate(inputs):
        operands[row, : len(rows)] = rows
    return Rows(np.array(task, np.int32), np.array(final, np.bool_), operands, length)


def _round_up(count: int) -> int:
    step = max(16, (1 << max(1, count).bit_length()) // (2 * _BUCKETS))
    return -(-max(1, count) // step) * step
