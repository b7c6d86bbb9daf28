"""Plans of decision vectors, remembered: scorer, environment and pictures ask for the same ones."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.plan.clusters import Clustering
from graphopt.hlo.plan.regions import Plan, Region
from graphopt.hlo.rewrite import plan

REMEMBERED: Final = 32
"""Plans kept per graph; the default's is among them as long as it is asked for."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a decision vector comes to once interactions are settled. Not to be changed.

    Attributes:
        clustering: clusters of the whole graph.
        plans: what each computation consists of, in the order of ``graph.computations``.
    """

    clustering: Clustering
    plans: tuple[Plan, ...]

    @cached_property
    def clusters(self) -> int:
        """Number of clusters."""
        return len(self.clustering.clusters)

    @cached_property
    def regions(self) -> int:
        """Number of native regions."""
        return sum(isinstance(entry, Region) for p in self.plans for entry in p.entries)

    @cached_property
    def overrides(self) -> dict[str, int]:
        """Rule name -> decisions that interactions settled under it."""
        return dict(Counter(rule for _, rule in self.clustering.overrides))


class _Memory:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.graphs: WeakKeyDictionary[Graph, OrderedDict[bytes, Outcome]] = WeakKeyDictionary()

    def find(self, graph: Graph, key: bytes) -> Outcome | None:
        with self.lock:
            known = self.graphs.setdefault(graph, OrderedDict())
            found = known.get(key)
            if found is not None:
                known.move_to_end(key)
            return found

    def keep(self, graph: Graph, key: bytes, outcome: Outcome) -> None:
        with self.lock:
            known = self.graphs.setdefault(graph, OrderedDict())
            known[key] = outcome
            while len(known) > REMEMBERED:
                known.popitem(last=False)


_MEMORY: Final = _Memory()


def vector_key(decisions: Decisions) -> bytes:
    """The bytes of a decision vector: equal vectors of one graph have equal keys."""
    return b"".join(getattr(decisions, name).tobytes() for name in FIELDS)


def planned(graph: Graph, decisions: Decisions) -> Outcome:
    """The outcome of decisions inside ``graph.masks``, which the caller has checked."""
    key = vector_key(decisions)
    found = _MEMORY.find(graph, key)
    if found is None:
        clustering, plans = plan(graph, decisions)
        found = Outcome(clustering, tuple(plans))
        _MEMORY.keep(graph, key, found)
    return found
