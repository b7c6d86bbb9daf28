"""From root nodes to a graph: canonical order, structural key, leaves and scalar parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.lazy.core.node import CONST, Aval, Instr, Node, in_order
from graphopt.lazy.core.source_lines import Source
from graphopt.lazy.record.blocks import BLOCK, Block


class Trace:
    """The pending nodes behind some roots, in recording order.

    Attributes:
        nodes: pending nodes, inputs first.
        key: the whole structure as integers. A pending node appends its instruction's id and, per
            input, the input's position; an input met for the first time that is a leaf, a constant or a
            scalar parameter appends minus the id of its aval or instruction instead and takes the next
            position. Roots follow after a zero. Equal keys mean equal graphs: nothing is hashed away.
        leaves: nodes with buffers, in order of first use.
        consts: constants, in order of first use.
        scalars: scalar parameters, in order of first use.
        roots: nodes asked for.
    """

    __slots__ = ("consts", "key", "leaves", "nodes", "roots", "scalars")

    def __init__(self, roots: list[Node], given: frozenset[Node] = frozenset()) -> None:
        """Collects what is behind `roots`; pending nodes in `given` count as leaves."""
        nodes = list(roots)
        seen = set(roots)
        for node in nodes:
            for each in node.inputs:
                if each.data is None and each not in seen and each not in given:
                    seen.add(each)
                    nodes.append(each)
        nodes = in_order(nodes)
        positions: dict[Node, int] = {}
        code: list[int] = []
        leaves: list[Node] = []
        consts: list[Node] = []
        scalars: list[Node] = []
        count = 0
        known, append = positions.get, code.append
        for node in nodes:
            append(node.instr.id)  # type: ignore[union-attr]
            for each in node.inputs:
                position = known(each)
                if position is not None:
                    append(position)
                    continue
                positions[each] = count
                count += 1
                instr = each.instr
                if instr is None or each in given:
                    append(-each.aval.id)
                    leaves.append(each)
                else:
                    append(-instr.id)
                    (consts if instr.op is CONST else scalars).append(each)
            positions[node] = count
            count += 1
        append(0)
        for root in roots:
            code.append(positions[root])
        self.nodes = nodes
        self.key = tuple(code)
        self.leaves = leaves
        self.consts = consts
        self.scalars = scalars
        self.roots = roots


@dataclass(frozen=True)
class Step:
    """One instruction of a plan.

    Attributes:
        instr: what is computed.
        inputs: slots of its operands.
        out: slot of its result.
        free: slots that nothing needs after this step.
        src: the user's line that recorded it the first time.
    """

    instr: Instr
    inputs: tuple[int, ...]
    out: int
    free: tuple[int, ...]
    src: Source | None


@dataclass(frozen=True)
class Plan:
    """A graph that can be run with any buffers of the right avals.

    Slots number all values: leaves, scalar parameters, constants and results.

    Attributes:
        steps: instructions in order, inputs first.
        leaf_slots: slots of the leaves, in their order.
        leaf_avals: avals of the leaves.
        scalar_slots: slots of the scalar parameters, in their order.
        scalar_avals: avals of the scalar parameters.
        const_slots: slots of the constants, in their order.
        const_values: their values: read-only arrays [].
        root_slots: slots of the results asked for.
        root_avals: their avals.
        device: the device of all values.
    """

    steps: tuple[Step, ...]
    leaf_slots: tuple[int, ...]
    leaf_avals: tuple[Aval, ...]
    scalar_slots: tuple[int, ...]
    scalar_avals: tuple[Aval, ...]
    const_slots: tuple[int, ...]
    const_values: tuple[np.ndarray[Any, Any], ...]
    root_slots: tuple[int, ...]
    root_avals: tuple[Aval, ...]
    device: Any

    @property
    def slots(self) -> int:
        """Number of slots."""
        inputs = len(self.leaf_slots) + len(self.scalar_slots) + len(self.const_slots)
        return inputs + len(self.steps)


def make_plan(trace: Trace) -> Plan:
    """The plan of a trace, with the operations of blocks one by one; keeps no node alive."""
    operations, numbers, consts = _operations(trace)
    values = (*trace.leaves, *trace.scalars, *consts)
    roots = [numbers.get(root, root) for root in trace.roots]
    if len(operations) != len(trace.nodes):
        operations = _needed(operations, roots)
    slots: dict[Any, int] = {value: k for k, value in enumerate(values)}
    for operation in operations:
        slots[operation] = len(slots)
    keep = {slots[root] for root in roots}
    last = {slots[x]: k for k, operation in enumerate(operations) for x in operation.inputs}
    frees: list[list[int]] = [[] for _ in operations]
    for slot, k in last.items():
        if slot not in keep:
            frees[k].append(slot)
    steps = tuple(
        Step(o.instr, tuple(slots[x] for x in o.inputs), slots[o], tuple(free), o.src)
        for o, free in zip(operations, frees, strict=True)
    )
    return Plan(
        steps=steps,
        leaf_slots=tuple(slots[n] for n in trace.leaves),
        leaf_avals=tuple(n.aval for n in trace.leaves),
        scalar_slots=tuple(slots[n] for n in trace.scalars),
        scalar_avals=tuple(n.aval for n in trace.scalars),
        const_slots=tuple(slots[n] for n in consts),
        const_values=tuple(np.asarray(n.data, n.aval.dtype.np) for n in consts),
        root_slots=tuple(slots[root] for root in roots),
        root_avals=tuple(n.aval for n in trace.roots),
        device=trace.roots[0].aval.device,
    )


@dataclass(frozen=True, eq=False)
class _Operation:
    """An operation on the way to a plan; inputs are operations, or nodes that hold values."""

    instr: Instr
    inputs: tuple[Any, ...]
    src: Source | None


def _operations(trace: Trace) -> tuple[list[_Operation], dict[Node, Any], list[Node]]:
    """A trace's operations in order, what stands for each of its nodes, and all constants."""
    found: list[_Operation] = []
    numbers: dict[Node, Any] = {}
    outputs: dict[Node, list[Any]] = {}
    consts = dict.fromkeys(trace.consts)
    for node in trace.nodes:
        instr = node.instr
        assert instr is not None
        first = node.inputs[0] if node.inputs else None
        if instr.op is BLOCK:
            block: Block = instr.params[0]
            consts.update(dict.fromkeys(block.consts))
            values: list[Any] = [*(numbers.get(x, x) for x in node.inputs), *block.consts]
            for step in block.steps:
                values.append(
                    _Operation(step.instr, tuple(values[k] for k in step.inputs), step.src)
                )
            found.extend(values[-len(block.steps) :])
            outputs[node] = [values[k] for k in block.outputs]
        elif first in outputs:
            numbers[node] = outputs[first][instr.params[0]]
        else:
            inputs = tuple(numbers.get(x, x) for x in node.inputs)
            numbers[node] = _Operation(instr, inputs, node.src)
            found.append(numbers[node])
    return found, numbers, list(consts)


def _needed(operations: list[_Operation], roots: list[Any]) -> list[_Operation]:
    """The operations that the roots depend on, in the same order."""
    needed = set(roots)
    for operation in reversed(operations):
        if operation in needed:
            needed.update(operation.inputs)
    return [operation for operation in operations if operation in needed]
