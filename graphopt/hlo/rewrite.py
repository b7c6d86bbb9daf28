"""`rewrite(graph, decisions)`: the module bytes that make XLA do what was decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from graphopt.hlo.emit.module import emit
from graphopt.hlo.emit.sequences import run_in_order
from graphopt.hlo.emit.verify import verify
from graphopt.hlo.graph.decisions import Decisions
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.legal.rules import settled_masks
from graphopt.hlo.module.index import index
from graphopt.hlo.module.schedule import write_schedule
from graphopt.hlo.plan.clusters import Clustering, form_clusters
from graphopt.hlo.plan.items import make_items
from graphopt.hlo.plan.regions import Plan, Region, make_plan
from graphopt.hlo.replace.apply import apply_restructures
from graphopt.hlo.restructure.rows.caller_thread import is_on_caller_now, stays_on_caller, take_off
from graphopt.hlo.restructure.table import IN_ORDER, ON_CALLER, replacing


@dataclass(frozen=True)
class Rewrite:
    """A rewritten module.

    Attributes:
        data: serialised ``HloModuleProto``.
        clusters: number of clusters (fusions).
        regions: number of native regions.
        overrides: rule name -> number of decisions that interactions settled under it.
        items: instruction name -> node of the cluster's first output, of the plain instruction, or of the
            first item of the native region that it executes: joins profiles with the plan.
        restructured: number of operations that were replaced.
        caller_thread: the program runs on the thread that calls it.
        sequences: number of computations whose kernels run one after the other.
    """

    data: bytes
    clusters: int
    regions: int
    overrides: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict, repr=False)
    restructured: int = 0
    caller_thread: bool = False
    sequences: int = 0


def rewrite(graph: Graph, decisions: Decisions) -> Rewrite:
    """Applies decisions to a graph's module.

    Operations are replaced first (`Decisions.restructure`); the other decisions are then carried over
    to the graph of the module that results. A caller that wants to decide about the replacements too
    takes that graph from `restructured` and rewrites it.

    Args:
        graph: as built from the incoming module.
        decisions: inside ``graph.masks``.

    Raises:
        DecisionError: the decisions do not fit the graph or its masks.
        VerificationError: the result breaks a static rule (a defect here, never the caller's).
    """
    graph.masks.check(decisions)
    codes = replacing(decisions.restructure)
    stays = stays_on_caller(graph.source.module)
    if not codes.any():
        return _write(graph, decisions, stays)
    after = apply_restructures(graph, codes)
    carried = after.carry(decisions)
    settled_masks(after.graph).check(carried)
    return replace(_write(after.graph, carried, stays), restructured=int(np.count_nonzero(codes)))


def _write(graph: Graph, decisions: Decisions, stays: bool) -> Rewrite:
    """The module of a graph whose operations stay as they are, under checked decisions.

    Args:
        graph: of the module whose operations were replaced.
        decisions: carried over to it.
        stays: XLA runs the program on its caller's thread, and shall do so where it has more operations now.
    """
    clustering, plans = plan(graph, decisions)
    written = emit(graph, clustering, plans)
    module = written.module
    write_schedule(module)
    verify(module, graph.source.module, written.copied)
    sequences = run_in_order(written, _in_order(graph, decisions))
    caller_thread = bool(ON_CALLER[decisions.restructure].any())
    if caller_thread or (stays and not is_on_caller_now(index(module))):
        take_off(module)
    write_schedule(module)
    regions = sum(isinstance(e, Region) for p in plans for e in p.entries)
    return Rewrite(
        data=module.SerializeToString(),
        clusters=len(clustering.clusters),
        regions=regions,
        overrides=dict(Counter(rule for _, rule in clustering.overrides)),
        items=written.entry_names,
        caller_thread=caller_thread,
        sequences=sequences,
    )


def _in_order(graph: Graph, decisions: Decisions) -> set[int]:
    """Ids of the computations whose kernels shall run one after the other."""
    chosen = np.flatnonzero(IN_ORDER[decisions.restructure])
    return {int(graph.computations[graph.computation[node]].id) for node in chosen}


def plan(graph: Graph, decisions: Decisions) -> tuple[Clustering, list[Plan]]:
    """Clusters, regions and order of every computation under masked decisions."""
    clustering = form_clusters(graph, decisions)
    items = make_items(graph, decisions, clustering)
    return clustering, [make_plan(graph, clustering, i) for i in items]
