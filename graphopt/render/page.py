"""Explanations as one self-contained page: data as JSON, drawn by the script beside this file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from graphopt.hlo import Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.graph.source_lines import SourceLines, operation_path
from graphopt.render.modules import ModuleExplanation
from graphopt.render.moves import decisions_text, forbidden, summarise
from graphopt.render.parts import NO_REGION, Part, Side, main_node, shape_text
from graphopt.render.text import explanation_text


def explanation_page(
    title: str, policy: str, modules: Sequence[ModuleExplanation], head: Sequence[str] = ()
) -> str:
    """The page; it loads nothing from elsewhere.

    Args:
        title: what is explained.
        policy: who decided.
        modules: one entry per module.
        head: lines about the whole program.
    """
    folder = files("graphopt.render")
    data = json.dumps(
        {
            "title": title,
            "policy": policy,
            "head": list(head),
            "modules": [_module(module) for module in modules],
        },
        separators=(",", ":"),
    )
    page, style, script = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "page.css", "page.js")
    )
    return page.format(
        title=escape(title),
        style=style,
        script=script,
        summary=escape(explanation_text(title, policy, modules, head=head)),
        data=data.replace(
            "<", "\\u003c"
        ),  # text from a user's file must not end the script element
    )


def _module(module: ModuleExplanation) -> dict[str, Any]:
    graph = module.graph
    return {
        "name": module.name,
        "clock": module.clock,
        "remark": module.remark,
        "speedup": module.speedup,
        "units": [{"name": unit.name, "kind": unit.kind.value} for unit in graph.units],
        "default": _side(graph, module.default),
        "chosen": _side(graph, module.chosen),
        "computations": _computations(graph),
        "nodes": _nodes(module),
        "summary": summarise(tuple(module.changes)),
        "overrides": module.chosen.outcome.overrides,
        "moves": [
            {
                "before": move.before,
                "after": move.after,
                "before_s": move.before_s,
                "after_s": move.after_s,
                "why": summarise(move.changes),
            }
            for move in module.moves
        ],
    }


def _side(graph: Graph, side: Side) -> dict[str, Any]:
    return {
        "seconds": side.seconds,
        "clusters": side.outcome.clusters,
        "regions": side.outcome.regions,
        "parts": [_part(graph, part) for part in side.parts],
    }


def _part(graph: Graph, part: Part) -> dict[str, Any]:
    row: dict[str, Any] = {
        "o": part.outputs,
        "m": main_node(graph, part),
        "n": part.nodes,
        "u": part.unit,
        "c": part.computation,
        "x": part.executions,
        "s": part.seconds,
    }
    if part.region != NO_REGION:
        row["r"] = part.region
    return row


def _computations(graph: Graph) -> list[dict[str, Any]]:
    return [
        {
            "name": computation.name,
            "role": computation.role.name.lower().replace("_", " "),
            "parent": computation.parent,
            "trips": computation.trip_count,
            "nodes": computation.end - computation.first,
        }
        for computation in graph.computations
    ]


def _nodes(module: ModuleExplanation) -> dict[str, Any]:
    """Columns with N entries; source lines are numbers into a table."""
    graph, sources = module.graph, module.sources
    lines: dict[Any, int] = {}
    return {
        "name": graph.source.names,
        "op": [op.name for op in graph.ops],
        "shape": [shape_text(graph, node) for node in range(len(graph))],
        "path": [operation_path(graph, node) for node in range(len(graph))],
        "line": [_line_number(sources, node, lines) for node in range(len(graph))],
        "default": [decisions_text(graph, graph.default, n) for n in range(len(graph))],
        "chosen": [decisions_text(graph, module.chosen.decisions, n) for n in range(len(graph))],
        "forbidden": ["; ".join(forbidden(graph, node)) for node in range(len(graph))],
        "changed": _changed(module),
        "settled": [[node, rule] for node, rule in module.chosen.outcome.clustering.overrides],
        "lines": [
            {"at": str(line), "file": line.file, "in": line.function, "text": line.text}
            for line in lines
        ],
    }


def _line_number(sources: SourceLines, node: int, lines: dict[Any, int]) -> int | None:
    line = sources.of(node)
    return None if line is None else lines.setdefault(line, len(lines))


def _changed(module: ModuleExplanation) -> list[int]:
    default, chosen = module.graph.default, module.chosen.decisions
    nodes: set[int] = set()
    for field in FIELDS:
        nodes.update((getattr(default, field) != getattr(chosen, field)).nonzero()[0].tolist())
    return sorted(nodes)
