"""The graph that placement sees: one task per value of a program, in topological order.

Axis letters: N tasks, E operand edges, G colocation groups, K device kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ModuleFormatError


class TaskKind(IntEnum):
    """What a task does with its device."""

    COMPUTE = 0
    """Occupies its device while it runs."""
    INPUT = 1
    """A program argument that changes from call to call; it starts on the home device."""
    WEIGHT = 2
    """A program argument that was placed before: present on every device that uses it."""
    VIEW = 3
    """One result of the task it belongs to, or a join of several operands; takes no time."""


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """A program as tasks with sizes and work.

    Attributes:
        name: of the program.
        kind: int8 [N]; `TaskKind`.
        op: int16 [N]; index into `op_names`.
        op_names: names of the operations that occur.
        nbytes: int64 [N]; bytes of the value; 0 for tasks whose values are VIEW tasks.
        flops: float64 [N]; arithmetic operations per run.
        traffic: float64 [N]; bytes read and written per run when computed on its own.
        fused_traffic: float64 [N]; the same when it is computed inside its consumers.
        launches: float64 [N]; kernels started inside loops per run; 0 for a single kernel.
        parallel: bool [N]; True: one large kernel that uses all cores of a host.
        fusible: bool [N]; True: its value can be computed inside its consumers.
        operand_start: int32 [N+1]; task i's operands are ``operands[operand_start[i]:...]``.
        operands: int32 [E]; operand task of each edge, always lower than the task.
        output: bool [N]; the value is a result of the program.
        group: int32 [N]; colocation group; tasks of one group share a device. Groups are numbered
            0..G-1 in the order of their first task.
        layer: int32 [N]; layer of the model for layer-wise placement; -1 where unknown.
    """

    name: str
    kind: NDArray[np.int8]
    op: NDArray[np.int16]
    op_names: tuple[str, ...]
    nbytes: NDArray[np.int64]
    flops: NDArray[np.float64]
    traffic: NDArray[np.float64]
    fused_traffic: NDArray[np.float64]
    launches: NDArray[np.float64]
    parallel: NDArray[np.bool_]
    fusible: NDArray[np.bool_]
    operand_start: NDArray[np.int32]
    operands: NDArray[np.int32]
    output: NDArray[np.bool_]
    group: NDArray[np.int32]
    layer: NDArray[np.int32]

    def __post_init__(self) -> None:
        """Checks lengths, edges and groups.

        Raises:
            ModuleFormatError: an array has another length, an edge does not go forward, or groups
                are not numbered in order of their first task.
        """
        count = len(self.kind)
        columns = (
            self.op, self.nbytes, self.flops, self.traffic, self.fused_traffic, self.launches,
            self.parallel, self.fusible, self.output, self.group, self.layer,
        )  # fmt: skip
        if any(len(c) != count for c in columns) or len(self.operand_start) != count + 1:
            raise _bad(self.name, "columns of different lengths")
        if len(self.operands) and (self.operands >= self.consumer).any():
            raise _bad(self.name, "an operand that comes after its task")
        firsts = np.unique(self.group, return_index=True)
        if count and not np.array_equal(firsts[0], np.arange(len(firsts[0]))):
            raise _bad(self.name, "colocation groups that are not numbered 0..G-1")
        if (np.diff(firsts[1]) < 0).any():
            raise _bad(self.name, "colocation groups out of order")

    def __len__(self) -> int:
        """Number of tasks N."""
        return len(self.kind)

    def __repr__(self) -> str:
        """One line: name and sizes."""
        return f"TaskGraph({self.name}, {len(self)} tasks, {self.groups} groups)"

    @cached_property
    def groups(self) -> int:
        """Number of colocation groups G."""
        return int(self.group.max(initial=-1)) + 1

    @cached_property
    def consumer(self) -> NDArray[np.int32]:
        """int32 [E]; the task that uses each edge's operand; ascending."""
        counts = np.diff(self.operand_start)
        return np.repeat(np.arange(len(self.kind), dtype=np.int32), counts)

    @cached_property
    def operand_lists(self) -> list[list[int]]:
        """Operands of every task, N lists."""
        flat, start = self.operands.tolist(), self.operand_start.tolist()
        return [flat[start[i] : start[i + 1]] for i in range(len(self))]

    @cached_property
    def is_input(self) -> NDArray[np.bool_]:
        """bool [N]; arguments of the program, weights included."""
        arguments: NDArray[np.bool_] = np.isin(self.kind, (TaskKind.INPUT, TaskKind.WEIGHT))
        return arguments


def number_groups(labels: NDArray[np.int64]) -> NDArray[np.int32]:
    """Renumbers arbitrary group labels int64 [N] by first occurrence, as `TaskGraph.group` wants."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[inverse].astype(np.int32)


def _bad(where: str, what: str) -> ModuleFormatError:
    return ModuleFormatError(
        what=f"a task graph with {what}", where=where, fix="Build it with graphopt.placement."
    )
