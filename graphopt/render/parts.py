"""What a module executes under a decision vector: parts, with their times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.plan.regions import Region
from graphopt.measure.plans import Outcome, planned

PartTimes = Callable[[Outcome], dict[int, float]]
"""Seconds per run of the module of every item of an outcome, by item; see
`AnalyticModel.item_seconds`."""

NO_REGION: Final = -1


@dataclass(frozen=True)
class Part:
    """A cluster, or an instruction that is no cluster's.

    Attributes:
        item: node that names it: the first output of a cluster, or the instruction.
        outputs: nodes whose values it writes.
        nodes: nodes that it computes, the outputs included.
        unit: index into ``graph.units``.
        computation: index into ``graph.computations``.
        region: number of its native region within the module; `NO_REGION` outside.
        executions: times it runs per run of the module.
        seconds: of all its executions per run of the module.
    """

    item: int
    outputs: tuple[int, ...]
    nodes: tuple[int, ...]
    unit: int
    computation: int
    region: int
    executions: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Side:
    """Everything a module executes, in order, under one decision vector.

    Attributes:
        decisions: the decisions.
        outcome: what they come to.
        parts: in execution order, computation by computation; nothing that only names values.
    """

    decisions: Decisions
    outcome: Outcome
    parts: tuple[Part, ...]

    @cached_property
    def seconds(self) -> float:
        """Seconds per run of the module."""
        return sum(part.seconds for part in self.parts)


def make_side(graph: Graph, decisions: Decisions, times: PartTimes) -> Side:
    """The parts of a module under decisions inside the graph's masks."""
    outcome = planned(graph, decisions)
    seconds = times(outcome)
    parts: list[Part] = []
    region = NO_REGION
    for index, plan in enumerate(outcome.plans):
        for entry in plan.entries:
            inside = isinstance(entry, Region)
            region += inside
            for item in entry.items if isinstance(entry, Region) else (entry,):
                number = region if inside else NO_REGION
                part = _part(graph, outcome, item, index, number, seconds.get(item, 0.0))
                if part is not None:
                    parts.append(part)
    return Side(decisions, outcome, tuple(parts))


def _part(
    graph: Graph, outcome: Outcome, item: int, computation: int, region: int, seconds: float
) -> Part | None:
    clustering = outcome.clustering
    cluster = clustering.clusters.get(item)
    executions = float(graph.executions[item])
    if cluster is None:
        op = graph.ops[item]
        if op.kind is OpKind.STRUCTURE or op.name == "bitcast":
            return None
        unit = clustering.unit[item]
        return Part(item, (item,), (item,), unit, computation, region, executions, seconds)
    outputs, nodes = tuple(cluster.outputs), tuple(cluster.nodes)
    return Part(item, outputs, nodes, cluster.unit, computation, region, executions, seconds)


def main_node(graph: Graph, part: Part) -> int:
    """The node that a reader knows a part by: its first output, views looked through."""
    node, inside = part.item, set(part.nodes)
    while graph.ops[node].name == "bitcast" and graph.operand_lists[node][0] in inside:
        node = graph.operand_lists[node][0]
    return node


def shape_text(graph: Graph, node: int) -> str:
    """``f32[4,8]``, or ``tuple``."""
    dtype = DType(int(graph.dtype[node]))
    if dtype is DType.TUPLE:
        return "tuple"
    return f"{dtype.name.lower()}[{','.join(map(str, graph.dim_lists[node]))}]"


def time_text(seconds: float) -> str:
    """A time in the unit that suits it: ``812 ns``, ``3.1 us``, ``2.40 ms``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
