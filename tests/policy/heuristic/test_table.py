"""The heuristic's table: order, names, thresholds, records, its page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.captures import capture, captured, normal
from support.loops import kernel_by_kernel
from support.stepping import loop

from graphopt.errors import PolicyError
from graphopt.policy import resolve
from graphopt.policy.heuristic import steps as table
from graphopt.policy.heuristic.steps import STEPS, TABLE, check_table, decide, heuristic_steps
from graphopt.policy.heuristic_page import page


def test_a_step_that_stands_above_what_it_builds_on_is_refused():
    with pytest.raises(PolicyError, match="needs short loops above it"):
        check_table((*TABLE[1:], TABLE[0]))


def test_a_name_may_stand_only_once():
    with pytest.raises(PolicyError, match="is there twice"):
        check_table((*TABLE, TABLE[0]))


def test_a_misspelt_step_is_an_error():
    graph = captured("cartpole_rollout").graph
    with pytest.raises(PolicyError, match="there is no step 'nativ loops'"):
        heuristic_steps(graph, ["nativ loops"])


def test_an_edit_that_saves_less_than_its_threshold_is_not_made(monkeypatch):
    graph = kernel_by_kernel(capture(loop, normal(64))).graph
    assert [record.step for record in decide(graph, ["native loops"]).steps] == ["native loops"]
    strict = [replace(step, min_saved_ns=1e12, min_saved_share=0.0) for step in TABLE]
    monkeypatch.setattr(table, "TABLE", tuple(strict))
    decided = decide(graph, ["native loops"])
    assert decided.steps == () and decided.decisions.same_as(graph.default)


@pytest.mark.parametrize("policy", ["heuristic", "shipped"])
def test_policies_name_the_steps_behind_their_decisions(policy):
    choose = resolve(policy).choose
    assert choose is not None
    choice = choose(kernel_by_kernel(capture(loop, normal(64))).graph)
    assert choice is not None
    assert "native loops" in [record.step for record in choice.steps]
    assert all(record.edit.nodes > 0 and record.edit.reason for record in choice.steps)


def with_a_defect(monkeypatch, name):
    """The table with one step that raises."""

    def fails(context):
        raise IndexError("of the step")

    rows = tuple(replace(step, apply=fails) if step.name == name else step for step in TABLE)
    monkeypatch.setattr(table, "TABLE", rows)


def test_a_step_that_raises_costs_only_itself(monkeypatch):
    graph = capture(loop, normal(64)).graph
    with_a_defect(monkeypatch, "reductions")
    others = [s for s in STEPS if s != "reductions"]
    expected = heuristic_steps(graph, others)
    with pytest.raises(IndexError):
        decide(graph)
    decided = decide(graph, tolerant=True)
    assert decided.failed == ("reductions: IndexError: of the step",)
    assert decided.decisions.same_as(expected)


@pytest.mark.parametrize("policy", ["heuristic", "shipped"])
def test_policies_say_which_step_raised(policy, monkeypatch):
    graph = capture(loop, normal(64)).graph
    with_a_defect(monkeypatch, "native loops")
    choice = resolve(policy).choose(graph)
    assert choice.failed == ("native loops: IndexError: of the step",)
    graph.masks.check(choice.decisions)


def test_every_step_is_one_module_of_its_name():
    for step in TABLE:
        assert step.apply.__module__.rsplit(".", 1)[1] == step.name.replace(" ", "_")


def test_every_judgement_has_a_unit_and_a_meaning():
    rows = [row for step in TABLE for row in step.thresholds()]
    assert len(rows) > 20
    assert all(unit and meaning for _, _, unit, meaning in rows)


def test_the_page_is_the_tables():
    written = page()
    assert all(f"{n}. {name}" in written for n, name in enumerate(STEPS, 1))
