"""Results of a run become values of nodes, with the index checks that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import LazyError
from graphopt.lazy.runtime import executors
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.executors import Failure
from graphopt.lazy.runtime.index_checks import Check, Dependency, dependencies


def deliver(
    roots: list[Node],
    values: Sequence[Any],
    flags: Any,
    inherited: dict[int, Check],
    entry: Entry | None,
    own: bool,
) -> dict[Node, LazyError]:
    """Gives nodes their values.

    Args:
        roots: nodes asked for.
        values: one value or `Failure` each.
        flags: outcome of the graph's index checks, or None; see `executors.replay`.
        inherited: what `checks_of` says of its leaves.
        entry: the graph; None if a jax transformation traced it.
        own: the values are buffers that nothing else refers to.

    Returns:
        Errors of the nodes that have no value.
    """
    if entry is None or (flags is None and not inherited):
        return give(roots, values, [None] * len(roots), own)
    if entry.dependencies is None:
        entry.dependencies = grouped(dependencies(entry.plan))
        entry.places = executors.checked_places(entry.plan)
    return give(roots, values, checks_for(flags, inherited, entry.dependencies, entry.places), own)


def give(
    roots: Sequence[Node], values: Sequence[Any], checks: Sequence[Check | None], own: bool
) -> dict[Node, LazyError]:
    """Gives nodes their values, with the index checks that they depend on; see `deliver`."""
    failures: dict[Node, LazyError] = {}
    for node, value, check in zip(roots, values, checks, strict=True):
        if type(value) is Failure:
            failures[node] = value.error
            continue
        node.check = check
        node.data = value
        node.own = own
        node.inputs = ()
        node.instr = None
        node.src = None
        node.recording = None
    return failures


def checks_of(leaves: list[Node]) -> dict[int, Check]:
    """Index checks that leaves depend on and that are not known to be passed, by place."""
    found: dict[int, Check] = {}
    passed = last = None
    for k, leaf in enumerate(leaves):
        check = leaf.check
        if check is None:
            continue
        if check is not passed and check is not last:
            if check.settled(wait=False) and check.error is None:
                passed = check
            else:
                last = check
        if check is passed:
            leaf.check = None
        else:
            found[k] = check
    return found


def grouped(roots: Sequence[Dependency]) -> tuple[list[Dependency], list[int]]:
    """The different ones of what roots depend on, and which of them each root has."""
    kinds = list(dict.fromkeys(roots))
    return kinds, [kinds.index(root) for root in roots]


def checks_for(
    flags: Any,
    inherited: dict[int, Check],
    dependencies: tuple[list[Dependency], list[int]],
    operations: tuple[tuple[str, Any], ...],
) -> list[Check | None]:
    """The index checks that each root depends on; None where there are none.

    Args:
        flags: bool [K], jax: what the run found; None if it checks nothing.
        inherited: what `checks_of` says of its leaves.
        dependencies: `grouped` ones of its roots.
        operations: `executors.checked_places` of its graph.
    """
    places: dict[Check, list[int]] = {}
    for k, check in inherited.items():
        places.setdefault(check, []).append(k)
    shared: dict[Any, Check] = {}  # roots that depend on the same share their check
    found: list[Check | None] = []
    kinds, chosen_kinds = dependencies
    for chosen, leaves in kinds:
        before = tuple([c for c, where in places.items() if not leaves.isdisjoint(where)])
        own = flags if chosen else None
        if own is None and not before:
            found.append(None)
            continue
        known = shared.get((chosen, before))
        if known is None:
            known = shared[chosen, before] = Check(own, operations, chosen)
            known.inherited = before
        found.append(known)
    return [found[k] for k in chosen_kinds]
