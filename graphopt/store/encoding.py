"""Decisions as text: what differs from XLA's own, field by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import numpy as np

from graphopt.errors import DecisionError
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.restructure import CODE, RESTRUCTURES

T = TypeVar("T")

SPACE_VERSION: Final = 1
"""Raised when the numbering of nodes or the meaning of a field changes: older texts are refused."""


def encode_decisions(graph: Graph, decisions: Decisions) -> str:
    """JSON of the changes: ``{"space": 1, "nodes": N, "unit": {"12": "native"}, "fuse": {"3": 0}}``.

    Units and replacements go by name: numbers depend on the machine's cores and on the version.
    """
    changes: dict[str, Any] = {}
    for field in FIELDS:
        ours, default = getattr(decisions, field), getattr(graph.default, field)
        nodes = np.flatnonzero(ours != default).tolist()
        if nodes:
            changes[field] = {str(n): _value(graph, field, int(ours[n])) for n in nodes}
    if not changes:
        return "{}"
    return json.dumps({"space": SPACE_VERSION, "nodes": len(graph), **changes}, sort_keys=True)


def _value(graph: Graph, field: str, value: int) -> int | str:
    if field == "unit":
        return graph.units[value].name
    return RESTRUCTURES[value].name if field == "restructure" else value


def decode_known(graph: Graph, rows: Iterable[tuple[str, T]]) -> list[tuple[Decisions, T]]:
    """Vectors of a graph with what is known of each, in the same order.

    XLA's own decisions are left out, and vectors that were made under other rules and do not fit any more.
    """
    out = []
    for text, known in rows:
        try:
            decisions = decode_decisions(graph, text)
        except DecisionError:
            continue
        if not decisions.same_as(graph.default):
            out.append((decisions, known))
    return out


def decode_decisions(graph: Graph, text: str) -> Decisions:
    """The decisions of a text, checked against the graph's masks.

    Raises:
        DecisionError: the text is damaged, belongs to another graph or version, or is not legal.
    """
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        decisions = graph.default.copy()
        if data:
            _check_header(graph, data)
            _apply(graph, decisions, data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(f"decisions cannot be read: {error}") from error
    graph.masks.check(decisions)
    return decisions


def _check_header(graph: Graph, data: dict[str, Any]) -> None:
    if data.get("space") != SPACE_VERSION:
        raise ValueError(f"decision space {data.get('space')!r}, this is {SPACE_VERSION}")
    if data.get("nodes") != len(graph):
        raise ValueError(f"{data.get('nodes')!r} nodes, the graph has {len(graph)}")


def _apply(graph: Graph, decisions: Decisions, data: dict[str, Any]) -> None:
    names = {"unit": {unit.name: i for i, unit in enumerate(graph.units)}, "restructure": CODE}
    for field, changes in data.items():
        if field in ("space", "nodes"):
            continue
        if field not in FIELDS:
            raise ValueError(f"unknown field {field!r}")
        values = getattr(decisions, field)
        for node, value in changes.items():
            index = int(node)
            if not 0 <= index < len(graph):
                raise ValueError(f"node {index} of {len(graph)}")
            number = names[field][value] if field in names else value
            if type(number) is not int or not 0 <= number < getattr(graph.masks, field).shape[1]:
                raise ValueError(f"{field} of node {index} is {str(value)[:40]!r}")
            values[index] = number


def decisions_digest(text: str) -> str:
    """Short name of encoded decisions."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _damaged(what: str) -> DecisionError:
    return DecisionError(
        what=what,
        where="stored decisions",
        fix="Tune the program again, or import a file made by this version.",
        field="decisions",
    )
