"""Sampling and scoring, and the best decisions known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures import captured
from support.loops import kernel_by_kernel
from support.networks import SMALL, random_policy
from support.toys import GOOD, MODEL, FlipScorer, config, flip_problem

from graphopt.hlo import DecisionBatch
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.training.choosing import worth_imitating
from graphopt.learn.training.elites import (
    default_elite,
    from_arrays,
    improve,
    judged_by,
    make_label,
    to_arrays,
)
from graphopt.learn.training.rollout import collect, free_nodes, score_once
from graphopt.learn.training.train import remember, rollout_metrics
from graphopt.measure import Scores
from graphopt.measure.analytic import AnalyticScorer

assert MODEL.hidden == SMALL.hidden


@given(
    nodes=st.integers(1, 400),
    count=st.integers(1, 10),
    smallest=st.integers(1, 50),
    seed=st.integers(0, 1000),
)
def test_free_nodes_are_runs_and_none_in_the_first_vector(nodes, count, smallest, seed):
    free = free_nodes(np.random.default_rng(seed), nodes, count, smallest)
    assert free.shape == (count, nodes)
    assert not free[0].any()
    for row in free[1:]:
        inside = np.flatnonzero(row)
        assert min(smallest, nodes) <= len(inside) == inside[-1] - inside[0] + 1


def test_rollouts_are_reproducible_and_start_with_the_likeliest():
    problem = flip_problem("heat_stencil")
    settings = config().rollout
    one, two = (
        collect(random_policy(), problem, "flip", np.random.default_rng(5), settings)
        for _ in range(2)
    )
    assert np.array_equal(one.rewards, two.rewards)
    for name, values in one.samples.actions.items():
        assert np.array_equal(values, two.samples.actions[name])
    assert not any(drawn[0].any() for drawn in one.samples.drawn.values())
    assert len(one.samples) == settings.samples


def test_equal_vectors_are_scored_once():
    graph = captured("heat_stencil").graph
    scorer = FlipScorer(graph, GOOD)
    other = graph.default.with_changes(fuse=scorer.best)
    batch = DecisionBatch.stack([graph.default, other, graph.default, other, other])
    seconds, _ = score_once(scorer, batch)
    assert scorer.calls == 2
    assert np.array_equal(seconds, scorer.score(batch).seconds)


class FailingScorer(FlipScorer):
    """Fails for everything but the default."""

    def score(self, batch):
        same = (batch.fields["fuse"] == self.graph.default.fuse).all(axis=1)
        seconds = np.where(same, self.default_s, np.nan)
        return Scores(seconds, tuple(None if s else "does not compile" for s in same), measured=3)


def test_failures_get_the_fixed_reward_and_are_never_remembered():
    graph = captured("heat_stencil").graph
    problem = Problem("failing", "toy", graph, scorers={"flip": FailingScorer(graph, GOOD)})
    settings = config().rollout
    rollout = collect(random_policy(noise=0.3), problem, "flip", np.random.default_rng(0), settings)
    assert rollout.failed.any()
    assert (rollout.rewards[rollout.failed] == settings.failure).all()
    assert rollout.measured == 3
    elites = {}
    assert not remember(elites, rollout, "flip")
    assert elites == {}
    metrics = rollout_metrics([rollout])
    assert metrics["rollout/failed"] == rollout.failed.mean()


def test_the_best_vector_is_remembered_until_a_better_one_comes():
    problem = flip_problem("heat_stencil")
    elites = {}
    best = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rollout = collect(random_policy(seed=seed), problem, "flip", rng, config().rollout)
        remember(elites, rollout, "flip")
        best.append(max([*best[-1:], float(rollout.rewards.max()), 0.0]))
        known = elites.get(problem.name, default_elite(problem.graph))
        assert known.log_speedup == pytest.approx(best[-1])
    problem.graph.masks.check(elites[problem.name].decisions)
    assert elites[problem.name].origin == "policy"


def test_labels_are_found_by_search():
    problem = flip_problem("heat_stencil")
    label = make_label(problem, "flip", 300, 0)
    assert label.origin == "search"
    assert label.log_speedup > 0.5
    scorer = problem.scorer("flip")
    batch = DecisionBatch.stack([label.decisions])
    assert label.log_speedup == pytest.approx(
        np.log(scorer.default_s / scorer.score(batch).seconds[0])
    )


def test_small_gains_are_not_imitated():
    problem = flip_problem("heat_stencil")
    settings = config()
    better = problem.graph.default.with_changes(fuse=problem.scorer("flip").best)
    found = improve(default_elite(problem.graph), problem, "flip", [better], "search")
    rollout = collect(random_policy(), problem, "flip", np.random.default_rng(0), settings.rollout)
    assert worth_imitating({problem.name: found}, rollout, settings) is found
    small = replace(found, log_speedup=rollout.base + 0.001)
    for elites in ({problem.name: small}, {}):
        label = worth_imitating(elites, rollout, settings)
        assert label.decisions is problem.features.start
        assert (label.origin, label.log_speedup) == ("start", rollout.base)


def test_another_judge_judges_anew():
    graph = captured("heat_stencil").graph
    kind = FlipScorer(graph, GOOD)
    problem = Problem(
        "p", "toy", graph, scorers={"flip": kind, "other": FlipScorer(graph, frozenset())}
    )
    best = graph.default.with_changes(fuse=kind.best)
    known = improve(default_elite(graph, "flip"), problem, "flip", [best], "search")
    assert judged_by(known, problem, "flip") is known
    elsewhere = judged_by(known, problem, "other")
    assert (elsewhere.origin, elsewhere.judge, elsewhere.log_speedup) == ("default", "other", 0.0)
    assert elsewhere.decisions.same_as(graph.default)
    back = judged_by(replace(known, judge="other"), problem, "flip")
    assert back.log_speedup == pytest.approx(1.0)
    assert judged_by(None, problem, "flip").origin == "default"


def test_elites_survive_storage():
    problem = flip_problem("heat_stencil")
    elites = {"a": make_label(problem, "flip", 40, 1), "b": default_elite(problem.graph)}
    back = from_arrays(to_arrays(elites))
    assert back.keys() == elites.keys()
    for name, elite in elites.items():
        assert back[name].decisions.same_as(elite.decisions)
        for attribute in ("log_speedup", "origin", "judge"):
            assert getattr(back[name], attribute) == getattr(elite, attribute)


@pytest.mark.parametrize("name", ["transformer_block", "cartpole_rollout", "heat_stencil"])
def test_the_analytic_scorer_scores_anything_legal(name):
    graph = captured(name).graph
    scorer = AnalyticScorer(graph)
    rng = np.random.default_rng(0)
    batch = DecisionBatch.stack(
        [graph.default, *(graph.masks.sample(rng, graph.default, 0.2) for _ in range(8))]
    )
    scores = scorer.score(batch)
    assert scores.seconds[0] == scorer.default_s
    assert (scores.seconds > 0).all()
    assert len(np.unique(scores.seconds)) > 2


def test_the_analytic_scorer_knows_dispatch_in_loops():
    graph = kernel_by_kernel(captured("cartpole_rollout")).graph
    native = next(i for i, unit in enumerate(graph.units) if unit.name == "native")
    loops = np.array([op.name == "while" for op in graph.ops]) & graph.masks.unit[:, native]
    outlined = graph.default.copy()
    outlined.unit[loops] = native
    scores = AnalyticScorer(graph).score(DecisionBatch.stack([graph.default, outlined]))
    assert scores.seconds[1] < 0.8 * scores.seconds[0]
