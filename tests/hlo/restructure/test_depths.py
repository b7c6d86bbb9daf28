"""The quick look at loop bodies overlooks nothing that the thorough one finds."""

import pytest
from support.captures import captured

from graphopt.hlo.restructure.rows.loops import hoist
from graphopt.hlo.restructure.sites import Candidate
from graphopt.hlo.restructure.writing import depths
from graphopt.hlo.restructure.writing.passing import parameter_of

PROGRAMS = ("hmc_chain", "cartpole_rollout", "lstm", "random_walk", "viterbi")


def loops(graph):
    return [node for node, op in enumerate(graph.ops) if op.name == "while"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_that_are_passed_over_hold_nothing(name, monkeypatch):
    graph = captured(name).graph
    quick = {node: hoist._make_plan(Candidate(graph, node)) for node in loops(graph)}
    monkeypatch.setattr(hoist, "reaches", lambda *_: True)
    thorough = {node: hoist._make_plan(Candidate(graph, node)) for node in loops(graph)}
    rows = {n: None if p is None else list(p.rows) for n, p in thorough.items()}
    assert {n: None if p is None else list(p.rows) for n, p in quick.items()} == rows


def test_random_numbers_drawn_in_a_loop_are_found_and_a_network_is_passed_over():
    found = {}
    for name in ("hmc_chain", "lstm"):
        graph = captured(name).graph
        plans = [hoist.plan_of(Candidate(graph, node)) for node in loops(graph)]
        found[name] = any(plan is not None and plan.rows for plan in plans)
    assert found == {"hmc_chain": True, "lstm": False}


def test_depth_counts_only_what_is_known():
    graph = captured("lstm").graph
    computations = graph.source.module.computations
    body = graph.source.called[loops(graph)[-1]][0]
    count = len(parameter_of(computations[body].proto).shape.tuple_shapes)
    assert not depths.reaches(computations, body, [[None] * count], 0.5)
    assert depths.reaches(computations, body, [[0.0] * count], 0.5)
    assert not depths.reaches(computations, body, [[0.0] * count], 1e9)
