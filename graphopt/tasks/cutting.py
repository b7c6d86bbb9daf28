"""Cuts a program's graph into tasks: loops with their bodies, and runs of kernels between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.model import CostModel
from graphopt.errors import GraphOptError
from graphopt.hlo import Graph
from graphopt.hlo.graph.build import build_over
from graphopt.hlo.module.index import (
    ComputationIndex,
    Instruction,
    parse,
)
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.schedule import read_schedule
from graphopt.hlo.module.small_calls import is_inlined_call, is_inlined_call_body
from graphopt.policy.alternatives.sites import Sites
from graphopt.tasks.extract import Place, extract

MAX_LOOP_NODES: Final = 400
"""Larger loops are cut inside."""

MAX_RUN_NODES: Final = 120
"""Longer runs are cut in pieces."""

MIN_SHARE: Final = 0.01
"""Part of the program's estimated time that a task must take."""

_CONTROL: Final = frozenset({"while", "conditional", "call"})
_GLUE: Final = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})


@dataclass(frozen=True)
class Piece:
    """Where a task stands.

    Attributes:
        kind: ``loop``, ``branch`` (a conditional), ``call`` or ``run``.
        computation: id of the computation.
        members: local ids of its instructions, in their order in the schedule.
    """

    kind: str
    computation: int
    members: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Task:
    """A part of a program as a module of its own.

    Attributes:
        piece: where it stands.
        data: serialised module.
        inputs: which value of the program each parameter is.
        share: part of the program's estimated time, by the cost model.
        executions: how often it runs per run of the program.
        graph: of the module.
        nodes: int32 [T]; the program's node of each of its T nodes, -1 for what only the task has.
    """

    piece: Piece
    data: bytes = field(repr=False)
    inputs: tuple[Place, ...] = field(repr=False)
    share: float
    executions: float
    graph: Graph
    nodes: NDArray[np.int32] = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Hex digest of structure, shapes and XLA's decisions: equal for equal tasks of any programs."""
        return self.graph.fingerprint

    @cached_property
    def name(self) -> str:
        """For progress and reports."""
        return f"{self.piece.kind}-{self.fingerprint[:10]}"


def cut(
    graph: Graph, model: CostModel | None = None, *, least_share: float = MIN_SHARE
) -> list[Task]:
    """The tasks of a program by share, largest first; no instruction is in two.

    Parts that cannot stand alone (values that are no arrays, in-place promises that reach beyond) are left
    out.

    Args:
        graph: of the program, as the hook receives it.
        model: its costs, if they are known already.
        least_share: part of the program's estimated time that a task must take.
    """
    model = CostModel(graph) if model is None else model
    nodes_of = _nodes_of(graph)
    weights = _weights(graph, model)
    total = max(sum(weights.values()), 1e-9)
    found = []
    for piece in pieces(graph, nodes_of):
        inside = _inside(graph, nodes_of, piece)
        share = sum(weights.get(node, 0.0) for node in inside) / total
        if share >= least_share:
            task = _made(graph, piece, nodes_of, min(share, 1.0), inside)
            if task is not None:
                found.append(task)
    return sorted(found, key=lambda task: -task.share)


def _made(
    graph: Graph, piece: Piece, nodes_of: NodesOf, share: float, inside: list[int]
) -> Task | None:
    try:
        taken = extract(graph.source.module, piece.computation, piece.members)
        own = build_over(parse(taken.data), graph.units)
    except GraphOptError:
        return None
    nodes = [
        next((nodes_of[i] for i in instances if i in nodes_of), -1)
        for instances in own.source.instances
    ]
    executions = float(max((graph.executions[node] for node in inside[-1:]), default=1.0))
    return Task(piece, taken.data, taken.inputs, share, executions, own, np.array(nodes, np.int32))


NodesOf = dict[tuple[int, int], int]
"""(computation id, local id) of an instruction -> node."""


def _nodes_of(graph: Graph) -> NodesOf:
    return {i: node for node, found in enumerate(graph.source.instances) for i in found}


def _weights(graph: Graph, model: CostModel) -> dict[int, float]:
    """Estimated nanoseconds of every kernel and plain operation, loops themselves left out."""
    sites = Sites(graph, model)
    return {
        node: sites.kernel_ns(node)
        for node in np.flatnonzero(~graph.default.fuse).tolist()
        if graph.ops[node].kind not in (OpKind.STRUCTURE, OpKind.CONTROL)
        and graph.ops[node].name != "bitcast"
    }


def _inside(graph: Graph, nodes_of: NodesOf, piece: Piece) -> list[int]:
    """Nodes that a piece computes, those of called computations included; its own last."""
    computation = graph.source.module.computations[piece.computation]
    own = []
    for local in piece.members:
        own += _nodes_at(graph, nodes_of, computation, computation.by_id[local])
    inside = set(own)
    nested: list[int] = []
    for index in range(len(graph.computations) - 1, -1, -1):  # callers before callees
        called = graph.computations[index]
        if called.caller in inside:
            more = range(called.first, called.end)
            inside.update(more)
            nested += more
    return [*nested, *dict.fromkeys(own)]


def _nodes_at(
    graph: Graph, nodes_of: NodesOf, computation: ComputationIndex, instruction: Instruction
) -> list[int]:
    """Nodes that stand for one instruction, those of an inlined fusion included."""
    direct = nodes_of.get((computation.id, instruction.local))
    if direct is not None:
        return [direct]
    found = []
    for callee in instruction.called:
        body = graph.source.module.computations[callee]
        found += [
            nodes_of[callee, i.local] for i in body.instructions if (callee, i.local) in nodes_of
        ]
    return found


def pieces(graph: Graph, nodes_of: NodesOf | None = None) -> Iterator[Piece]:
    """Where the tasks of a program stand, computation by computation, callers first."""
    nodes_of = _nodes_of(graph) if nodes_of is None else nodes_of
    module = graph.source.module
    places = read_schedule(module)
    taken: set[int] = set()
    for computation in reversed(list(module.graph_computations())):
        if computation.id in taken:
            taken.update(_callees(computation))
            continue
        if is_inlined_call_body(module, computation):
            continue
        for piece in _cut_computation(graph, nodes_of, computation, places[computation.id]):
            yield piece
            if piece.kind != "run":
                loop = computation.by_id[piece.members[0]]
                taken.update(loop.called)


def _callees(computation: ComputationIndex) -> set[int]:
    return {callee for i in computation.instructions for callee in i.called}


def _cut_computation(
    graph: Graph, nodes_of: NodesOf, computation: ComputationIndex, places: dict[int, int]
) -> Iterator[Piece]:
    run: list[int] = []
    size = 0
    for local in sorted(computation.by_id, key=places.__getitem__):
        instruction = computation.by_id[local]
        if instruction.opcode in _CONTROL:
            if run:
                yield Piece("run", computation.id, tuple(run))
            run, size = [], 0
            nested = _nested(graph, nodes_of, computation, instruction)
            if nested <= MAX_LOOP_NODES:
                yield Piece(_kind(graph, instruction), computation.id, (local,))
            continue
        if instruction.opcode in _GLUE:
            continue
        count = max(1, len(_nodes_at(graph, nodes_of, computation, instruction)))
        if run and size + count > MAX_RUN_NODES:
            yield Piece("run", computation.id, tuple(run))
            run, size = [], 0
        run.append(local)
        size += count
    if run:
        yield Piece("run", computation.id, tuple(run))


def _kind(graph: Graph, instruction: Instruction) -> str:
    if instruction.opcode == "while" or is_inlined_call(graph.source.module, instruction):
        return "loop"
    return "branch" if instruction.opcode == "conditional" else "call"


def _nested(
    graph: Graph, nodes_of: NodesOf, computation: ComputationIndex, instruction: Instruction
) -> int:
    """Nodes of a loop, branch or call, with all that it calls."""
    if is_inlined_call(graph.source.module, instruction):
        computation = graph.source.module.computations[instruction.called[0]]
        instruction = computation.by_id[computation.root]
    node = nodes_of.get((computation.id, instruction.local))
    return MAX_LOOP_NODES + 1 if node is None else graph.nested_sizes[node]


def distinct(tasks: list[Task]) -> dict[str, list[Task]]:
    """Tasks by fingerprint, in the order in which each first appears."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.fingerprint, []).append(task)
    return found
