"""Fine-tuning on one graph, and the bench of measured scorers."""

from __future__ import annotations

import numpy as np
import pytest
from support.captures import captured
from support.networks import parameters
from support.toys import GOOD, MODEL, FlipScorer

from graphopt.corpus.demo import DEMO
from graphopt.errors import ConfigError
from graphopt.hlo import DecisionBatch
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.collecting.scorers import Bench, RatioScorer
from graphopt.learn.finetune import finetune
from graphopt.learn.training.elites import make_label, stored_winner
from graphopt.policy.network.numpy_network import NumpyPolicy
from graphopt.policy.network.parameters import create, flatten
from graphopt.store import Store, Winner, encode_decisions
from graphopt.store.winners import put_winner

pytestmark = pytest.mark.usefixtures("plain_code")


def fresh():
    return NumpyPolicy(MODEL, flatten(create(MODEL, 0)[1]))


def test_it_improves_on_the_graph_and_leaves_the_network_alone():
    scorer = FlipScorer(captured("heat_stencil").graph, GOOD)
    network = fresh()
    before = {name: value.copy() for name, value in network.parameters.items()}
    found = finetune(network, scorer, max_steps=12, budget_s=600.0)
    assert found.steps == 12
    assert found.evaluations == 12 * 16 >= scorer.calls
    assert found.speedup > 1.0
    assert [best for _, best in found.history] == sorted(best for _, best in found.history)
    scores = scorer.score(DecisionBatch.stack([found.decisions]))
    assert found.speedup == pytest.approx(scorer.default_s / scores.seconds[0])
    assert all(np.array_equal(network.parameters[name], before[name]) for name in before)
    assert any(not np.array_equal(found.network.parameters[name], before[name]) for name in before)


def test_where_nothing_gains_the_default_stands():
    scorer = FlipScorer(captured("heat_stencil").graph, frozenset())
    found = finetune(NumpyPolicy(MODEL, parameters(MODEL)), scorer, max_steps=2, budget_s=600.0)
    assert found.speedup == 1.0
    assert found.decisions.same_as(scorer.graph.default)


def test_no_step_begins_after_the_budget():
    scorer = FlipScorer(captured("heat_stencil").graph, GOOD)
    found = finetune(fresh(), scorer, budget_s=1e-6)
    assert found.steps == 0
    assert found.evaluations == 16
    with pytest.raises(ConfigError):
        finetune(fresh(), scorer, max_steps=0)


def problem_of(name, bench):
    program = captured(name)
    return Problem(name, "toy", program.graph, program.data, DEMO[name], bench)


def test_the_bank_learns_what_is_measured_in_place(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    with Bench(store) as bench:
        problem = problem_of("layernorm", bench)
        label = make_label(problem, "bank", 40, 0)
        assert store.exists()
        known = problem.scorer("bank").score(DecisionBatch.stack([problem.graph.default]))
        assert known.measured == 0
        problem.graph.masks.check(label.decisions)
        default = DecisionBatch.stack([problem.graph.default, label.decisions])
        seconds = problem.scorer("bank").score(default).seconds
        assert label.log_speedup == pytest.approx(np.log(seconds[0] / seconds[1]))
        assert problem.confirm("analytic", problem.graph.default) is None


def test_what_the_tuner_found_is_a_label(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    graph = captured("heat_stencil").graph
    scorer = FlipScorer(graph, GOOD)
    best = graph.default.with_changes(fuse=scorer.best)
    problem = Problem("p", "toy", graph, bench=Bench(store), scorers={"flip": scorer})
    assert stored_winner(problem) is None
    text = encode_decisions(graph, best)
    row = (
        graph.fingerprint,
        text,
        "p",
        len(graph),
        1.0,
        0.5,
        2.0,
        1.9,
        2.1,
        9,
        True,
        "tuned here",
        1.0,
    )
    store.environment_id()
    put_winner(store, Winner(*row))
    found = stored_winner(problem)
    assert found is not None
    assert found.decisions.same_as(best)
    assert found.log_speedup == pytest.approx(np.log(2.0))


def test_whole_modules_are_measured_once_each(tmp_path):
    with Bench(Store(tmp_path / "store.sqlite")) as bench:
        problem = problem_of("layernorm", bench)
        scorer = problem.scorer("measured")
        assert isinstance(scorer, RatioScorer)
        other = problem.graph.masks.sample(
            np.random.default_rng(0), problem.graph.default, change=0.2
        )
        batch = DecisionBatch.stack([problem.graph.default, other])
        first = scorer.score(batch)
        assert first.measured == 1
        assert first.seconds[0] == scorer.default_s
        assert (first.seconds[1] > 0) != (first.reasons[1] is not None)
        again = scorer.score(batch)
        assert again.measured == 0
        assert np.array_equal(again.seconds, first.seconds, equal_nan=True)


def test_measuring_needs_a_bench():
    problem = Problem("alone", "toy", captured("layernorm").graph)
    for kind in ("bank", "measured"):
        with pytest.raises(ConfigError, match="nothing can be measured"):
            problem.scorer(kind)
    with pytest.raises(ConfigError, match="no scorer named"):
        problem.scorer("wishful")
