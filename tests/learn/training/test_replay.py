"""What was measured, here and on other machines, as something to learn from."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from support.captures import captured

from graphopt.learn.collecting.problems import Problem
from graphopt.learn.training.replay import load_records, pooled
from graphopt.policy.network.features import extract
from graphopt.store import Store
from graphopt.store.encoding import encode_decisions
from graphopt.store.winners import outcomes_elsewhere, put_evaluation


@pytest.fixture(scope="module")
def graph():
    return captured("layernorm").graph


def flipped(graph, index):
    out = graph.default.copy()
    out.fuse[np.flatnonzero(graph.masks.fuse.all(axis=1))[index]] ^= True
    return out


def gains_of(rows, vector):
    return [gain for known, gain in rows if known.same_as(vector)]


def test_what_several_machines_measured_is_the_mean_gain_over_the_start(graph):
    start, both, once, failing = (flipped(graph, i) for i in range(4))
    here = [(start, 1.0), (both, 1.5), (failing, math.nan)]
    there = [(start, 3.0), (both, 3.1), (once, 2.8), (failing, math.nan)]
    rows, base = pooled([here, there], graph.default, start)
    assert base == 1.0  # as here
    assert len(rows) == 4
    assert gains_of(rows, both) == pytest.approx([1.0 + (0.5 + 0.1) / 2])
    assert gains_of(rows, once) == pytest.approx([1.0 - 0.2])
    assert np.isnan(gains_of(rows, failing)).all()


def test_a_machine_that_does_not_know_the_start_does_not_count(graph):
    start, vector = flipped(graph, 0), flipped(graph, 1)
    rows, base = pooled([[(vector, 5.0)], [(start, 2.0), (vector, 2.5)]], graph.default, start)
    assert base == 2.0
    assert gains_of(rows, vector) == pytest.approx([2.5])
    rows, base = pooled([[(vector, 5.0)]], graph.default, start)
    assert rows == [] and math.isnan(base)
    rows, base = pooled([[(vector, 5.0)]], graph.default, graph.default)
    assert base == 0.0 and gains_of(rows, vector) == [5.0]


def test_a_vector_that_worked_somewhere_has_not_failed(graph):
    start, vector = flipped(graph, 0), flipped(graph, 1)
    machines = [[(start, 0.0), (vector, math.nan)], [(start, 0.0), (vector, 0.25)]]
    assert gains_of(pooled(machines, graph.default, start)[0], vector) == [0.25]


def elsewhere(path, *, jaxlib):
    """What the store knows of this machine becomes another one's."""
    store = Store(path)
    here = store.environment_id()
    with store.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE environments SET machine='other', jaxlib=? WHERE id=?", (jaxlib, here)
        )
    return Store(path)


def test_records_of_other_machines_count_where_that_is_wanted(graph, tmp_path):
    path = tmp_path / "bank.sqlite"
    store = Store(path)
    problem = Problem("p", "f", graph, bench=SimpleNamespace(store=store))
    problem.features = extract(graph, start=graph.default)
    vector = flipped(graph, 0)
    text = encode_decisions(graph, vector)
    put_evaluation(store, graph.fingerprint, text, 1.25, "ok", "m")
    assert load_records(problem).log_speedup.tolist() == pytest.approx([math.log(1.25)])
    (version,) = store.rows("SELECT jaxlib FROM environments")[0]

    problem.bench.store = elsewhere(path, jaxlib=version)
    assert load_records(problem) is None
    found = load_records(problem, other_machines=True)
    assert found.log_speedup.tolist() == pytest.approx([math.log(1.25)])
    assert found.vectors[0].same_as(vector)


def test_another_jaxlib_is_another_compiler(tmp_path):
    path = tmp_path / "bank.sqlite"
    put_evaluation(Store(path), "f", "{}", 1.25, "ok", "m")
    assert outcomes_elsewhere(elsewhere(path, jaxlib="0.0.1"), "f") == []
