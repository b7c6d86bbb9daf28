"""Which kinds of change a winner consists of, and what becomes of them when they are taken back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_programs import STATE, chain

from benchmarks.faults import fake_worker
from graphopt.corpus.capture import capture_modules
from graphopt.hlo import build_graph
from graphopt.learn.tune.attribution import Share, attribute, changes_of, steps_behind, without
from graphopt.measure.children.runner import Runner
from graphopt.policy.heuristic.steps import choose


@pytest.fixture(scope="module")
def data() -> bytes:
    return max(capture_modules(chain, STATE), key=len)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rate=st.floats(0.0, 1.0))
def test_taking_back_every_kind_gives_the_default(data, seed, rate):
    graph = build_graph(data)
    decisions = graph.masks.sample(np.random.default_rng(seed), graph.default, rate)
    found = changes_of(graph, decisions)
    counts = [len(nodes) for _, nodes in found.values()]
    assert counts == sorted(counts, reverse=True)
    for field, nodes in found.values():
        smaller = without(graph, decisions, field, nodes)
        assert len(changes_of(graph, smaller)) == len(changes_of(graph, decisions)) - 1
        decisions = smaller
    assert decisions.same_as(graph.default)


def test_the_heuristics_decisions_name_their_steps(data):
    graph = build_graph(data)
    decided = choose(graph)
    behind = steps_behind(graph, decided.decisions)
    assert set(behind) == set(changes_of(graph, decided.decisions))
    named = {step.step for steps in behind.values() for step in steps}
    assert named and named <= {step.step for step in decided.steps}
    assert steps_behind(graph, graph.default) == {}


def test_what_only_a_search_finds_names_no_step(data):
    graph = build_graph(data)
    decided = choose(graph).decisions
    fuse = np.flatnonzero((decided.fuse == graph.default.fuse) & (graph.default.fuse == 0))
    assert len(fuse)
    mine = graph.default.fuse.copy()
    mine[fuse[0]] = 1
    assert steps_behind(graph, graph.default.with_changes(fuse=mine)) == {}


def test_a_failing_worker_leaves_the_winner_alone(data):
    with Runner(data, None, None, timeout_s=0.5, worker=fake_worker()) as runner:
        winner = runner.graph.masks.sample(np.random.default_rng(0), runner.graph.default, 0.5)
        shares = attribute(
            runner, winner, 30.0
        )  # the fake fails or answers by the budget it is given
        assert {s.change for s in shares} == set(changes_of(runner.graph, winner))
        assert runner.measure(winner, budget_s=1000.0).ok


def test_no_time_means_not_measured(data):
    with Runner(data, None, None) as runner:
        winner = runner.graph.masks.sample(np.random.default_rng(0), runner.graph.default, 0.5)
        shares = attribute(runner, winner, 0.0)
    assert shares and all(s.worth is None for s in shares)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (Share("unit = native", 2, 12.3, 12.1, 12.5), "2 x unit = native: 12.30x (12.10-12.50)"),
        (Share("fuse = 0", 1, 1.01, 0.99, 1.02), "1 x fuse = 0: no difference"),
        (Share("join = 1", 7), "7 x join = 1: not measured"),
        (
            Share("unit = native", 2, 2.0, 1.9, 2.1, ("native-loops", "small-runs")),
            "2 x unit = native (native-loops, small-runs): 2.00x (1.90-2.10)",
        ),
    ],
)
def test_shares_read_well(share, text):
    assert str(share) == text
