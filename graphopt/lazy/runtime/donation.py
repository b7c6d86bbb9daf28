"""Buffers that nobody can look at again are given to the compiled graph, which writes results there.

At a cut whose graph is known by its trace, a buffer is free if its node has no reference but that of the
recording, the buffer none but that of its node, and it never left the runtime. Every other value of the
recording must then be a result of this cut, or be referred to by nothing: whatever is pending elsewhere
would need the buffer. References are counted, so another thread, a gradient that is still to be pulled
back, a debugger, all keep a buffer from being given away.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import jax

from graphopt.lazy.core.node import Aval, Node
from graphopt.lazy.record.held import held_elsewhere
from graphopt.lazy.record.threads import Recorder
from graphopt.lazy.record.traces import Recording

if TYPE_CHECKING:
    from graphopt.lazy.runtime.trace import Plan

MIN_BYTES: Final = 256 << 10
"""Smaller buffers are not given away: an allocation of that size costs less than to look for them."""

PATIENCE: Final = 8
"""Runs in a row in which given buffers had to be copied, after which a graph is compiled without."""

REPEATS: Final = 3
"""Runs in a row with the same unused leaves, after which a graph is compiled anew to take them."""

_references: Final[Any] = sys.getrefcount
_COUNTED: Final = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
"""Whether references are counted exactly: not without the interpreter's lock."""


@dataclass(frozen=True)
class Pairing:
    """Which leaves of a graph become the buffers of which results.

    Attributes:
        leaves: positions of the leaves given away, ascending.
        order: positions of all results in the order in which the program returns them: those that
            take a leaf's buffer first, as jax pairs equal types in order.
        back: where each result is found in that order.
    """

    leaves: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    back: tuple[int, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether the program returns its results in another order than they were asked for."""
        return self.order != tuple(range(len(self.order)))


NONE: Final = Pairing()


@dataclass(frozen=True)
class Unused:
    """Leaves of a cut that nothing else refers to, by position.

    Attributes:
        nodes: leaves whose value nobody can ask for any more.
        buffers: those of them whose buffer may be written to.
    """

    nodes: frozenset[int] = frozenset()
    buffers: frozenset[int] = frozenset()


USED: Final = Unused()


@dataclass
class Giving:
    """What is given to the executable of one graph, and how that went.

    Attributes:
        pairing: what the executable takes.
        settled: nothing will be given, or nothing any more.
        seen: the unused leaves of the last run.
        repeats: runs in a row that had the same unused leaves.
        copies: runs in a row in which something had to be copied because it was in use.
    """

    pairing: Pairing = NONE
    settled: bool = False
    seen: frozenset[int] = frozenset()
    repeats: int = 0
    copies: int = 0

    def look(self, unused: Unused) -> bool:
        """Counts a run of an executable that takes nothing; whether another one may be worth it."""
        if unused.nodes != self.seen:
            self.seen, self.repeats = unused.nodes, 0
        self.repeats += 1
        return self.repeats >= REPEATS

    def prepare(self, arrays: list[Any], unused: Unused, device: Any) -> list[Any]:
        """The executable's inputs: copies where it takes what others may need."""
        needed = [k for k in self.pairing.leaves if k not in unused.buffers]
        self.copies = self.copies + 1 if needed else 0
        if not needed:
            return arrays
        given = list(arrays)
        for k in needed:
            given[k] = own_copy(given[k], device)
        return given


class Places:
    """Where the values of a cut stand in its trace, prepared for counting references.

    Attributes:
        leaves: places of the buffers.
        inner: places of results that the cut does not compute for anybody.
        produced: places of all results.
    """

    __slots__ = ("inner", "leaves", "produced")

    def __init__(self, recording: Recording, leaves: Sequence[int], roots: Sequence[int]) -> None:
        outside = set(recording.slots.values())
        self.produced = tuple(k for k in range(1, len(recording.values)) if k not in outside)
        self.inner = tuple(sorted(set(self.produced) - set(roots)))
        self.leaves = tuple(leaves)

    def unused(self, local: Recorder) -> Unused:
        """What nobody can ask for once the cut is made; the cut has to be complete."""
        recording = local.recording
        if not _COUNTED or local.tapes or recording.held_bytes < MIN_BYTES:
            return USED
        local.handles[:] = held_elsewhere(local.handles)
        values = recording.values
        if not self._closed(recording, values):
            self._refresh(values)
            if not self._closed(recording, values):
                return USED
        counts = list(map(_references, [values[k] for k in self.leaves]))
        nodes = [i for i, count in enumerate(counts) if count == _LEAF]
        free = [i for i in nodes if _is_free(values[self.leaves[i]])]
        return Unused(frozenset(nodes), frozenset(free))

    def _closed(self, recording: Recording, values: list[Any]) -> bool:
        """Whether nothing pending can need the recording once the roots are computed."""
        if _references(recording) != _RECORDING + len(self.produced):
            return False
        inner = [values[k] for k in self.inner]
        counts = list(map(_references, inner))
        if counts.count(_INNER) != len(counts):
            return False
        return sum([node.data is None for node in inner]) == len(inner)  # or computed elsewhere

    def _refresh(self, values: list[Any]) -> None:
        """Lets go of operands that nodes were asked for; they are found in the recording again."""
        for place in self.produced:
            with contextlib.suppress(AttributeError):
                del values[place].inputs


def _is_free(node: Node) -> bool:
    return node.own is True and _references(node.data) == _BUFFER


def _calibrated() -> tuple[int, int, int, int]:
    """References that a recording, an inner node, a leaf and a buffer have when nobody holds them."""
    local = Recorder()
    recording = local.recording
    found: list[int] = []

    def count(recording: Recording, values: list[Any]) -> None:
        found.append(_references(recording))
        found.extend(map(_references, [values[k] for k in (1,)]))

    values = recording.values
    values.append(Node())
    count(recording, values)
    node = Node()
    node.data = object()
    values.append(node)
    recording.slots[node] = 2
    del node
    found.extend(map(_references, [values[k] for k in (2,)]))

    def buffer(node: Node) -> int:
        return int(_references(node.data))

    return found[0], found[1], found[2], buffer(values[2])


_RECORDING, _INNER, _LEAF, _BUFFER = _calibrated()


def release(local: Recorder) -> None:
    """Lets go of a recording that nothing needs any more: its nodes refer to it, and it to them."""
    local.recording.slots.clear()
    local.recording.values.clear()


def pair(plan: Plan, unused: frozenset[int]) -> Pairing:
    """Which of a graph's unused leaves to give to which results.

    A result may take the buffer of a leaf that no later operation reads. Of several such leaves it takes
    the one read last: for an update, the value that is updated.

    Args:
        plan: the graph.
        unused: positions of leaves that nobody can ask for after the run.
    """
    last = {slot: k for k, step in enumerate(plan.steps) for slot in step.inputs}
    made = {step.out: k for k, step in enumerate(plan.steps)}
    free: dict[Aval, list[tuple[int, int]]] = {}
    for i in sorted(unused):
        use = last.get(plan.leaf_slots[i])
        if use is not None:
            free.setdefault(plan.leaf_avals[i], []).append((use, i))
    pairs: list[tuple[int, int]] = []
    roots = sorted(range(len(plan.root_slots)), key=lambda j: made.get(plan.root_slots[j], -1))
    for j in roots:
        time, choices = made.get(plan.root_slots[j], -1), free.get(plan.root_avals[j], [])
        fitting = [choice for choice in choices if choice[0] <= time]
        if fitting:
            best = max(fitting)
            choices.remove(best)
            pairs.append((best[1], j))
    if sum(plan.leaf_avals[i].nbytes for i, _ in pairs) < MIN_BYTES:
        return NONE
    pairs.sort()
    taking = [j for _, j in pairs]
    rest = sorted(set(range(len(plan.root_slots))) - set(taking))
    order = (*taking, *rest)
    back = tuple(order.index(j) for j in range(len(order)))
    return Pairing(tuple(i for i, _ in pairs), order, back)


def in_order(values: Any, pairing: Pairing) -> Any:
    """A program's results in the order in which they were asked for; further ones stay behind them."""
    if not pairing.moves:
        return values
    count = len(pairing.back)
    if count == 1:
        return values
    return (*itemgetter(*pairing.back)(values), *values[count:])


def own_copy(array: Any, device: Any) -> Any:
    """A buffer with the same contents that nothing else refers to."""
    with jax.enable_x64(True):
        return jax.device_put(array, device, may_alias=False)
