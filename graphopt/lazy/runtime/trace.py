"""From root nodes to a graph: canonical order, structural key, leaves and scalar parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.lazy.core.node import CONST, Aval, Instr, Node, in_order
from graphopt.lazy.core.source_lines import Source
from graphopt.lazy.record.blocks import Block


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
    writer, numbers = _operations(trace)
    operations, consts = writer.found, list(writer.consts)
    values = (*trace.leaves, *trace.scalars, *consts)
    roots = [numbers.get(root, root) for root in trace.roots]
    if writer.expands:
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
class _Number:
    """A number that is part of a block: never a scalar parameter, whatever node it came from.

    Attributes:
        data: a Python number.
        aval: what it becomes.
    """

    data: Any
    aval: Aval


@dataclass(frozen=True, eq=False)
class _Operation:
    """An operation on the way to a plan; inputs are operations, or nodes that hold values."""

    instr: Instr
    inputs: tuple[Any, ...]
    src: Source | None


def _operations(trace: Trace) -> tuple[_Writer, dict[Node, Any]]:
    """A trace written out, and what stands for each of its nodes."""
    writer = _Writer(trace)
    numbers: dict[Node, Any] = {}
    for node in trace.nodes:
        assert node.instr is not None
        inputs = tuple([numbers.get(x, x) for x in node.inputs])
        numbers[node] = writer.write(node.instr, inputs, node.src)
    return writer, numbers


class _Writer:
    """Writes a trace out operation by operation.

    What stands for several operations repeats some: a gradient computes again what the operation it
    belongs to computed on its way. Where there is any, equal operations become one.

    Attributes:
        found: operations so far.
        consts: constants that they use.
        expands: whether anything stands for several operations.
    """

    def __init__(self, trace: Trace) -> None:
        self.found: list[_Operation] = []
        self.consts: dict[Any, None] = dict.fromkeys(trace.consts)
        self._numbers: dict[Any, _Number] = {}
        self.expands = any(n.instr is not None and n.instr.op.recipe for n in trace.nodes)
        self._equal: dict[Any, _Operation] = {}

    def write(self, instr: Instr, inputs: tuple[Any, ...], src: Source | None) -> Any:
        """The operation of an instruction, or a list of them for the outputs of a block."""
        if instr.op.recipe is not None:
            return self._write_all(instr.op.recipe(instr), inputs, src)
        if inputs and type(inputs[0]) is list:
            return inputs[0][instr.params[0]]  # takes one output of a block
        known = self._equal.get((instr, inputs))
        if known is None:
            known = _Operation(instr, inputs, src)
            self.found.append(known)
            if self.expands:
                self._equal[instr, inputs] = known
        return known

    def _constant(self, node: Node) -> Any:
        """What stands for a constant or number of a block; equal numbers are one."""
        if node.instr is None or node.instr.op is CONST:
            return node
        key = (node.aval, repr(node.data))  # tells 0.0 from -0.0
        return self._numbers.setdefault(key, _Number(node.data, node.aval))

    def _write_all(self, block: Block, inputs: tuple[Any, ...], src: Source | None) -> Any:
        consts = [self._constant(node) for node in block.consts]
        self.consts.update(dict.fromkeys(consts))
        values: list[Any] = [*inputs, *consts]
        for step in block.steps:
            operands = tuple([values[k] for k in step.inputs])
            line = src if block.single else step.src  # a composite was called in one line
            values.append(self.write(step.instr, operands, line or step.src))
        outputs = [values[k] for k in block.outputs]
        return outputs[0] if block.single else outputs


def _needed(operations: list[_Operation], roots: list[Any]) -> list[_Operation]:
    """The operations that the roots depend on, in the same order."""
    needed = set(roots)
    for operation in reversed(operations):
        if operation in needed:
            needed.update(operation.inputs)
    return [operation for operation in operations if operation in needed]
