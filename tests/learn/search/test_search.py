"""Moves stay legal, budgets hold, seeds reproduce, and every engine finds what is easy to find."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import captured

from graphopt.errors import ConfigError
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.learn.search import ENGINES, MOVES, Budget, Mover, portfolio
from graphopt.learn.search.moves import cross, node_heat
from graphopt.learn.search.result import Ledger
from graphopt.measure.scoring import Scores

NAMES = ("knapsack", "momentum_train", "layernorm", "scan_grad", "stack_machine")
SEEDS = st.integers(0, 2**32 - 1)


@functools.cache
def graph_of(name: str) -> Graph:
    return captured(name).graph


def some_decisions(graph: Graph, seed: int) -> Decisions:
    rng = np.random.default_rng(seed)
    return graph.masks.sample(rng, graph.default, float(rng.choice([0.0, 0.05, 0.5, 1.0])))


@dataclass
class Toy:
    """Seconds that can be computed by hand: a random price per node and value.

    `broken`: share of vectors that have no score, the same ones every time.
    """

    graph: Graph
    broken: float = 0.0
    name: str = "toy"
    deterministic: bool = True
    sizes: list[int] = field(default_factory=list)
    seen: list[Decisions] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        self.prices = {f: rng.random(getattr(self.graph.masks, f).shape) for f in FIELDS}

    def price(self, decisions: Decisions) -> float:
        nodes = np.arange(len(self.graph))
        return 1.0 + sum(
            float(self.prices[f][nodes, getattr(decisions, f).astype(int)].sum()) for f in FIELDS
        )

    @property
    def default_s(self) -> float:
        return self.price(self.graph.default)

    def score(self, batch: DecisionBatch) -> Scores:
        vectors = [batch[i] for i in range(len(batch))]
        self.sizes.append(len(vectors))
        self.seen += [v.copy() for v in vectors]
        seconds = np.array([self.price(v) for v in vectors])
        failed = (seconds * 1e6).astype(np.int64) % 100 < 100 * self.broken
        seconds[failed] = np.nan
        return Scores(seconds, tuple("broken" if f else None for f in failed))


# Engines.


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("name", ["knapsack", "layernorm"])
def test_engines_improve_and_tell_the_truth(engine, name):
    toy = Toy(graph_of(name))
    result = engine(toy, Budget(600), seed=1)
    assert result.seconds == pytest.approx(toy.price(result.decisions))
    assert result.default_s == toy.default_s
    assert result.speedup == pytest.approx(toy.default_s / result.seconds)
    first = min(toy.price(start.decisions) for start in portfolio(toy.graph))
    assert result.seconds < first, "no better than its starting points"
    assert result.seconds == pytest.approx(min(toy.price(v) for v in toy.seen))
    toy.graph.masks.check(result.decisions)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_engines_are_reproducible(engine):
    def run(seed):
        return engine(Toy(graph_of("knapsack")), Budget(200), seed=seed)

    one, two, other = run(3), run(3), run(4)
    assert one.decisions.same_as(two.decisions)
    assert one.seconds == two.seconds
    assert [(e, s) for e, _, s in one.history] == [(e, s) for e, _, s in two.history]
    assert not other.decisions.same_as(one.decisions)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("evaluations", [1, 2, 7, 23, 24, 25, 100])
def test_engines_keep_to_their_evaluations(engine, evaluations):
    toy = Toy(graph_of("momentum_train"))
    result = engine(toy, Budget(evaluations))
    assert result.evaluations == sum(toy.sizes) == evaluations


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@settings(max_examples=8, deadline=None)
@given(name=st.sampled_from(NAMES), seed=SEEDS)
def test_engines_propose_nothing_illegal(engine, name, seed):
    toy = Toy(graph_of(name), broken=0.3)
    engine(toy, Budget(80), seed=seed)
    for decisions in toy.seen:
        toy.graph.masks.check(decisions)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_engines_count_failures_and_go_on(engine):
    toy = Toy(graph_of("knapsack"), broken=0.5)
    result = engine(toy, Budget(300))
    assert 0 < result.failures < 300
    assert result.seconds < toy.default_s
    assert np.isfinite(result.seconds)
    hopeless = engine(Toy(graph_of("knapsack"), broken=1.0), Budget(60))
    assert hopeless.failures == 60
    assert hopeless.decisions.same_as(graph_of("knapsack").default)
    assert (hopeless.speedup, len(hopeless.history)) == (1.0, 1)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("ticks", [1, 2, 3, 4, 5, 6, 7, 8, 9, 50])
def test_engines_end_when_the_time_is_up(engine, ticks, monkeypatch):
    clock = iter(range(10**9))
    monkeypatch.setattr(
        "graphopt.learn.search.result.time",
        type("Clock", (), {"perf_counter": lambda: next(clock)}),
    )
    toy = Toy(graph_of("knapsack"))
    result = engine(toy, Budget(100_000, seconds=float(ticks)))
    assert result.evaluations < 100 + 30 * ticks
    assert next(clock) < ticks + 20


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_the_default_stands_where_nothing_is_better(engine):
    class Best(Toy):
        """Counts what differs from the default."""

        def price(self, decisions: Decisions) -> float:
            default = self.graph.default
            return 1.0 + sum(
                int((getattr(decisions, f) != getattr(default, f)).sum()) for f in FIELDS
            )

    result = engine(Best(graph_of("layernorm")), Budget(60))
    assert result.decisions.same_as(graph_of("layernorm").default)
    assert result.speedup == 1.0


def test_the_history_only_falls():
    for engine in ENGINES.values():
        history = engine(Toy(graph_of("knapsack")), Budget(200)).history
        assert history[0][0] == 0
        scores = [s for _, _, s in history]
        assert scores == sorted(scores, reverse=True) and len(set(scores)) == len(scores)
        counts = [e for e, _, _ in history]
        assert counts == sorted(counts)


@pytest.mark.parametrize(("evaluations", "seconds"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -1.0)])
def test_budgets_are_positive(evaluations, seconds):
    with pytest.raises(ConfigError, match="a budget of"):
        Budget(evaluations, seconds)


def test_a_ledger_cuts_at_the_budget():
    toy = Toy(graph_of("knapsack"))
    ledger = Ledger(toy, Budget(3))
    vectors = [some_decisions(toy.graph, seed) for seed in range(5)]
    assert ledger.score(vectors).shape == (3,)
    assert ledger.left == 0


# Moves.


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), seed=SEEDS)
def test_moves_are_legal_and_leave_their_start_alone(name, seed):
    graph = graph_of(name)
    mover = Mover(graph, np.random.default_rng(seed))
    current = some_decisions(graph, seed)
    for _ in range(12):
        kept = current.copy()
        moved, label = mover.move(current)
        assert current.same_as(kept)
        graph.masks.check(moved)
        assert label == "none" or not moved.same_as(current)
        current = moved


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(NAMES), seed=SEEDS, move=st.sampled_from(MOVES))
def test_every_single_move_is_legal(name, seed, move):
    graph = graph_of(name)
    mover = Mover(graph, np.random.default_rng(seed))
    current = some_decisions(graph, seed)
    kept = current.copy()
    found = move.apply(mover, current)
    assert current.same_as(kept)
    if found is not None:
        graph.masks.check(found)


def test_every_move_changes_something_somewhere():
    useless = {move.name for move in MOVES}
    for name in NAMES:
        graph = graph_of(name)
        mover = Mover(graph, np.random.default_rng(0))
        for seed in range(40):
            current = some_decisions(graph, seed)
            for move in MOVES:
                found = move.apply(mover, current)
                if found is not None and not found.same_as(current):
                    useless.discard(move.name)
    assert useless == set()


def test_the_default_decisions_are_not_written_to():
    graph = graph_of("knapsack")
    before = graph.default.copy()
    mover = Mover(graph, np.random.default_rng(0))
    for _ in range(50):
        mover.move(graph.default)
    for start in portfolio(graph):
        start.decisions.fuse[:] = start.decisions.fuse
    assert graph.default.same_as(before)


def test_hot_nodes_are_tried_more_often():
    graph = graph_of("knapsack")
    heat = node_heat(graph)
    assert (heat >= 0).all() and heat.max() > 0
    mover = Mover(graph, np.random.default_rng(0))
    nodes = np.arange(len(graph))
    drawn = np.bincount([mover.pick(nodes) for _ in range(3000)], minlength=len(graph))
    assert drawn[heat.argmax()] == pytest.approx(3000 * heat.max() / heat.sum(), rel=0.3)
    assert (drawn[heat == 0] > 0).any(), "cold nodes are never tried"


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), seed=SEEDS)
def test_crossing_stays_legal_and_takes_from_both(name, seed):
    graph = graph_of(name)
    one, two = some_decisions(graph, seed), some_decisions(graph, seed + 1)
    child = cross(np.random.default_rng(seed), graph, one, two)
    graph.masks.check(child)
    for f in FIELDS:
        values = np.stack([getattr(d, f) for d in (one, two)])
        assert (values == getattr(child, f)).any(axis=0).all()


def test_crossing_mixes():
    graph = graph_of("knapsack")
    rng = np.random.default_rng(0)
    one = graph.masks.sample(rng, graph.default, 1.0)
    children = [cross(rng, graph, one, graph.default) for _ in range(20)]
    mixed = [c for c in children if not c.same_as(one) and not c.same_as(graph.default)]
    assert len(mixed) > 10


# Starting points.


@pytest.mark.parametrize("name", NAMES)
def test_starting_points_are_legal_distinct_and_repeatable(name):
    graph = graph_of(name)
    starts = portfolio(graph)
    assert starts[0].name == "default" and starts[0].decisions.same_as(graph.default)
    for i, start in enumerate(starts):
        graph.masks.check(start.decisions)
        assert not any(start.decisions.same_as(other.decisions) for other in starts[:i])
    again = portfolio(graph)
    assert [s.name for s in again] == [s.name for s in starts]
    assert all(a.decisions.same_as(b.decisions) for a, b in zip(starts, again, strict=True))
