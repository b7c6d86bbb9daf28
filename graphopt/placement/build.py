"""A flat program as a task graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graphopt.placement.flat import Equation, FlatProgram
from graphopt.placement.tasks import TaskGraph, TaskKind, number_groups
from graphopt.placement.work import FUSIBLE, Work, aval_bytes, is_parallel, work_of

HOME_GROUP = 0
"""Group of all arguments; it stays on the home device, device 0."""


@dataclass(frozen=True, eq=False)
class Traced:
    """A flat program with its task graph.

    Attributes:
        program: the program.
        tasks: its tasks.
        task_of_value: task whose value each value number is; -1 for unused ones.
        equation_task: task of each equation (the one that computes).
        replicated: equations that are computed wherever they are needed, because they need no
            argument and cost nothing (constants, iota, their views).
    """

    program: FlatProgram
    tasks: TaskGraph
    task_of_value: tuple[int, ...]
    equation_task: tuple[int, ...]
    replicated: frozenset[int]


@dataclass
class _Columns:
    kind: list[int] = field(default_factory=list)
    op: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    fused: list[float] = field(default_factory=list)
    fusible: list[bool] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    operands: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    layer: list[int] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        kind: TaskKind,
        name: str,
        nbytes: int,
        operands: Sequence[int],
        *,
        group: int | None = None,
        layer: int = -1,
        work: Work = Work(0.0, 0.0),  # noqa: B008 - frozen
    ) -> int:
        """Appends a task; returns its number."""
        task = len(self.kind)
        self.kind.append(kind)
        self.op.append(self.names.setdefault(name, len(self.names)))
        self.nbytes.append(nbytes)
        self.work.append(work)
        self.fused.append(max(0.0, work.traffic - 2.0 * nbytes) if name in FUSIBLE else 0.0)
        self.fusible.append(name in FUSIBLE and kind == TaskKind.COMPUTE)
        self.operands.extend(operands)
        self.start.append(len(self.operands))
        self.group.append(task if group is None else group)
        self.layer.append(layer)
        return task


def build_tasks(program: FlatProgram, weights: Sequence[bool] | None = None) -> Traced:
    """Makes the task graph of a flat program.

    An equation with several results becomes a COMPUTE task and one VIEW task per result.

    Args:
        program: the program.
        weights: per argument, whether it stays the same from call to call; None: all do.
    """
    columns = _Columns()
    task_of: list[int] = [-1] * len(program.avals)
    for value in range(program.inputs):
        number = value - len(program.constants)
        fixed = number < 0 or weights is None or weights[number]
        kind = TaskKind.WEIGHT if fixed else TaskKind.INPUT
        size = aval_bytes(program.avals[value])
        task_of[value] = columns.add(kind, kind.name.lower(), size, (), group=-1)
    known: dict[int, Work] = {}
    everywhere: set[int] = set()  # value numbers
    computing, replicated = [], []
    for number, equation in enumerate(program.equations):
        work = known.setdefault(id(equation.eqn), work_of(equation.eqn))
        if work == Work(0.0, 0.0) and everywhere.issuperset(equation.used):
            everywhere.update(equation.outputs)
            replicated.append(number)
            computing.append(_add_replicated(columns, equation, task_of))
        else:
            computing.append(_add_equation(columns, equation, program, task_of, work))
    layers = _fill_layers(columns.layer)
    outputs = np.zeros(len(columns.kind), np.bool_)
    outputs[[task_of[v] for v in program.outputs if isinstance(v, int)]] = True
    amounts = columns.work
    tasks = TaskGraph(
        name=program.name,
        kind=np.array(columns.kind, np.int8),
        op=np.array(columns.op, np.int16),
        op_names=tuple(columns.names),
        nbytes=np.array(columns.nbytes, np.int64),
        flops=np.array([w.flops for w in amounts], np.float64),
        traffic=np.array([w.traffic for w in amounts], np.float64),
        fused_traffic=np.array(columns.fused, np.float64),
        launches=np.array([w.launches for w in amounts], np.float64),
        parallel=np.array([is_parallel(w) for w in amounts], np.bool_),
        fusible=np.array(columns.fusible, np.bool_),
        operand_start=np.array(columns.start, np.int32),
        operands=np.array(columns.operands, np.int32),
        output=outputs,
        group=number_groups(np.array(columns.group, np.int64)),
        layer=np.array(layers, np.int32),
    )
    return Traced(program, tasks, tuple(task_of), tuple(computing), frozenset(replicated))


def _add_replicated(columns: _Columns, equation: Equation, task_of: list[int]) -> int:
    for value in equation.outputs:
        task_of[value] = columns.add(TaskKind.WEIGHT, equation.name, 0, (), group=-1)
    return task_of[equation.outputs[0]]


def _add_equation(
    columns: _Columns,
    equation: Equation,
    program: FlatProgram,
    task_of: list[int],
    work: Work,
) -> int:
    operands = list(dict.fromkeys(task_of[v] for v in equation.used))
    sizes = [aval_bytes(program.avals[v]) for v in equation.outputs]
    single = len(sizes) == 1
    task = columns.add(
        TaskKind.COMPUTE, equation.name, sizes[0] if single else 0, operands,
        layer=equation.layer, work=work,
    )  # fmt: skip
    if single:
        task_of[equation.outputs[0]] = task
    else:
        for value, size in zip(equation.outputs, sizes, strict=True):
            task_of[value] = columns.add(
                TaskKind.VIEW, "result", size, (task,), group=task, layer=equation.layer
            )
    return task


def _fill_layers(layers: list[int]) -> list[int]:
    """Gives tasks outside all layers the layer of the task before them, if there are any layers."""
    if max(layers, default=-1) < 0:
        return layers
    current, filled = 0, []
    for layer in layers:
        current = layer if layer >= 0 else current
        filled.append(current)
    return filled
