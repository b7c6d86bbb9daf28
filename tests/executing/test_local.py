"""The seam on this machine: every request is answered once, in order, and errors are answers."""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fleet import numbered

from graphopt.errors import ConfigError
from graphopt.executing.executor import ExecutorError, LocalExecutor, own_needs
from graphopt.executing.opening import open_executor
from graphopt.executing.request import Answer, Needs, Request
from graphopt.executing.work import WORK, resolve


def test_answers_come_in_order_and_equal_requests_once(caplog):
    caplog.set_level(logging.INFO, "graphopt.executing")
    with open_executor() as executor:
        assert executor.hungry
        for number in (1, 2, 1):
            executor.submit(numbered(number, own_needs()))
        assert not executor.hungry
        answers = list(executor.results())
    assert [a.body["number"] for a in answers] == [1, 2] and all(a.ok for a in answers)
    assert {a.body["pid"] for a in answers} == {os.getpid()}
    assert executor.place in caplog.text  # the log says which machine measured what


def test_more_may_be_submitted_while_answers_come():
    executor = LocalExecutor()
    executor.submit(numbered(0))
    seen = []
    for answer in executor.results():
        seen.append(answer.body["number"])
        if len(seen) < 3:
            executor.submit(numbered(len(seen)))
    assert seen == [0, 1, 2]


def test_what_has_not_begun_can_be_dropped():
    executor = LocalExecutor()
    for number in range(4):
        executor.submit(numbered(number))
    executor.drop(lambda request: request.body["number"] % 2 == 0)
    assert [a.body["number"] for a in executor.results()] == [1, 3]
    executor.submit(numbered(5))
    executor.close()
    assert list(executor.results()) == []


def test_an_error_of_the_work_is_its_answer():
    executor = LocalExecutor()
    executor.submit(numbered(1, fails=True))
    executor.submit(Request("nowhere:nothing", {}))
    failed, unknown = executor.results()
    assert (failed.status, failed.detail) == ("failed", "ValueError: it cannot be measured")
    assert unknown.status == "failed" and "there is no work" in unknown.detail


def test_flags_hold_while_the_work_is_done(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_before=1")
    executor = LocalExecutor()
    executor.submit(numbered(1, Needs(flags="--xla_cpu_enable_fast_math=true")))
    executor.submit(numbered(2))
    assert [a.body["flags"] for a in executor.results()] == [
        "--xla_cpu_enable_fast_math=true",
        "--xla_before=1",
    ]
    assert os.environ["XLA_FLAGS"] == "--xla_before=1"


@pytest.mark.parametrize("needs", [Needs(machine="other"), Needs(jaxlib="0.0.1")])
def test_this_machine_answers_only_for_its_kind(needs):
    with pytest.raises(ExecutorError, match="asks for machine"):
        LocalExecutor().submit(numbered(1, needs))


@pytest.mark.parametrize("spec", ["", "ray", "ray:", "slurm", "Local"])
def test_executors_that_there_are_not(spec):
    with pytest.raises(ConfigError, match="there is no executor"):
        open_executor(spec)


def test_every_kind_of_work_is_there():
    assert all(callable(resolve(name)) for name in WORK)


values = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
numbers = st.floats(allow_nan=False, allow_infinity=False)
bodies = st.dictionaries(st.text(max_size=3), values | st.lists(numbers, max_size=2), max_size=3)


@given(bodies, st.lists(st.binary(max_size=4), max_size=2))
def test_equal_requests_have_equal_ids(body, blobs):
    one = Request("work", body, tuple(blobs))
    assert one.id == Request("work", dict(reversed(body.items())), tuple(blobs), label="x").id
    assert one.id != Request("work", body, (*blobs, b"")).id
    assert one.id != Request("work", body, tuple(blobs), Needs(flags="--f")).id
    assert one.id != Request("other", body, tuple(blobs)).id


def test_blobs_do_not_run_into_each_other():
    assert Request("w", {}, (b"ab", b"c")).id != Request("w", {}, (b"a", b"bc")).id


@pytest.mark.parametrize("body", [{"x": float("nan")}, {"x": b"bytes"}, {"x": {1, 2}}])
def test_a_body_is_json(body):
    with pytest.raises(ConfigError, match="no JSON"):
        Request("work", body)


def test_an_answer_has_a_status():
    with pytest.raises(ConfigError, match="status 'done'"):
        Answer("id", "done")
