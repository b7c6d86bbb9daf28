"""Which kinds of change a winner consists of, and what becomes of them when they are taken back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_programs import STATE, chain

from graphopt.corpus.capture import capture_modules
from graphopt.evaluate.bench_faults import fake_worker
from graphopt.hlo import build_graph
from graphopt.learn.tune.attribution import Share, attribute, changes_of, without
from graphopt.measure.children.runner import Runner


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
    ],
)
def test_shares_read_well(share, text):
    assert str(share) == text
