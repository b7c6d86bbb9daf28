"""Copies of an array that a loop carries and updates in place.

Where a kernel reads the array that it updates, as ``x.at[i].set(f(x[j]))`` does once XLA has fused the read
into the update, XLA's copy insertion makes the update write into a copy of the whole array; if the loop
carries the array in one buffer, it copies a second time, back into that buffer. No copy is needed where all
that reads a version of the array can come before the update that makes the next one: parts of it that the
updating kernel reads are put in memory first.

From an array of the loop's state to its place in the next state leads a chain of updates and copies. All
copies of a chain are left out or none: a version in a buffer of its own, followed by one in the carried
buffer, would overwrite that at its first update, not its last. That readers come first is an in-place
promise as any other (`graphopt.hlo.graph.in_place`), which `graphopt.hlo.restructure.writing.ordering` writes
down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.graph.targets import fusion_targets
from graphopt.hlo.graph.walks import roots_around
from graphopt.hlo.module.index import LOCAL_ID, Role
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.values import Value
from graphopt.machine import UnitKind

RULES: Final = {
    "not-carried": "only copies of arrays that a loop carries and updates in place can be left out",
    "read-later": "something reads a version of the array after the next update, or in its kernel",
}

OPCODES: Final = frozenset({"copy"})

PARTS: Final = frozenset({"dynamic-slice", "gather", "slice"})
"""Reads of a part of an array, which may be put in memory before the array is updated."""


@dataclass(frozen=True)
class Version:
    """What a carried array is between two updates.

    Attributes:
        names: nodes that stand for it: what makes it, and copies of that.
        update: the update that makes the next version; None for the last.
    """

    names: tuple[int, ...]
    update: int | None


@dataclass(frozen=True)
class Chain:
    """An array of a loop's state, and what becomes of it in an iteration.

    Attributes:
        versions: the first is the array of the state, the last takes its place.
        copies: those to leave out.
    """

    versions: tuple[Version, ...]
    copies: tuple[int, ...]


@dataclass(frozen=True)
class Readers:
    """What must read versions of an array before their updates.

    Attributes:
        parts: reads that are part of kernels behind the update, or of its own; sorted.
        before: (last node of a kernel that reads, the update behind it).
    """

    parts: list[int]
    before: list[tuple[int, int]]


def chain_at(graph: Graph, copy: int) -> Chain | None:
    """The chain whose copies go if this one does."""
    index = int(graph.computation[copy])
    known = _chains(graph)
    if index not in known:
        known[index] = dict(_chains_of(graph, index))
    return known[index].get(copy)


def forbids(candidate: Candidate) -> str | None:
    """Why the copies of a chain cannot be left out with the last of them."""
    if chain_at(candidate.graph, candidate.node) is None:
        return "not-carried"
    return "read-later" if _readers_alone(candidate) is None else None


def behind(candidate: Candidate) -> list[int]:
    """Parts of the array that updating kernels read: they are read before, into memory."""
    readers = _readers_alone(candidate)
    return [] if readers is None else readers.parts


def along(candidate: Candidate) -> list[int]:
    """All copies of the chain."""
    chain = chain_at(candidate.graph, candidate.node)
    return [] if chain is None else list(chain.copies)


def orders(candidate: Candidate, order: dict[int, list[int]]) -> list[int] | None:
    """Puts all readers before their updates.

    Args:
        candidate: a copy.
        order: node -> nodes that must come after it, by copies left out before; what this one needs is added.

    Returns:
        The parts that are read before, into memory; None if some reader comes behind an update by the order.
    """
    graph = candidate.graph
    readers = readers_of(candidate, order)
    if readers is None or not all(graph.masks.fuse[part, 0] for part in readers.parts):
        return None
    for root, update in readers.before:
        order.setdefault(root, []).append(update)
    return readers.parts


def expand(site: Site) -> Value:
    """What is copied."""
    value = site.operands[0]
    while (maker := site.instructions[value.id]).opcode == "copy":
        local = maker.operand_ids[0] & LOCAL_ID
        value = Value(local, site.instructions[local].shape)
    return value


@per_graph
def _readers_known(graph: Graph) -> dict[int, Readers | None]:
    """Copy -> what reads the versions of its chain, for copies that somebody asked for."""
    return {}


def _readers_alone(candidate: Candidate) -> Readers | None:
    """`readers_of` a copy where no other is left out."""
    known, node = _readers_known(candidate.graph), candidate.node
    if node not in known:
        known[node] = readers_of(candidate)
    return known[node]


def readers_of(
    candidate: Candidate, order: Mapping[int, list[int]] = MappingProxyType({})
) -> Readers | None:
    """All that reads a version with a successor; None if something cannot come before the update.

    Args:
        candidate: a copy.
        order: node -> nodes that must come after it, beyond those that read it.
    """
    graph = candidate.graph
    chain = chain_at(graph, candidate.node)
    if chain is None:
        return None
    parts: set[int] = set()
    before: list[tuple[int, int]] = []
    for version in chain.versions[:-1]:
        copies = [c for c in chain.copies if graph.operand_lists[c][0] in version.names]
        found = _before(graph, {*version.names, *copies}, version.update, order)
        if found is None:
            return None
        parts.update(found.parts)
        before += found.before
    return Readers(sorted(parts), before) if _is_carried_on(graph, chain.versions[-1]) else None


def _is_carried_on(graph: Graph, last: Version) -> bool:
    """True for a last version that goes to its one place in the next state, and is only read beside that."""
    root = graph.computations[int(graph.computation[last.names[0]])].root
    once = sum(value in last.names for value in graph.operand_lists[root]) == 1
    return once and _only_readers(graph, last.names, root) is not None


def _only_readers(graph: Graph, names: Collection[int], other: int) -> list[int] | None:
    """What reads a version by one of its names, or a view of it; None if something else may be done with it.

    Args:
        graph: of the loop.
        names: of the version.
        other: a node that is left out.
    """
    known = set(names)
    waiting = [user for name in names for user in graph.user_lists[name] if user not in known]
    found: list[int] = []
    for reader in waiting:
        if reader == other:
            continue
        op = graph.ops[reader]
        if op.name == "bitcast" and other not in graph.user_lists[reader]:
            known.add(reader)
            waiting += graph.user_lists[reader]
            continue
        if (
            op.name in ("bitcast", "tuple")
            or op.kind is OpKind.CONTROL
            or _may_write(graph, reader, known)
        ):
            return None
        found.append(reader)
    return found


def _before(
    graph: Graph, names: Collection[int], update: int | None, order: Mapping[int, list[int]]
) -> Readers | None:
    """Where those that read a version, by one of its names, do so before its update; None if one cannot."""
    assert update is not None
    once = sum(value in names for value in graph.operand_lists[update]) == 1
    readers = _only_readers(graph, names, update) if once else None
    if readers is None:
        return None
    kernels = [roots_around(graph, graph.default.fuse, reader) for reader in readers]
    last = max((node for roots in kernels for node in roots), default=-1)
    # Nodes stand behind what they read: of earlier ones none can come after the update.
    after = _after(graph, update, order) if order or last >= update else set()
    parts: list[int] = []
    before: list[tuple[int, int]] = []
    for reader, roots in zip(readers, kernels, strict=True):
        if _is_proven(graph, reader, roots, update):
            continue
        if reader in after:
            return None
        if not after.isdisjoint(roots):
            if graph.ops[reader].name not in PARTS:
                return None
            parts.append(reader)
            roots = [reader]
        before += [(root, update) for root in roots]
    return Readers(parts, before)


def _is_proven(graph: Graph, reader: int, roots: list[int], update: int) -> bool:
    """True for a part that the updating kernel reads in the buffer that it writes: XLA has made it so."""
    own = graph.operand_lists[reader]
    return (
        roots == [update]
        and graph.ops[reader].name in PARTS
        and own[0] in graph.operand_lists[update]
    )


def _may_write(graph: Graph, node: int, names: Collection[int]) -> bool:
    """True for an operation that may overwrite what it reads under one of these names."""
    index = int(graph.computation[node])
    if node not in graph.in_place.writer[index]:
        return False
    updated = _updated(graph, index, node)
    return updated is None or updated in names


def _after(graph: Graph, node: int, order: Mapping[int, list[int]]) -> set[int]:
    """A node and all that comes after it, by what it reads or by an order."""
    found, waiting = {node}, [node]
    for one in waiting:
        new = [n for n in (*graph.user_lists[one], *order.get(one, ())) if n not in found]
        found.update(new)
        waiting += new
    return found


@per_graph
def _chains(graph: Graph) -> dict[int, dict[int, Chain]]:
    """Computation -> copy -> its chain, for computations that somebody asked for."""
    return {}


def _chains_of(graph: Graph, index: int) -> Iterator[tuple[int, Chain]]:
    """Copies of a loop's body that stand for chains, each with its chain."""
    computation = graph.computations[index]
    root = computation.root
    if computation.role is not Role.LOOP_BODY or graph.ops[root].name != "tuple":
        return
    for place, end in enumerate(graph.operand_lists[root]):
        versions = _versions(graph, index, place, end)
        if versions is None or len(versions) < 2:
            continue
        copies = tuple(name for version in versions for name in version.names[1:])
        if copies:
            yield copies[-1], Chain(versions, copies)
            continue
        for version in versions[:-1]:
            for user in graph.user_lists[version.names[0]]:
                if _is_copy(graph, user):
                    yield user, Chain(versions, (user,))


def _versions(graph: Graph, index: int, place: int, end: int) -> tuple[Version, ...] | None:
    """The versions of the array at a place of the state, the first one first; None if it is made anew."""
    versions: list[Version] = []
    names: list[int] = []
    update: int | None = None
    value = end
    while True:
        names.append(value)
        if _is_copy(graph, value):
            (value,) = graph.operand_lists[value]
            continue
        versions.append(Version(tuple(names[::-1]), update))
        if _is_state(graph, value, place):
            return tuple(versions[::-1])
        before = _updated(graph, index, value)
        if before is None:
            return None
        update, names, value = value, [], before


def _is_copy(graph: Graph, node: int) -> bool:
    """True for a copy that is an instruction of its own, of an array, without another layout."""
    runtime = graph.units[graph.default.unit[node]].kind is UnitKind.RUNTIME
    if graph.ops[node].name != "copy" or graph.default.fuse[node] or not runtime:
        return False
    layouts = graph.source.layouts
    return bool(layouts[node] == layouts[graph.operand_lists[node][0]])


def _is_state(graph: Graph, node: int, place: int) -> bool:
    """True for the array at a place of the loop's state."""
    if graph.ops[node].name != "get-tuple-element":
        return False
    (holder,) = graph.operand_lists[node]
    same_place = graph.source.protos[node].tuple_index == place
    return same_place and graph.ops[holder].name == "parameter" and bool(graph.elements[node] > 0)


def _updated(graph: Graph, index: int, node: int) -> int | None:
    """What an operation overwrites a part of, in its buffer, at the end of its kernel; None for others."""
    if graph.default.fuse[node] or node not in graph.in_place.writer[index]:
        return None
    operands, name = graph.operand_lists[node], graph.ops[node].name
    if name == "dynamic-update-slice" or (name == "scatter" and len(operands) == 3):
        return operands[0]
    if name == "fusion":
        called = graph.source.module.computations[graph.source.called[node][0]]
        targets = fusion_targets(called)
        return operands[targets[0]] if len(targets) == 1 else None
    return None
