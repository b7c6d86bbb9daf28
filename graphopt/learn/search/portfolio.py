"""Starting points of every search: what has worked before, as whole decision vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure import CODE, IN_ORDER, dispatch_code
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.steps import STEPS, heuristic, heuristic_steps
from graphopt.policy.heuristic.support.walls import open_walls
from graphopt.policy.proposals.vectors import keep_shared

MAX_REPLACED: Final = 64
"""Operations replaced at once in a starting point: each makes the module larger."""


@dataclass(frozen=True)
class Start:
    """One starting point.

    Attributes:
        name: for reports.
        decisions: inside the masks.
    """

    name: str
    decisions: Decisions


def portfolio(graph: Graph) -> list[Start]:
    """Distinct starting points, XLA's default first."""
    starts = [Start("default", graph.default.copy())]
    for name, make in _MAKERS:
        for label, decisions in make(graph):
            if not any(decisions.same_as(s.decisions) for s in starts):
                starts.append(Start(f"{name} {label}".strip(), decisions))
    return starts


Made = Iterator[tuple[str, Decisions]]


def _heuristic(graph: Graph) -> Made:
    whole = heuristic(graph)
    moved = (graph.default if whole is None else whole).copy()
    for node in np.flatnonzero(graph.masks.restructure[:, CODE["caller-thread"]]):
        in_order = bool(IN_ORDER[moved.restructure[node]])
        moved.restructure[node] = dispatch_code(on_caller=True, in_order=in_order)
    if whole is not None:
        yield "", whole
        for step in STEPS:
            yield step, heuristic_steps(graph, [step])
            yield f"without {step}", heuristic_steps(graph, [s for s in STEPS if s != step])
    yield "on the caller's thread", moved


def _native_loops(graph: Graph) -> Made:
    """Every loop native; the outermost ones; each outermost loop alone."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    allowed = graph.masks.unit[:, unit]
    loops = [n for n, op in enumerate(graph.ops) if op.kind is OpKind.CONTROL and allowed[n]]
    entry = len(graph.computations) - 1
    outer = [n for n in loops if int(graph.computation[n]) == entry]
    for label, nodes in (("all", loops), ("outermost", outer), *(
        (graph.source.names[n], [n]) for n in outer[:6] if len(outer) > 1
    )):  # fmt: skip
        if nodes:
            out = graph.default.copy()
            out.unit[nodes] = unit
            yield label, out


def _native_everything(graph: Graph) -> Made:
    """All that may be native, in loops, and everywhere."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    allowed = graph.masks.unit[:, unit]
    inside = graph.computation != len(graph.computations) - 1
    for label, where in (("in loops", allowed & inside), ("everywhere", allowed)):
        if where.any():
            out = graph.default.copy()
            out.unit[where] = unit
            yield label, out


def _walls_opened(graph: Graph) -> Made:
    """Loops native, with every operation replaced that would keep them from it."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    loops = [n for n, op in enumerate(graph.ops) if op.kind is OpKind.CONTROL]
    if not loops:
        return
    entry = len(graph.computations) - 1
    for label, chosen in (
        ("all", loops),
        ("outermost", [n for n in loops if int(graph.computation[n]) == entry]),
    ):
        out = graph.default.copy()
        for node in chosen:
            if graph.masks.unit[node, unit]:
                out.unit[node] = unit
        for computation in graph.computations[:-1]:
            open_walls(graph, out, range(computation.first, computation.end))
        yield label, out


def _replacements(graph: Graph) -> Made:
    """Every operation that one row of the table can replace."""
    for code, row in enumerate(RESTRUCTURES):
        nodes = np.flatnonzero(graph.masks.restructure[:, code])
        if code and len(nodes):
            out = graph.default.copy()
            out.restructure[nodes[:MAX_REPLACED]] = code
            yield row.name, out


def _keep_shared(graph: Graph) -> Made:
    yield "", keep_shared(graph)


def _fuse_everything(graph: Graph) -> Made:
    out = graph.default.copy()
    out.fuse[graph.masks.fuse[:, 1]] = True
    yield "", out


def _join_everything(graph: Graph) -> Made:
    out = graph.default.copy()
    out.join[graph.masks.join[:, 1]] = True
    yield "", out


def _one_kind(graph: Graph) -> Made:
    """Loops on one core, on all cores; what the library can take to the library, or none of it."""
    roots = ~graph.default.fuse
    for label, index in ((u.name, i) for i, u in enumerate(graph.units)):
        unit = graph.units[index]
        if unit.kind is UnitKind.NATIVE or unit.kind is UnitKind.RUNTIME:
            continue
        out = graph.default.copy()
        out.unit[roots & graph.masks.unit[:, index]] = index
        yield label, out


_MAKERS: Final[tuple[tuple[str, Callable[[Graph], Made]], ...]] = (
    ("heuristic", _heuristic),
    ("native loops", _native_loops),
    ("native", _native_everything),
    ("walls opened", _walls_opened),
    ("replace", _replacements),
    ("keep shared values", _keep_shared),
    ("fuse everything", _fuse_everything),
    ("join everything", _join_everything),
    ("unit", _one_kind),
)
"""Name -> starting points."""
