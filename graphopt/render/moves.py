"""What changed between two sides: groups of parts that replace each other, and the decisions
behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import ALLOWED, FIELDS
from graphopt.hlo.restructure import RESTRUCTURES
from graphopt.machine import UnitKind
from graphopt.render.parts import NO_REGION, Part, Side

MEANINGS: Final[dict[tuple[str, str], str]] = {
    ("fuse", "0"): "written to memory once, where XLA computed it again inside its consumers",
    ("fuse", "1"): "computed inside its consumers: no pass through memory, no kernel of its own",
    ("join", "0"): "a kernel of its own, where XLA shared one",
    ("join", "1"): "further output of another cluster: one pass over what both read",
    ("unit", UnitKind.LOOP): "a generated loop kernel",
    ("unit", UnitKind.LIBRARY): "one call of the kernel library: no recomputation, its own threads",
    ("unit", UnitKind.RUNTIME): "one call of a runtime routine",
    ("unit", UnitKind.NATIVE): "part of one native function: no dispatch per kernel",
}
"""(field, new value or kind of the new unit) -> what the change is for."""


@dataclass(frozen=True)
class Change:
    """One field of one node that differs from XLA's decision.

    Attributes:
        node: the node.
        field: name of the decision field.
        before: XLA's value, in words.
        after: the chosen value, in words.
        meaning: what the change is for; empty if there is nothing to say.
        settled: names of the rules under which interactions overruled decisions at this node.
    """

    node: int
    field: str
    before: str
    after: str
    meaning: str
    settled: tuple[str, ...]


@dataclass(frozen=True)
class Move:
    """Parts of the default that parts of the chosen module replace.

    Attributes:
        before: indices into the default side's parts.
        after: indices into the chosen side's parts.
        changes: changed decisions at their nodes.
        before_s: seconds per run of the module.
        after_s: likewise.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    changes: tuple[Change, ...]
    before_s: float
    after_s: float

    @property
    def saved_s(self) -> float:
        """Seconds saved per run of the module; negative if it got slower."""
        return self.before_s - self.after_s


def find_changes(graph: Graph, chosen: Side) -> list[Change]:
    """Every decision that differs from XLA's, in node order."""
    settled: dict[int, list[str]] = {}
    for node, rule in chosen.outcome.clustering.overrides:
        settled.setdefault(node, []).append(rule)
    default, changes = graph.default, []
    for field in FIELDS:
        before, after = getattr(default, field), getattr(chosen.decisions, field)
        for node in (before != after).nonzero()[0].tolist():
            changes.append(
                Change(
                    node,
                    field,
                    value_text(graph, field, int(before[node])),
                    value_text(graph, field, int(after[node])),
                    _meaning(graph, field, int(after[node])),
                    tuple(settled.get(node, ())),
                )
            )
    return sorted(changes, key=lambda change: change.node)


def _meaning(graph: Graph, field: str, value: int) -> str:
    if field == "restructure":
        return RESTRUCTURES[value].summary
    key = graph.units[value].kind if field == "unit" else str(value)
    return MEANINGS.get((field, key), "")


_WORDS: Final = {
    ("fuse", 0): "in memory",
    ("fuse", 1): "fused",
    ("join", 0): "alone",
    ("join", 1): "joined",
}


def value_text(graph: Graph, field: str, value: int) -> str:
    """A decision in words: ``fused``, ``library``."""
    if field == "unit":
        return graph.units[value].name
    if field == "restructure":
        return RESTRUCTURES[value].name
    return _WORDS.get((field, value), str(value))


def forbidden(graph: Graph, node: int) -> list[str]:
    """Why a node could not be decided otherwise: ``fused: not-fusible``, one entry per forbidden
    value."""
    reasons = []
    for field in FIELDS:
        rules = getattr(graph.masks, f"{field}_rule")[node]
        for value, rule in enumerate(rules.tolist()):
            if rule != ALLOWED:
                reasons.append(f"{value_text(graph, field, value)}: {graph.masks.rules[rule]}")
    return reasons


def find_moves(graph: Graph, default: Side, chosen: Side) -> list[Move]:
    """Groups of differing parts that share nodes or a native region; most seconds changed first."""
    unchanged = {_signature(part) for part in default.parts} & {
        _signature(part) for part in chosen.parts
    }
    groups = _Groups()
    sides = (default.parts, chosen.parts)
    for side, parts in enumerate(sides):
        for index, part in enumerate(parts):
            if _signature(part) in unchanged:
                continue
            groups.add((side, index))
            for node in part.nodes:
                if graph.ops[node].name != "constant":
                    groups.join((side, index), ("node", node))
            if part.region != NO_REGION:
                groups.join((side, index), (f"region{side}", part.region))
            owner = _native_owner(graph, (default, chosen)[side], part)
            if owner is not None:
                groups.join((side, index), (f"native{side}", owner))
    by_node: dict[int, list[Change]] = {}
    for change in find_changes(graph, chosen):
        by_node.setdefault(change.node, []).append(change)
    moves = [_move(sides, members, by_node) for members in groups.members()]
    return sorted(moves, key=lambda move: -abs(move.saved_s))


def _signature(part: Part) -> tuple[object, ...]:
    # The same cluster takes another time where a native function around it takes over its dispatch.
    return part.outputs, part.nodes, part.unit, part.region != NO_REGION, part.seconds


def _native_owner(graph: Graph, side: Side, part: Part) -> int | None:
    """The outermost loop or branch that is one native function with this part inside."""
    unit = side.outcome.clustering.unit
    native = [u.kind is UnitKind.NATIVE for u in graph.units]
    calls = {c.caller for c in graph.computations}
    owner = part.item if part.item in calls and native[part.unit] else None
    computation = graph.computations[part.computation]
    while computation.caller is not None and computation.parent is not None:
        if native[unit[computation.caller]]:
            owner = computation.caller
        computation = graph.computations[computation.parent]
    return owner


def _move(
    sides: tuple[tuple[Part, ...], tuple[Part, ...]],
    members: list[tuple[int, int]],
    changes: dict[int, list[Change]],
) -> Move:
    indices = [sorted(i for side, i in members if side == wanted) for wanted in (0, 1)]
    parts = [sides[side][i] for side in (0, 1) for i in indices[side]]
    nodes = sorted({node for part in parts for node in part.nodes})
    seconds = [sum(sides[side][i].seconds for i in indices[side]) for side in (0, 1)]
    return Move(
        tuple(indices[0]),
        tuple(indices[1]),
        tuple(change for node in nodes for change in changes.get(node, ())),
        *seconds,
    )


class _Groups:
    """Disjoint sets of parts, joined through what they share."""

    def __init__(self) -> None:
        self.parent: dict[object, object] = {}
        self.parts: list[tuple[int, int]] = []

    def add(self, part: tuple[int, int]) -> None:
        self.parts.append(part)
        self.find(part)

    def find(self, key: object) -> object:
        root = key
        while (above := self.parent.setdefault(root, root)) != root:
            root = above
        while key != root:
            self.parent[key], key = root, self.parent[key]
        return root

    def join(self, a: object, b: object) -> None:
        self.parent[self.find(a)] = self.find(b)

    def members(self) -> list[list[tuple[int, int]]]:
        groups: dict[object, list[tuple[int, int]]] = {}
        for part in self.parts:
            groups.setdefault(self.find(part), []).append(part)
        return list(groups.values())


def summarise(changes: tuple[Change, ...]) -> list[str]:
    """``fuse: 3 x in memory -> fused (computed inside ...)``, most frequent first."""
    counts = Counter((c.field, c.before, c.after, c.meaning) for c in changes)
    lines = []
    for (field, before, after, meaning), count in counts.most_common():
        text = f"{field}: {count} x {before} -> {after}"
        lines.append(f"{text} ({meaning})" if meaning else text)
    rules = Counter(rule for c in changes for rule in c.settled)
    lines += [f"settled by rule {rule}: {count}" for rule, count in rules.most_common()]
    return lines


def decisions_text(graph: Graph, decisions: Decisions, node: int) -> str:
    """All decisions of a node in words: ``fused, alone, loop@1``."""
    return ", ".join(
        value_text(graph, field, int(getattr(decisions, field)[node])) for field in FIELDS
    )
