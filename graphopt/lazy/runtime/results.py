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
        entry.dependencies = dependencies(entry.plan)
        entry.places = executors.checked_places(entry.plan)
    shared: dict[Any, Check | None] = {}  # roots that depend on the same share their check
    found: list[Check | None] = []
    for chosen, leaves in entry.dependencies:
        before: tuple[Check, ...] = ()
        if inherited:
            before = tuple(dict.fromkeys(c for k, c in inherited.items() if k in leaves))
        own = flags if chosen else None
        key = (chosen, before)
        if key not in shared:
            if own is None and not before:
                shared[key] = None
            else:
                shared[key] = check = Check(own, entry.places, chosen)
                check.inherited = before
        found.append(shared[key])
    return found
