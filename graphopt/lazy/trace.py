"""From root nodes to a graph: canonical order, structural key, leaves and scalar parameters."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np

from graphopt.lazy.node import CONST, Aval, Instr, Node
from graphopt.lazy.source import Source

_by_uid: Final = attrgetter("uid")


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
                if each not in seen and each.data is None and each not in given:
                    seen.add(each)
                    nodes.append(each)
        nodes.sort(key=_by_uid)
        positions: dict[Node, int] = {}
        code: list[int] = []
        leaves: list[Node] = []
        consts: list[Node] = []
        scalars: list[Node] = []
        count = 0
        for node in nodes:
            code.append(node.instr.id)  # type: ignore[union-attr]
            for each in node.inputs:
                known = positions.get(each)
                if known is not None:
                    code.append(known)
                    continue
                positions[each] = count
                count += 1
                if each.instr is None or each in given:
                    code.append(-each.aval.id)
                    leaves.append(each)
                else:
                    code.append(-each.instr.id)
                    (consts if each.instr.op is CONST else scalars).append(each)
            positions[node] = count
            count += 1
        code.append(0)
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
    """The plan of a trace; keeps no node alive."""
    slots: dict[Node, int] = {}
    for node in (*trace.leaves, *trace.scalars, *trace.consts, *trace.nodes):
        slots[node] = len(slots)
    roots = tuple(slots[root] for root in trace.roots)
    last = {slots[each]: k for k, node in enumerate(trace.nodes) for each in node.inputs}
    frees: list[list[int]] = [[] for _ in trace.nodes]
    keep = set(roots)
    for slot, k in last.items():
        if slot not in keep:
            frees[k].append(slot)
    steps = []
    for k, node in enumerate(trace.nodes):
        assert node.instr is not None
        inputs = tuple(slots[each] for each in node.inputs)
        steps.append(Step(node.instr, inputs, slots[node], tuple(frees[k]), node.src))
    return Plan(
        steps=tuple(steps),
        leaf_slots=tuple(slots[n] for n in trace.leaves),
        leaf_avals=tuple(n.aval for n in trace.leaves),
        scalar_slots=tuple(slots[n] for n in trace.scalars),
        scalar_avals=tuple(n.aval for n in trace.scalars),
        const_slots=tuple(slots[n] for n in trace.consts),
        const_values=tuple(np.asarray(n.data, n.aval.dtype.np) for n in trace.consts),
        root_slots=roots,
        root_avals=tuple(n.aval for n in trace.roots),
        device=trace.roots[0].aval.device,
    )
