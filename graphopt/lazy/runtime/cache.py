"""The cache of graphs: structural key -> plan, executable and history; least recently used go first."""

from __future__ import annotations

import hashlib
import itertools
import threading
from dataclasses import dataclass, field
from typing import Any, Final

from graphopt.lazy.core import metrics
from graphopt.lazy.runtime import donation
from graphopt.lazy.runtime.executors import Packing, packing_of
from graphopt.lazy.runtime.steps.history import History
from graphopt.lazy.runtime.trace import Plan, Trace, make_plan
from graphopt.lazy.runtime.waiting import Waiting

MAX_ENTRIES: Final = 4096
"""Plans kept; a plan costs some hundred bytes per operation."""

MAX_EXECUTABLES: Final = 512
"""Executables kept."""

_next_use: Final = itertools.count(1).__next__


@dataclass
class Entry:
    """All that is known of one graph under one optimizer.

    Attributes:
        plan: the graph.
        packing: how its scalar parameters travel.
        name: for displays, logs and XLA's module name.
        sightings: times it was asked for.
        known: whether the graph was seen under another optimizer before.
        executable: the compiled program; None while there is none.
        state: ``cold``, ``compiling``, ``ready`` or ``failed``.
        error: why the compile failed.
        op_by_op_s: seconds of the last run operation by operation.
        last_values: scalar parameters of the last compiled run.
        last_packs: the same as vectors.
        module: compressed bytes of the module that XLA received; None before a compile.
        outcome: what the optimizer did, in words.
        placed: how it runs on several devices, in words; empty before that was decided.
        default: the program without the optimizer, for checked runs.
        giving: whether and how buffers are given to the executable.
        waiting: whether its callers wait for its results.
        history: its steps so far, and loops over them.
        dependencies: sets of index checks and leaves that roots depend on, and which set is whose;
            None until needed.
        places: operations whose indices are checked; known once `dependencies` is.
        context: what its executable depends on beside the plan; None once it is forgotten.
        used: number of its last use; larger is later.
        done: set when a background compile has ended.
    """

    plan: Plan
    packing: Packing
    name: str
    sightings: int = 0
    known: bool = False
    executable: Any = None
    state: str = "cold"
    error: BaseException | None = None
    op_by_op_s: float = 0.0
    last_values: Any = None
    last_packs: Any = None
    module: bytes | None = None
    outcome: str = ""
    placed: str = ""
    default: Any = None
    giving: donation.Giving = field(default_factory=donation.Giving)
    waiting: Waiting = field(default_factory=Waiting)
    history: History = field(default_factory=History)
    dependencies: Any = None
    places: Any = ()
    context: Any = None
    used: int = 0
    done: threading.Event = field(default_factory=threading.Event)


class Cache:
    """Entries by (structural key, context); not safe by itself: used under the cut's lock."""

    def __init__(self) -> None:
        self._entries: dict[Any, Entry] = {}
        self._contexts: dict[Any, Any] = {}  # structural key -> context it was last met in

    def get(self, trace: Trace, context: Any) -> Entry:
        """The entry of a graph, made if it is new.

        Args:
            trace: the graph.
            context: what else the executable depends on: the optimizer and its version.
        """
        key = (trace.key, context)
        entry = self._entries.get(key)
        if entry is not None:
            self.use(entry)
            metrics.count("cache_hits")
            return entry
        plan = make_plan(trace)
        digest = hashlib.blake2b(repr(describe(plan)).encode(), digest_size=6).hexdigest()
        entry = Entry(plan, packing_of(plan), f"lazy_{digest}")
        entry.known = trace.key in self._contexts
        entry.context = context
        self.use(entry)
        self._entries[key] = entry
        self._contexts[trace.key] = context
        metrics.count("distinct_graphs")
        if len(self._entries) > MAX_ENTRIES:
            self._forget_oldest()
        return entry

    def use(self, entry: Entry) -> None:
        """Marks an entry as used now."""
        entry.used = _next_use()

    def _forget_oldest(self) -> None:
        oldest = sorted(self._entries, key=lambda key: self._entries[key].used)
        for key in oldest[: max(1, MAX_ENTRIES // 16)]:
            self._entries.pop(key).context = None
            if self._contexts.get(key[0]) == key[1]:
                del self._contexts[key[0]]

    def limit_executables(self) -> None:
        """Drops the executables least recently used, beyond the limit."""
        ready = [e for e in self.entries() if e.state == "ready"]
        for entry in ready[: max(0, len(ready) - MAX_EXECUTABLES)]:
            entry.executable = entry.default = None
            entry.placed, entry.giving, entry.history = "", donation.Giving(), History()
            entry.state, entry.sightings = "cold", 1
            metrics.count("evictions")

    def entries(self) -> list[Entry]:
        """All entries, least recently used first."""
        return sorted(self._entries.values(), key=lambda entry: entry.used)

    def clear(self) -> None:
        """Forgets everything."""
        for entry in self._entries.values():
            entry.context = None
        self._entries.clear()
        self._contexts.clear()


def describe(plan: Plan) -> tuple[Any, ...]:
    """A plan's structure in words: the same in every process."""
    steps = tuple((repr(s.instr), s.inputs) for s in plan.steps)
    leaves = tuple(map(repr, plan.leaf_avals))
    scalars = tuple(map(repr, plan.scalar_avals))
    consts = tuple(f"{value!r}" for value in plan.const_values)
    return steps, leaves, scalars, consts, plan.root_slots, str(plan.device)
