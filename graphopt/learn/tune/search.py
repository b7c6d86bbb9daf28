"""The tuner's search in one module: portfolio first, then measured local search."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from graphopt.errors import DecisionError
from graphopt.hlo import Decisions, Graph
from graphopt.learn.search.moves import Mover, cross
from graphopt.learn.search.portfolio import portfolio
from graphopt.learn.tune.attribution import changes_of, steps_behind
from graphopt.learn.tune.result import ModuleResult
from graphopt.measure.children.runner import Runner
from graphopt.store import Store, decisions_digest, decode_decisions, encode_decisions
from graphopt.store.winners import evaluations, get_winner

LOOK_S: Final = 0.12
"""First, short look at a candidate."""

TRUST_S: Final = 0.5
"""Time given to a candidate that may be the new best."""

STALE: Final = 60
"""Candidates without any gain after which nothing more is expected."""

POOL: Final = 8
"""Good candidates kept as parents."""

MIN_GAIN: Final = 1.004
"""A new best must beat the old one by this."""


class Ranker(Protocol):
    """Predicts which of several candidates are worth a measurement."""

    def rank(self, candidates: list[Decisions]) -> list[Decisions]:
        """The candidates, most promising first."""
        ...

    def learn(self, decisions: Decisions) -> None:
        """Told of every candidate that turned out good."""
        ...


@dataclass
class Known:
    """One measured candidate."""

    decisions: Decisions
    ratio: float
    origin: str


class ModuleSearch:
    """Searches one module within limits of time and evaluations."""

    def __init__(
        self,
        runner: Runner,
        store: Store | None,
        seed: int,
        ranker: Ranker | None = None,
        extra: list[tuple[str, Decisions]] | None = None,
    ) -> None:
        """Starts with XLA's default as the best.

        Args:
            runner: measures candidates of the module.
            store: earlier evaluations of this module are taken from it.
            seed: of the proposals.
            ranker: orders proposals; None takes them as they come.
            extra: further starting points, such as a policy's samples.
        """
        self.runner = runner
        self.graph: Graph = runner.graph
        self.rng = np.random.default_rng(seed)
        self.mover = Mover(self.graph, self.rng)
        self.ranker = ranker
        self.extra = extra or []
        self.pool: list[Known] = [Known(self.graph.default.copy(), 1.0, "default")]
        self.seen: set[str] = {decisions_digest("{}")}
        self.failures: Counter[str] = Counter()
        self.evaluations = 0
        self.since_gain = 0
        self.history: list[tuple[int, float, float]] = []
        self.best_start: Known | None = None
        self.start = time.perf_counter()
        self.store = store
        self.recalled: dict[str, float] = {}
        if store is not None:
            self.recalled = {
                decisions_digest(text): ratio
                for text, ratio in evaluations(store, self.graph.fingerprint)
            }

    @property
    def best(self) -> Known:
        """The best candidate so far."""
        return self.pool[0]

    def steps(self) -> Iterator[str]:
        """Measures one candidate per step; yields what was tried. Ends when nothing is expected."""
        for origin, decisions in self._starts():
            self.try_one(decisions, origin)
            yield origin
        self.best_start = self.best
        self.since_gain = 0
        while self.since_gain < STALE:
            for decisions, origin in self._proposals():
                self.try_one(decisions, origin)
                yield origin

    def _starts(self) -> Iterator[tuple[str, Decisions]]:
        known = get_winner(self.store, self.graph.fingerprint) if self.store is not None else None
        if known is not None and known.changes:
            with contextlib.suppress(DecisionError):  # stored by a version with other rules
                yield "stored winner", decode_decisions(self.graph, known.decisions)
        yield from self.extra
        for start in portfolio(self.graph):
            yield start.name, start.decisions

    def _proposals(self) -> list[tuple[Decisions, str]]:
        wanted = 1 if self.ranker is None else 12
        made: dict[str, tuple[Decisions, str]] = {}
        for _ in range(6 * wanted):
            decisions, origin = self._propose()
            digest = self._digest(decisions)
            if digest not in self.seen:
                made[digest] = (decisions, origin)
            if len(made) >= wanted:
                break
        if not made:
            self.since_gain += 1
            return []
        if self.ranker is None:
            return list(made.values())
        origins = {id(d): o for d, o in made.values()}
        ranked = self.ranker.rank([d for d, _ in made.values()])
        return [(d, origins[id(d)]) for d in ranked[:3]]

    def _propose(self) -> tuple[Decisions, str]:
        # Mostly around the best; sometimes elsewhere, or between two good ones.
        draw = self.rng.random()
        if draw < 0.15 and len(self.pool) > 1:
            one, two = self.rng.choice(len(self.pool), 2, replace=False)
            child = cross(
                self.rng, self.graph, self.pool[int(one)].decisions, self.pool[int(two)].decisions
            )
            return child, "crossover"
        index = 0 if draw < 0.7 else int(self.rng.integers(len(self.pool)))
        decisions, origin = self.mover.move(self.pool[index].decisions)
        for _ in range(int(self.rng.geometric(0.6)) - 1):
            decisions, name = self.mover.move(decisions)
            origin = f"{origin}, {name}"
        return decisions, origin

    def _digest(self, decisions: Decisions) -> str:
        return decisions_digest(encode_decisions(self.graph, decisions))

    def try_one(self, decisions: Decisions, origin: str) -> None:
        """Measures a candidate, shortly or, if it looks good, longer; keeps it if it is good."""
        digest = self._digest(decisions)
        if digest in self.seen:
            return
        self.seen.add(digest)
        self.evaluations += 1
        self.since_gain += 1
        ratio = self.recalled.get(digest)
        if ratio is None:
            ratio = self._measure(decisions, origin)
        if ratio is None:
            return
        gained = ratio > self.best.ratio * MIN_GAIN
        self.pool.append(Known(decisions, ratio, origin))
        self.pool.sort(key=lambda k: -k.ratio)
        del self.pool[POOL:]
        if gained:
            self.since_gain = 0
            self.history.append((self.evaluations, time.perf_counter() - self.start, ratio))
            if self.ranker is not None:
                self.ranker.learn(decisions)

    def _measure(self, decisions: Decisions, origin: str) -> float | None:
        """Default time / candidate time.

        A candidate that looks better than the best is timed in turn with the best itself: of two
        ratios to the default taken at different times, the larger is often just the luckier.
        """
        first = self.runner.measure(decisions, budget_s=LOOK_S, method=origin)
        if not first.ok:
            self.failures[first.status] += 1
            return None
        if first.high < self.best.ratio:
            return first.ratio
        if self.best.origin == "default":
            longer = self.runner.measure(decisions, budget_s=TRUST_S, method=origin)
            return longer.ratio if longer.ok else None
        duel = self.runner.measure(
            decisions, against=self.best.decisions, budget_s=TRUST_S, method=origin
        )
        if not duel.ok:
            return None
        return self.best.ratio * (duel.ratio if duel.low > 1.0 else min(1.0, duel.ratio))

    def finals(self, count: int = 3) -> list[Known]:
        """The best few, and the best starting point: simple decisions whose gain is seldom luck."""
        best = [k for k in self.pool if k.origin != "default"][:count]
        start = self.best_start
        if start is not None and start.origin != "default" and start not in best:
            best.append(start)
        return best

    def result(self, winner: Known, note: str = "") -> ModuleResult:
        """What the search says of this module."""
        behind = steps_behind(self.graph, winner.decisions).values()
        return ModuleResult(
            name=self.graph.name,
            fingerprint=self.graph.fingerprint,
            nodes=len(self.graph),
            evaluations=self.evaluations,
            failures=dict(self.failures),
            winner=winner.origin,
            changes={k: len(n) for k, (_, n) in changes_of(self.graph, winner.decisions).items()},
            decisions=encode_decisions(self.graph, winner.decisions),
            ratio=winner.ratio,
            history=tuple(self.history),
            steps=tuple(dict.fromkeys(str(step) for steps in behind for step in steps)),
            note=note,
        )
