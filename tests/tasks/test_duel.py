"""Duels: labels with intervals, of vectors that compute the same."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from support.captures import captured

from graphopt.costs.model import CostModel
from graphopt.measure.inputs import recorded_inputs
from graphopt.policy.alternatives.alternative import apply
from graphopt.policy.alternatives.table import alternatives
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.tasks import Duel, Duels, cut
from graphopt.tasks.duel import LOOK_NOISE, Look
from graphopt.tasks.inputs import Recorder
from graphopt.tasks.running import ModuleRunner


def test_looks_are_pooled_by_their_intervals():
    wide, narrow = Look(0.3, -0.3, 0.9, 9), Look(0.1, 0.09, 0.11, 9)
    duel = Duel("ok", (wide, narrow))
    assert 0.1 < duel.log_ratio < 0.12
    assert duel.low < duel.log_ratio < duel.high and duel.is_clear
    assert Duel("ok", (narrow,)).deviation >= LOOK_NOISE


def test_looks_that_differ_widen_the_interval():
    agreeing = Duel("ok", (Look(0.1, 0.09, 0.11, 9), Look(0.1, 0.09, 0.11, 9)))
    differing = Duel("ok", (Look(0.4, 0.39, 0.41, 9), Look(-0.2, -0.21, -0.19, 9)))
    assert agreeing.is_clear and not differing.is_clear
    assert differing.deviation > 5 * agreeing.deviation


def test_a_failure_has_no_label():
    duel = Duel("hang", detail="too slow")
    assert not duel.ok and not duel.is_clear and math.isnan(duel.log_ratio)


@pytest.mark.parametrize("name", ["scan_grad", "layernorm"])
def test_alternatives_of_tasks_compute_the_same(name):
    """Every kind of alternative compiles in a child process, to equal results."""
    found = captured(name)
    task = cut(found.graph)[0]
    compiled = jax.jit(found.fn).lower(*found.args).compile()
    with ModuleRunner() as run:
        recorder = Recorder(found.graph.source.module, recorded_inputs(compiled, found.args), run)
        (inputs,) = recorder.of([task])  # made-up ones may saturate, and magnify rounding
    start = heuristic_steps(task.graph, STEPS, CostModel(task.graph))
    table = alternatives(task.graph, program=False)
    offered = np.flatnonzero(table.available(table.flat(start)))[1:].tolist()
    by_kind = {table.rows[index].kind: index for index in offered}
    with Duels(task.data, inputs, look_s=0.001) as duels:
        for index in by_kind.values():
            duel = duels.duel(start, apply(start, [table.rows[index]]), looks=1, most=1)
            assert duel.ok, (table.rows[index].name, duel)
            assert duel.low <= duel.log_ratio <= duel.high and len(duel.looks) == 1
        assert duels.held == len(by_kind) > 1


def test_unclear_duels_are_looked_at_again():
    task = cut(captured("layernorm").graph)[0]
    with Duels(task.data, look_s=0.001) as duels:
        duel = duels.duel(task.graph.default, task.graph.default.copy(), looks=2, most=3)
    assert duel.ok and 2 <= len(duel.looks) <= 3
    assert duel.is_clear or len(duel.looks) == 3
