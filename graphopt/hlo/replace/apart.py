"""The module to edit: one in which every operation to be replaced stands alone, its operands in memory.

Most operations that are replaced do so in the incoming module: loops, scatters, calls. That module is
then taken as it is. Where one is part of a kernel, a module is written in which it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.emit.module import emit
from graphopt.hlo.emit.protos import ModuleWriter
from graphopt.hlo.graph.decisions import Decisions
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.graph.walks import roots_around
from graphopt.hlo.module.index import ComputationIndex, Instruction, ModuleIndex, Role
from graphopt.hlo.module.proto import HloComputationProto, HloInstructionProto
from graphopt.hlo.module.schedule import read_schedule
from graphopt.hlo.plan.clusters import form_clusters
from graphopt.hlo.plan.items import make_items
from graphopt.hlo.plan.regions import make_plan
from graphopt.hlo.restructure.sites import Candidate
from graphopt.hlo.restructure.table import RESTRUCTURES
from graphopt.machine import UnitKind


@dataclass(frozen=True)
class Apart:
    """A module to edit.

    Attributes:
        header: ``HloModuleProto`` without computations.
        computations: ``HloComputationProto`` of each, callees first; those that `known` has are only read.
        placed: node to be replaced -> its instruction as (computation id, local id).
        fused: nodes to be replaced that are the only operation of a fusion there.
        origins: (computation id, local id) -> node that the instruction is.
        known: computations that are those of the incoming module, by id.
    """

    header: Any
    computations: list[Any]
    placed: Mapping[int, tuple[int, int]]
    fused: Collection[int]
    origins: dict[tuple[int, int], int]
    known: Mapping[int, ComputationIndex]


def set_apart(
    graph: Graph, codes: NDArray[np.int8], known_behind: Mapping[int, list[int]]
) -> Apart:
    """The module of a graph, every node with a code apart from others.

    Args:
        graph: whose nodes are replaced.
        codes: int8 [N]; `Decisions.restructure`, or 0.
        known_behind: node -> nodes beyond its operands that must be in memory, in place of the row's own.
    """
    decisions = _extracting(graph, codes, known_behind)
    placed = _instructions(graph, codes, decisions)
    if placed is not None:
        return _as_it_is(graph, placed)
    clustering, writer = write_again(graph, decisions)
    return Apart(
        header=ModuleWriter.header_of(graph.source.module),
        computations=list(writer.module.computations),
        placed=writer.placed,
        fused=clustering.clusters,
        origins=writer.origins(),
        known=writer.copied,
    )


def write_again(graph: Graph, decisions: Decisions) -> tuple[Any, ModuleWriter]:
    """Clusters and module of a graph under masked decisions, for a module that is only read again."""
    clustering = form_clusters(graph, decisions, read_again=True)
    plans = [make_plan(graph, clustering, i) for i in make_items(graph, decisions, clustering)]
    return clustering, emit(graph, clustering, plans)


def _extracting(
    graph: Graph, codes: NDArray[np.int8], known_behind: Mapping[int, list[int]]
) -> Decisions:
    """XLA's decisions, but operations to be replaced stand alone with their operands in memory."""
    decisions = graph.default.copy()
    kinds = [unit.kind for unit in graph.units]
    loop, runtime = kinds.index(UnitKind.LOOP), kinds.index(UnitKind.RUNTIME)
    for node in np.flatnonzero(codes).tolist():
        row = RESTRUCTURES[int(codes[node])]
        for edited in (node, *row.edits(Candidate(graph, node))):
            for root in roots_around(graph, graph.default.fuse, edited):
                if kinds[decisions.unit[root]] is UnitKind.LIBRARY:
                    decisions.unit[root] = runtime if graph.ops[root].name == "dot" else loop
        if graph.ops[node].fusible:
            decisions.unit[node] = loop
        elif kinds[decisions.unit[node]] in (UnitKind.LIBRARY, UnitKind.NATIVE):
            # A loop in a function of its own would leave a call around its replacement.
            decisions.unit[node] = runtime
        behind = known_behind.get(node)
        if behind is None:
            behind = row.behind(Candidate(graph, node))
        between = graph.operand_lists[node] if behind else []
        for value in between:
            if graph.ops[value].fusible:
                decisions.unit[value] = loop
        for value in (node, *graph.operand_lists[node], *behind):
            if graph.ops[value].name != "constant":
                decisions.fuse[value] = False
    return decisions


def _instructions(
    graph: Graph, codes: NDArray[np.int8], decisions: Decisions
) -> dict[int, tuple[int, int]] | None:
    """Nodes to be replaced -> the instructions that they are; None where another module must be written."""
    if not np.array_equal(decisions.fuse, graph.default.fuse):
        return None
    changed = set(np.flatnonzero(decisions.unit != graph.default.unit).tolist())
    computations = graph.source.module.computations
    out = {}
    for node in np.flatnonzero(codes).tolist():
        instances = graph.source.instances[node]
        if len(instances) != 1 or graph.ops[node].fusible:
            return None
        owner, local = instances[0]
        if computations[owner].role >= Role.FUSED:
            return None
        if (owner, local) not in graph.source.values:  # the loop of a small call
            caller = computations[owner].caller
            if caller is None or graph.source.values.get((caller[1], caller[0])) != node:
                return None
            changed.discard(node)
            local, owner = caller
        out[node] = owner, local
    return None if changed else out


def _as_it_is(graph: Graph, placed: dict[int, tuple[int, int]]) -> Apart:
    module = graph.source.module
    schedule = read_schedule(module)
    computations = [
        c.proto if c.role >= Role.FUSED else _in_order(module, c, schedule[c.id], placed.values())
        for c in module.computations.values()
    ]
    return Apart(
        header=ModuleWriter.header_of(module),
        computations=computations,
        placed=placed,
        fused=(),
        origins={i: node for node, own in enumerate(graph.source.instances) for i in own},
        known={c.id: c for c in module.computations.values() if c.role >= Role.FUSED},
    )


def _in_order(
    module: ModuleIndex,
    computation: ComputationIndex,
    places: dict[int, int],
    replaced: Collection[tuple[int, int]],
) -> Any:
    """A computation with its instructions in the order of the schedule, by their local ids."""
    proto = computation.proto
    out = HloComputationProto(name=proto.name, id=proto.id, execution_thread=proto.execution_thread)
    out.program_shape.CopyFrom(proto.program_shape)
    out.root_id = computation.root
    for instruction in sorted(computation.instructions, key=lambda i: places[i.local]):
        written = out.instructions.add()
        written.CopyFrom(_inner_loop(module, computation, instruction, replaced))
        written.id = instruction.local
        if instruction.operands:
            written.operand_ids[:] = instruction.operands
        if instruction.control:
            written.control_predecessor_ids[:] = instruction.control
    return out


def _inner_loop(
    module: ModuleIndex,
    computation: ComputationIndex,
    instruction: Instruction,
    replaced: Collection[tuple[int, int]],
) -> Any:
    """The instruction; in place of a small call whose loop is to be replaced, that loop."""
    if instruction.opcode != "call" or (computation.id, instruction.local) not in replaced:
        return instruction.proto
    callee = module.computations[instruction.called[0]]
    out = HloInstructionProto()
    out.CopyFrom(callee.by_id[callee.root].proto)
    out.name = instruction.proto.name
    return out
