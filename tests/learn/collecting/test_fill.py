"""Filling the store: good and bad decisions are measured, nothing twice, and a run goes on where it was."""

import math

import numpy as np
import pytest

from graphopt.corpus.demo import DEMO
from graphopt.errors import ConfigError
from graphopt.learn.collecting.command import FillPlan, Log
from graphopt.learn.collecting.fill import Filled, fill_problem
from graphopt.learn.collecting.problems import from_programs
from graphopt.learn.collecting.scorers import Bench
from graphopt.store import Store
from graphopt.store.kernels import all_kernels
from graphopt.store.winners import outcomes, put_evaluation, put_quarantine


@pytest.mark.slow
def test_a_program_adds_whole_module_times_and_kernels_and_nothing_twice(tmp_path):
    store = Store(tmp_path / "bank.sqlite")
    problem = next(from_programs([DEMO["layernorm"]]))
    with Bench(store, workers=1) as bench:
        first = fill_problem(problem, bench, 0.01, 0)
        before = {text for text, _ in outcomes(store, problem.graph.fingerprint)}
        second = fill_problem(problem, bench, 0.01, 0)
    after = {text for text, _ in outcomes(store, problem.graph.fingerprint)}
    assert first.note == second.note == ""
    assert first.vectors >= 1 and first.kernels >= 1
    assert len(after) == len(before) + second.vectors
    assert all_kernels(store)
    assert first.worst <= first.best


def test_outcomes_hold_failures_and_what_is_quarantined_since(tmp_path):
    store = Store(tmp_path / "bank.sqlite")
    put_evaluation(store, "f", '{"a": 1}', 1.5, "ok", "m")
    put_evaluation(store, "f", '{"a": 2}', None, "abort", "m")
    put_evaluation(store, "f", '{"a": 3}', 2.0, "ok", "m")
    put_quarantine(store, "f", '{"a": 3}', "wrong result")
    found = {text: math.nan if r is None else r for text, r in outcomes(store, "f")}
    assert found['{"a": 1}'] == 1.5
    assert np.isnan(found['{"a": 2}']) and np.isnan(found['{"a": 3}'])


def test_the_log_finds_the_first_round_with_programs_left(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    assert log.first_open_round(["a", "b"]) == 0
    log.add(0, "a", Filled("a"))
    log.add(0, "b", Filled("b"))
    log.add(1, "a", Filled("a"))
    with log.path.open("a") as file:
        file.write('{"round": 1, "prog')  # killed while writing
    again = Log(tmp_path / "log.jsonl")
    assert again.first_open_round(["a", "b"]) == 1
    assert (1, "b") not in again.done
    assert again.first_open_round(["a", "b", "c"]) == 0


def test_held_out_programs_are_refused():
    with pytest.raises(ConfigError):
        FillPlan(("held-out",), (), 1.0, None, 0, 100)
    with pytest.raises(ConfigError):
        FillPlan(("train",), (), 0.0, None, 0, 100)
