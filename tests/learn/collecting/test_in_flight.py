"""Tasks on their way through an executor: what is asked, in which order, and when a task is left."""

from __future__ import annotations

import numpy as np
import pytest
from support.captures import captured

from graphopt.errors import MeasureError
from graphopt.executing.executor import ExecutorError
from graphopt.executing.request import FAILED, OK, Answer, Needs
from graphopt.learn.collecting import warm
from graphopt.learn.collecting.duel_requests import GIVE_UP, UNMEASURABLE, held, hold
from graphopt.learn.collecting.duelling import Collector
from graphopt.learn.collecting.in_flight import TaskRun
from graphopt.learn.collecting.warm import WARM, packed_inputs
from graphopt.tasks import cut
from graphopt.tasks.duel import Duel, Look

GAIN = {
    "status": "ok", "looks": [{"log_ratio": 0.5, "low": 0.49, "high": 0.51, "pairs": 5}] * 2,
    "seconds": 1e-3, "rival_s": 2e-3, "compile_s": 0.1, "error": 0.0, "detail": "",
}  # fmt: skip
ABORT = {"status": "abort", "detail": "SIGSEGV"}


@pytest.fixture(scope="module")
def collector():
    return Collector(cut(captured("adam_step").graph)[0])


def run_of(collector, known=lambda key: False, gains=None):
    return TaskRun("adam", collector, (), Needs(), known, {} if gains is None else gains)


def answer(request, row):
    rows = [row] * len(request.body["pairs"])
    return Answer(request.id, OK, {"duels": rows})


def test_singles_come_first_and_gains_together_last(collector):
    gains = {}
    run = run_of(collector, gains=gains)
    requests = list(run.singles(3))
    sizes = [len(r.body["pairs"]) for r in requests]
    assert sum(sizes) == len(collector.singles()) and set(sizes[:-1]) == {3}
    rows = []
    for request in requests:
        assert run.together() is None and run.outstanding
        rows += run.take(answer(request, GAIN))
    gains.update((row["key"], row["log_ratio"]) for row in rows)
    assert [row["key"] for row in rows] == [collector.key(e) for e in collector.singles()]
    last = run.together()
    (row,) = run.take(answer(last, GAIN))
    assert row["kind"] == "together" and not run.outstanding
    assert run.together() is None


def test_known_duels_are_not_asked_for(collector):
    keys = [collector.key(e) for e in collector.singles()]
    run = run_of(collector, known=lambda key: key != keys[1])
    (request,) = run.singles(8)
    assert run.keys(request) == [keys[1]]
    assert run.forget(request) == [keys[1]] and not run.outstanding


def test_what_an_earlier_run_left_undone_is_the_duel_of_all_gains(collector):
    keys = {collector.key(e) for e in collector.singles()}
    gains = dict.fromkeys(keys, 0.5)
    known = set(keys)
    assert collector.is_open(known.__contains__, gains)
    run = run_of(collector, known.__contains__, gains)
    assert list(run.singles(8)) == []
    last = run.together()
    known.update(run.keys(last))
    assert not collector.is_open(known.__contains__, gains)
    assert not collector.is_open(keys.__contains__, {})


def test_a_task_is_left_after_fatal_vectors_in_a_row(collector):
    run = run_of(collector)
    first, *rest = run.singles(1)
    run.take(answer(first, GAIN))
    for number, request in enumerate(rest[:GIVE_UP]):
        assert not run.left, number
        run.take(answer(request, ABORT))
    assert run.left and run.together() is None


def test_what_an_answer_may_say():
    (duel,) = held(Answer("id", OK, {"duels": [GAIN]}))
    assert duel == Duel(**{**GAIN, "looks": tuple(Look(**look) for look in GAIN["looks"])})
    assert held(Answer("id", OK, {"duels": [ABORT]}))[0].detail == "SIGSEGV"
    with pytest.raises(MeasureError, match="no place"):
        held(Answer("id", OK, {UNMEASURABLE: "it has no place"}))
    with pytest.raises(ExecutorError, match="the disk is full"):
        held(Answer("id", FAILED, detail="the disk is full"))


class Dying:
    """Duels whose every vector aborts."""

    def __init__(self, data, inputs):
        self.inputs = inputs
        self.graph = captured("adam_step").graph

    def duel(self, rival, decisions):
        return Duel("abort", detail="SIGSEGV")

    def close(self):
        pass


def test_the_work_stops_where_the_task_is_left(monkeypatch):
    made = []
    monkeypatch.setattr(warm, "Duels", lambda *a: made.append(Dying(*a)) or made[-1])
    inputs = [np.arange(3.0, dtype=np.float32)]
    blobs = (b"module", *packed_inputs(inputs))
    body, _ = hold({"pairs": [["{}", "{}"]] * 5}, blobs)
    assert [row["status"] for row in body["duels"]] == ["abort"] * GIVE_UP
    hold({"pairs": []}, blobs)
    assert len(made) == 1, "the child of the last task is still there"
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    hold({"pairs": []}, blobs)
    assert len(made) == 2, "other flags need another child"
    np.testing.assert_array_equal(made[0].inputs[0], inputs[0])
    WARM.close()
