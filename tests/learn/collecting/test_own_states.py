"""Duels at a policy's own states: where it goes, what is drawn there, and that they come back as states."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console
from support.advantages import ALL_KINDS, SMALL, parameters, random_network
from support.captures import captured

from graphopt.errors import ConfigError, PolicyError
from graphopt.learn.advantages.data import read_states
from graphopt.learn.collecting.collect import CollectPlan
from graphopt.learn.collecting.collect_session import collect_session
from graphopt.learn.collecting.command import FillPlan
from graphopt.learn.collecting.duelling import Collector
from graphopt.learn.collecting.own_states import DRAWN, STATES, OwnStates, draw, own_states
from graphopt.policy.advantages.checkpoint import AdvantageSpec, load_advantages, save_advantages
from graphopt.policy.advantages.decider import AdvantagePolicy, Rule
from graphopt.store import decode_decisions
from graphopt.tasks import cut
from graphopt.tasks.parts import read_parts

BOLD = Rule(deviations=-3.0, kinds=ALL_KINDS)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policies") / "policy"
    save_advantages(path, AdvantageSpec(SMALL, BOLD), parameters())
    return path


def collector_of(name, own=None):
    return Collector(cut(captured(name).graph)[0], own)


def test_experiments_stand_at_states_that_the_policy_reaches():
    own = OwnStates(AdvantagePolicy(random_network(), BOLD), "digest")
    collector = collector_of("cartpole_rollout", own.experiments)
    states = list(own.states(collector))
    assert states[0].same_as(collector.start) and 1 < len(states) <= STATES
    found = collector.singles()
    assert found == collector_of("cartpole_rollout", own.experiments).singles()
    assert len({collector.key(e) for e in found}) == len(found)
    texts = {e.state for e in found}
    assert len(texts) == len(states) and "" in texts
    for text in texts:
        here = [e for e in found if e.state == text]
        assert 0 < len(here) <= DRAWN
        assert {e.rival for e in here} == {"policy" if text else "heuristic"}
        state = decode_decisions(collector.graph, text) if text else collector.start
        for experiment in here:
            rival, decisions = collector.pair(experiment)
            assert rival.same_as(state) and not decisions.same_as(state)
            collector.graph.masks.check(decisions)


def test_the_heaviest_come_first_where_only_some_are_measured():
    task = cut(captured("lstm").graph)[0]
    every = Collector(task).singles()
    few = Collector(task, most=5).singles()
    assert few == every[:5] and len(every) > 5
    weights = [e.weight for e in every if e.rival == "heuristic"]
    assert weights == sorted(weights, reverse=True)


def test_what_promises_more_is_drawn_more_often_and_nothing_twice():
    mean = np.array([0.5, 0.0, 0.0, np.nan, -0.5])
    drawn = [draw(mean, 3, np.random.default_rng(seed)) for seed in range(200)]
    assert all(len(set(places)) == 3 for places in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=5)
    assert counts[0] > 180 and counts[4] < 40 and counts[3] > 60
    assert sorted(draw(mean, 9, np.random.default_rng(0))) == [0, 1, 2, 3, 4]


def test_a_policy_of_another_kind_is_refused(tmp_path):
    assert own_states(None) is None
    with pytest.raises(PolicyError, match="spec"):
        own_states(tmp_path)
    from support.networks import SMALL as NODES
    from support.networks import parameters as of_nodes

    from graphopt.policy.network.checkpoint import PolicySpec, save

    save(tmp_path / "nodes", PolicySpec(NODES, 0.0), of_nodes(NODES))
    with pytest.raises(ConfigError, match="not by alternatives"):
        own_states(tmp_path / "nodes")


def test_collected_states_are_read_back_as_states(policy, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_COLLECT_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr("graphopt.tasks.duel.LOOK_S", 0.001)
    monkeypatch.setattr("graphopt.learn.collecting.own_states.DRAWN", 2)
    source = FillPlan(("fuzz",), ("shared_zeros",), 1000.0, None, 0, 400)
    plan = CollectPlan(source, tmp_path / "parts", 0.2, states_of=policy)
    assert collect_session(plan, Console(file=io.StringIO())) == 0
    (part,) = read_parts(tmp_path / "parts")
    assert part.card["states_of"] == load_advantages(policy).digest
    rows = [row for row in part.duels if row["rival"] == "policy"]
    assert rows and all(isinstance(json.loads(row["state"]), dict) for row in rows)
    states, counted = read_states(tmp_path / "parts")
    assert not counted.unfit and "policy" in {one.start for one in states}
    kept = sum(row["status"] == "ok" for row in part.duels)
    assert sum(len(one) for one in states) == kept
