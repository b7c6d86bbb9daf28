"""Cuts that are known by the trace that was followed: the cursor is the key of the graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from graphopt.lazy.core.node import Node
from graphopt.lazy.record.held import held_elsewhere
from graphopt.lazy.record.threads import Recorder
from graphopt.lazy.record.traces import Recording
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.donation import Places
from graphopt.lazy.runtime.trace import Trace

MAX_CUTS: Final = 64
"""Cuts remembered per place of a trace: other tensors alive make other cuts."""


class KnownCut:
    """One cut of a trace: which graph it runs, on which values of the trace.

    Attributes:
        entry: weak reference to the graph.
        places: where its buffers and what is not computed for anybody stand.
        requested: how many of its results were asked for: the first ones.
        complete: nothing that anybody holds stays pending.
    """

    __slots__ = (
        "_take_leaves", "_take_numbers", "_take_roots", "complete", "entry", "places", "requested",
    )  # fmt: skip

    def __init__(
        self,
        entry: Entry,
        places: Places,
        numbers: list[int],
        roots: list[int],
        requested: int,
        complete: bool,
    ) -> None:
        self.entry = weakref.ref(entry)
        self.places = places
        self._take_leaves = _taking(places.leaves)
        self._take_numbers = _taking(numbers)
        self._take_roots = _taking(roots)
        self.requested = requested
        self.complete = complete

    def values(self, recording: Recording) -> tuple[list[Node], list[Any], list[Any], list[Node]]:
        """Buffers' nodes, their data, numbers and result nodes in a recording of the trace."""
        values, numbers = recording.values, recording.numbers
        leaves = list(self._take_leaves(values))
        return (
            leaves,
            [node.data for node in leaves],
            list(self._take_numbers(numbers)),
            list(self._take_roots(values)),
        )


def _taking(places: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """A function from a list to what stands at some places of it."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple([values[k] for k in places])


def key_of(local: Recorder, mode: str, requested: Sequence[Node]) -> Any:
    """What a cut is known by at its place in the trace; None if it cannot be known.

    Args:
        local: the recorder of this thread.
        mode: what is computed beside the requested: ``all``, ``live`` or ``ancestors``.
        requested: nodes asked for.
    """
    recording = local.recording
    if recording.foreign or local.left:
        return None
    asked = []
    for node in requested:
        if node.recording is not recording:
            return None
        asked.append(node.move.slot)
    live = []
    local.handles[:] = held_elsewhere(local.handles)
    for tensor in local.handles:
        node = tensor._node
        if node.recording is not recording:
            return None
        live.append(node.move.slot)
    return (mode, *asked, 0, *live)


def find(local: Recorder, key: Any, context: Any) -> tuple[KnownCut, Entry] | None:
    """The cut of the trace that was followed, with its graph; None if it is not known."""
    last = local.next.parent
    if last is None or last.cuts is None:
        return None
    cut = last.cuts.get(key)
    if cut is None:
        return None
    entry = cut.entry()
    if entry is None or entry.context != context:
        return None
    return cut, entry


def remember(local: Recorder, key: Any, trace: Trace, entry: Entry) -> KnownCut | None:
    """Keeps the graph of a cut, to be found by the trace; returns it if it can be found.

    Args:
        local: the recorder of this thread, before the recording ends.
        key: of the cut; see `key_of`.
        trace: the graph as it was collected.
        entry: its entry in the cache.
    """
    recording, last = local.recording, local.next.parent
    leaves = [recording.slots.get(node) for node in trace.leaves]
    numbers = [recording.number_places.get(node) for node in trace.scalars]
    if last is None or None in leaves or None in numbers:
        return None
    roots = [node.move.slot for node in trace.roots if node.recording is recording]
    if len(roots) != len(trace.roots):
        return None
    divider = key.index(0)
    requested = len(roots) if key[0] == "all" else divider - 1
    complete = set(key[divider + 1 :]) <= set(roots)
    places = Places(recording, leaves, roots)  # type: ignore[arg-type]
    cut = KnownCut(entry, places, numbers, roots, requested, complete)  # type: ignore[arg-type]
    if last.cuts is None:
        last.cuts = {}
    elif len(last.cuts) >= MAX_CUTS:
        last.cuts.clear()
    last.cuts[key] = cut
    return cut
