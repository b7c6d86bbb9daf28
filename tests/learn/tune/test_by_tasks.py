"""The search task by task: what it finds is legal, composes, and never stands in the way."""

from __future__ import annotations

import time

import pytest
from support.captures import captured

from graphopt.costs.model import CostModel
from graphopt.learn.tune import Event, by_tasks, tune
from graphopt.learn.tune.by_tasks import search_by_tasks, task_starts
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.store import Store
from graphopt.store.winners import evaluations
from graphopt.tasks import Duel, Duels
from graphopt.tasks.duel import Look


def heuristic_of(graph):
    return heuristic_steps(graph, STEPS, CostModel(graph))


@pytest.fixture
def written_wins(monkeypatch):
    """Duels won by whoever writes more values to memory, without a clock."""

    def duel(self, rival, decisions, looks=2, most=4):
        self.held += 1
        gain = 0.1 * float((~decisions.fuse).sum() - (~rival.fuse).sum())
        return Duel("ok", (Look(gain, gain - 0.01, gain + 0.01, 9),) * looks, 1.0, 1.0)

    monkeypatch.setattr(Duels, "duel", duel)


def test_what_tasks_gain_is_composed(written_wins):
    graph = captured("keys_in_loops").graph
    lines: list[str] = []
    result = search_by_tasks(graph, None, None, time.perf_counter() + 60.0, lines.append)
    graph.masks.check(result.composed.decisions)
    assert result.base.same_as(heuristic_of(graph))
    assert not result.composed.decisions.same_as(result.base)
    assert result.found and result.duels == sum(one.duels for one in result.found)
    assert any(len(one.tasks) > 1 for one in result.found)
    expected = sum(one.share * (1 - 2.718281828**-one.gain) for one in result.found)
    assert 1 - 2.718281828**-result.predicted == pytest.approx(expected)
    assert all("of the time" in line for line in lines)


def test_nothing_is_begun_without_time():
    graph = captured("keys_in_loops").graph
    result = search_by_tasks(graph, None, None, time.perf_counter())
    assert result.duels == 0 and result.predicted == 0.0
    assert result.composed.decisions.same_as(result.base)
    assert task_starts(graph, None, None, 1.0) == []


def test_small_programs_are_searched_whole():
    assert task_starts(captured("layernorm").graph, None, None, 1000.0) == []


def test_whatever_is_wrong_with_tasks_leaves_the_search_alone(monkeypatch):
    def broken(*_, **__):
        raise KeyError("odd module")

    monkeypatch.setattr(by_tasks, "search_by_tasks", broken)
    lines: list[str] = []
    graph = captured("keys_in_loops").graph
    assert task_starts(graph, None, None, 100.0, lines.append) == []
    assert lines == ["tasks left alone: KeyError: 'odd module'"]


def test_a_program_is_searched_in_child_processes(tmp_path, monkeypatch):
    monkeypatch.setattr("graphopt.tasks.duel.LOOK_S", 0.001)
    graph = captured("shared_zeros").graph
    store = Store(tmp_path / "store.sqlite")
    result = search_by_tasks(graph, None, store, time.perf_counter() + 8.0)
    graph.masks.check(result.composed.decisions)
    assert result.duels > 0
    for one in result.found:
        assert one.gain >= 0.0
        if one.gain > 0.0:
            assert evaluations(store, one.tasks[0].fingerprint)


def test_tune_begins_with_the_tasks_of_large_programs(tmp_path, monkeypatch, clean_plugin):
    monkeypatch.setattr(by_tasks, "MIN_PROGRAM", 1)
    monkeypatch.setattr(by_tasks, "MIN_SECONDS", 0.5)
    monkeypatch.setattr(by_tasks, "MIN_TASK_S", 0.5)
    found = captured("scan_grad")
    events: list[Event] = []
    store = Store(tmp_path / "store.sqlite")
    result = tune(
        found.fn, *found.args, budget_s=12.0, store=store, listener=events.append, policy=None
    )
    stages = list(dict.fromkeys(event.stage for event in events))
    assert stages.index("tasks") < stages.index("search") < stages.index("confirm")
    assert any("of the time" in event.message for event in events if event.stage == "tasks")
    assert result.verified


def test_a_number_of_evaluations_is_about_whole_programs(tmp_path, monkeypatch, clean_plugin):
    monkeypatch.setattr(by_tasks, "MIN_PROGRAM", 1)
    monkeypatch.setattr(by_tasks, "MIN_SECONDS", 0.0)
    found = captured("layernorm")
    events: list[Event] = []
    tune(
        found.fn, *found.args, budget_s=8.0, evaluations=1, policy=None,
        store=Store(tmp_path / "store.sqlite"), listener=events.append,
    )  # fmt: skip
    assert "tasks" not in {event.stage for event in events}
