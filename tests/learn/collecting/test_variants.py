"""Whole times and kernel times that machines of an executor measure for whoever trains."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from support.captures import captured
from support.fleet import Disturbed
from support.toys import MODEL, config

from benchmarks.faults import GOOD_ANSWER, distinct_decisions
from graphopt.errors import ConfigError, MeasureError
from graphopt.executing.request import FAILED, LOST
from graphopt.hlo import DecisionBatch
from graphopt.learn.cli import main
from graphopt.learn.collecting import variants
from graphopt.learn.collecting.problems import Problem
from graphopt.learn.collecting.scorers import Bench
from graphopt.learn.collecting.variants import TRIES, ElsewhereRunner
from graphopt.learn.collecting.warm import WARM
from graphopt.learn.config import CorpusConfig, StageConfig
from graphopt.learn.training import session
from graphopt.learn.training.session import train_session
from graphopt.measure.children.runner import Runner
from graphopt.store import Store, decisions_digest, encode_decisions
from graphopt.store.kernels import all_kernels
from graphopt.store.winners import evaluations, outcomes, quarantined

WORKER = """
import json, os, sys
good, kills = json.loads(sys.argv[1]), json.loads(sys.argv[2])
if kills == "all":
    print(json.dumps({"status": "cannot measure", "detail": "host callback"}), flush=True)
print(json.dumps({"status": "ok"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["decisions"] in kills:
        os.abort()
    if request["op"] == "profile":
        answer = {"status": "ok", "kernels": [["k", 7.5, 2.0, 3, [1.0, 2.0]]]}
    else:
        answer = {**good, "ratio": 1.0 + len(request["decisions"]) / 1000.0}
    print(json.dumps(answer), flush=True)
"""
"""A fake worker whose ratios depend on the decisions; it dies of some, or cannot measure at all."""


@pytest.fixture
def machines(monkeypatch):
    """Makes an executor whose worker dies of given decisions."""
    made = []

    def make(kills=(), disturb=lambda request: None):
        command = ("-c", WORKER, json.dumps(GOOD_ANSWER), json.dumps(kills))
        monkeypatch.setattr("graphopt.tasks.duel.Runner", functools.partial(Runner, worker=command))
        made.append(Disturbed(disturb))
        return made[-1]

    yield make
    WARM.close()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


@pytest.fixture(scope="module")
def problem():
    program = captured("knapsack")
    return Problem("knapsack", "search", program.graph, program.data)


def asks(problem, store, executor):
    return ElsewhereRunner(problem.graph, problem.data, None, store, executor)


def test_vectors_are_scored_by_the_machines_each_once(problem, store, machines):
    executor = machines()
    vectors = distinct_decisions(problem.graph, 3)
    with Bench(store, executor=executor) as bench:
        scorer = bench.measured(problem)
        scores = scorer.score(DecisionBatch.stack([*vectors, vectors[0], problem.graph.default]))
        again = scorer.score(DecisionBatch.stack(vectors))
    texts = [encode_decisions(problem.graph, one) for one in vectors]
    expected = [1.0 / (1.0 + len(text) / 1000.0) for text in texts]
    np.testing.assert_allclose(scores.seconds, [*expected, expected[0], 1.0])
    np.testing.assert_array_equal(again.seconds, scores.seconds[:3])
    assert len(executor.asked) == 3
    assert dict(evaluations(store, problem.graph.fingerprint)).keys() == set(texts)


def test_what_kills_the_child_is_quarantined_and_not_asked_for_again(problem, store, machines):
    bad, good = distinct_decisions(problem.graph, 2)
    text = encode_decisions(problem.graph, bad)
    executor = machines([text])
    runner = asks(problem, store, executor)
    found = runner.measure([bad, good], budget_s=0.1, method="m")
    assert [one.status for one in found] == ["abort", "ok"]
    assert decisions_digest(text) in quarantined(store, problem.graph.fingerprint)
    assert dict(outcomes(store, problem.graph.fingerprint))[text] is None
    for other in (runner, asks(problem, store, executor)):
        assert other.measure([bad], budget_s=0.1, method="m")[0].status == "quarantined"
        assert other.profile(bad) == []
    assert len(executor.asked) == 2


def test_kernels_come_into_the_store_of_whoever_asks(problem, store, machines):
    found = asks(problem, store, machines()).profile(problem.graph.default, 4)
    ((kernel, item, executions),) = found
    assert (kernel.key, kernel.ns, kernel.samples, kernel.features) == ("k", 7.5, 4, (1.0, 2.0))
    assert (item, executions) == (3, 2.0)
    assert [(k.key, k.ns) for k in all_kernels(store)] == [("k", 7.5)]


@pytest.mark.parametrize("status", [LOST, FAILED])
def test_what_circumstances_took_is_asked_again_but_not_for_ever(problem, store, machines, status):
    failures = iter([status])
    vectors = distinct_decisions(problem.graph, 2)
    executor = machines(disturb=lambda request: next(failures, None))
    found = asks(problem, store, executor).measure(vectors, budget_s=0.1, method="m")
    assert all(one.ok for one in found) and len(executor.asked) == 3
    executor = machines(disturb=lambda request: status)
    with pytest.raises(MeasureError, match="its process died"):
        asks(problem, store, executor).measure(vectors[:1], budget_s=0.1, method="m")
    assert len(executor.asked) == TRIES


def test_a_module_that_cannot_be_measured_alone(problem, store, machines):
    executor = machines("all")
    with Bench(store, executor=executor) as bench:
        scores = bench.measured(problem).score(
            DecisionBatch.stack(distinct_decisions(problem.graph, 2))
        )
        assert not bench.profile(problem, bench.bank(problem), problem.graph.default)
        assert np.isnan(scores.seconds).all() and "host callback" in scores.reasons[0]
        asked = len(executor.asked)
        assert not bench.profile(problem, bench.bank(problem), problem.graph.default)
    assert len(executor.asked) == asked


def test_training_measures_by_the_executor(tmp_path, monkeypatch, machines):
    executor = machines()
    monkeypatch.setattr(session, "open_executor", lambda spec: executor)
    settings = replace(
        config(),
        corpus=CorpusConfig(
            source="builtin", names=("layernorm",), validation_names=("heat_stencil",)
        ),
        model=MODEL,
        stages=(StageConfig("measured", "measured", 1, 1e-3, imitation=0.0, search=False),),
        store=str(tmp_path / "store.sqlite"),
    )
    assert train_session(settings, tmp_path / "run", False, "ray:auto") == 0
    assert (tmp_path / "run" / "policy").is_dir()
    assert executor.asked and all(status is None for _, status in executor.asked)


def test_the_command_names_executors(capsys, tmp_path):
    assert main(["--toy", "--out", str(tmp_path / "run"), "--executor", "slurm"]) != 0
    assert "there is no executor 'slurm'" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        session.train_session(config(), tmp_path / "other", False, "slurm")
    assert variants.WORK and os.listdir(tmp_path)
