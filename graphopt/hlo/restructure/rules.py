"""Which restructures are legal for which node, and which nodes a native region may then contain."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.decisions import ALLOWED
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.restructure.sites import Candidate
from graphopt.hlo.restructure.table import BY_OPCODE, RESTRUCTURES


def restructure_rules(
    graph: Graph,
    fuse_rule: NDArray[np.int16],
    names: list[str],
    rows: Collection[int] | None = None,
) -> NDArray[np.int16]:
    """int16 [N, R]; `ALLOWED`, or the index in `names` of the rule that forbids the row.

    Args:
        graph: whose nodes to judge.
        fuse_rule: int16 [N, 2]; the rules of the fuse field.
        names: rule names.
        rows: the rows that are judged, None for all; the others are forbidden.
    """
    out = np.full((len(graph), len(RESTRUCTURES)), names.index("other-operation"), np.int16)
    out[:, 0] = ALLOWED
    ordered = set(graph.control.ravel().tolist())
    in_memory = np.equal(fuse_rule[:, 0], ALLOWED).tolist()
    for node, op in enumerate(graph.ops):
        codes = BY_OPCODE.get(op.name)
        if codes is not None and rows is not None:
            codes = tuple([code for code in codes if code in rows])
        if not codes:
            continue
        replaces = any(RESTRUCTURES[code].replaces for code in codes)
        common = _common_rule(graph, in_memory, ordered, node) if replaces else None
        candidate = Candidate(graph, node)
        for code in codes:
            row = RESTRUCTURES[code]
            rule = (common if row.replaces else None) or row.forbids(candidate)
            if rule is None and not all(
                _may_be_in_memory(graph, in_memory, value) for value in row.behind(candidate)
            ):
                rule = "stays-fused"
            out[node, code] = ALLOWED if rule is None else names.index(rule)
    _forbid_parts(graph, out, names)
    return out


def _forbid_parts(graph: Graph, rules: NDArray[np.int16], names: list[str]) -> None:
    """Forbids what is only legal together with other nodes, where it is not legal for all of them."""
    for code, row in enumerate(RESTRUCTURES):
        if not row.turns:
            continue
        legal = set(np.flatnonzero(np.equal(rules[:, code], ALLOWED)).tolist())
        for node in legal:
            if not legal.issuperset(row.along(Candidate(graph, node))):
                rules[node, code] = names.index("turned-others")


def _common_rule(graph: Graph, in_memory: list[bool], ordered: set[int], node: int) -> str | None:
    """The rule that forbids every restructure of a node: it and its operands must be in memory."""
    if node in ordered:
        return "control-dependency"
    for value in (node, *graph.operand_lists[node]):
        if not _may_be_in_memory(graph, in_memory, value):
            return "stays-fused"
    return None


def _may_be_in_memory(graph: Graph, in_memory: list[bool], value: int) -> bool:
    return in_memory[value] or graph.ops[value].name == "constant"


def opened(rules: NDArray[np.int16]) -> NDArray[np.bool_]:
    """bool [N]; walls that some allowed restructure replaces with code a region may contain."""
    columns = [code for code, row in enumerate(RESTRUCTURES) if row.opens]
    return np.asarray(np.equal(rules[:, columns], ALLOWED).any(axis=1), np.bool_)
