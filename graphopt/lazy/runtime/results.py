"""Results of a run become values of nodes, with the index checks that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import LazyError
from graphopt.lazy.runtime import executors
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.executors import Failure
from graphopt.lazy.runtime.index_checks import Check, dependencies


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
    failures: dict[Node, LazyError] = {}
    plain = entry is None or (flags is None and not inherited)
    checks = [None] * len(roots) if plain else _checks(flags, inherited, entry)  # type: ignore[arg-type]
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


def _checks(flags: Any, inherited: dict[int, Check], entry: Entry) -> list[Check | None]:
    """The index checks that each root depends on; None where there are none."""
    if entry.dependencies is None:
        roots = dependencies(entry.plan)
        kinds = list(dict.fromkeys(roots))
        entry.dependencies = kinds, [kinds.index(root) for root in roots]
        entry.places = executors.checked_places(entry.plan)
    places: dict[Check, list[int]] = {}
    for k, check in inherited.items():
        places.setdefault(check, []).append(k)
    shared: dict[Any, Check] = {}  # roots that depend on the same share their check
    found: list[Check | None] = []
    kinds, chosen_kinds = entry.dependencies
    for chosen, leaves in kinds:
        before = tuple([c for c, where in places.items() if not leaves.isdisjoint(where)])
        own = flags if chosen else None
        if own is None and not before:
            found.append(None)
            continue
        known = shared.get((chosen, before))
        if known is None:
            known = shared[chosen, before] = Check(own, entry.places, chosen)
            known.inherited = before
        found.append(known)
    return [found[k] for k in chosen_kinds]
