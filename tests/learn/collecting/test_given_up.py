"""Whatever dies while a run collects: nothing is passed over in silence, and the same command goes on."""

from __future__ import annotations

import functools
import io
import json
import sys

import pytest
from rich.console import Console
from support.fleet import Disturbed
from support.shared import shared

from benchmarks.faults import GOOD_ANSWER
from graphopt.errors import MeasureError, UnsupportedModuleError
from graphopt.executing.request import FAILED, LOST
from graphopt.learn.collecting import asking, collect_session
from graphopt.learn.collecting.asking import PASSES
from graphopt.learn.collecting.circumstances import may_pass
from graphopt.learn.collecting.collect import CollectPlan
from graphopt.learn.collecting.command import FillPlan
from graphopt.learn.collecting.duelling import Collector
from graphopt.measure.children.child import Child, ChildFailure
from graphopt.measure.children.runner import Runner
from graphopt.tasks.parts import read_parts

SINGLES = 5

WORKER = """
import json, os, signal, sys
from pathlib import Path
good, place, times, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
def die(here):
    deaths = len(list(folder.glob("death*")))
    if here == place and deaths < times:
        (folder / f"death{deaths}").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
die("start")
print('{"status": "ok"}', flush=True)
for line in sys.stdin:
    die("duel")
    print(good, flush=True)
"""
"""A fake worker that dies so many times in all at one place, and answers well otherwise."""


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    """Few experiments per task, measured by a worker that never dies; a lock of its own."""
    monkeypatch.setenv("GRAPHOPT_COLLECT_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(
        Collector, "singles", lambda self, whole=Collector.singles: whole(self)[:SINGLES]
    )
    worker_dies(monkeypatch, tmp_path, "", 0)


def worker_dies(monkeypatch, tmp_path, place, times):
    folder = tmp_path / f"deaths-{place}"
    folder.mkdir(exist_ok=True)
    command = ("-c", WORKER, json.dumps(GOOD_ANSWER), place, f"{times}", str(folder))
    monkeypatch.setattr("graphopt.tasks.duel.Runner", functools.partial(Runner, worker=command))


def collected(tmp_path, executor=None, monkeypatch=None):
    """Exit status of a run and what it printed."""
    if executor is not None:
        monkeypatch.setattr(collect_session, "open_executor", lambda spec: executor)
    console = Console(file=io.StringIO(), width=200)
    plan = CollectPlan(
        FillPlan(("fuzz",), ("shared_zeros",), 1000.0, None, 0, 400), tmp_path / "out", 0.25
    )
    status = collect_session.collect_session(plan, console)
    return status, console.file.getvalue()


def found(tmp_path):
    """All duels of all parts by key; each is there once."""
    rows = [row for part in read_parts(tmp_path / "out") for row in part.duels]
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row for row in rows}


def tasks_of(rows):
    return {row["task"] for row in rows.values()}


@pytest.fixture
def whole(tmp_path, tmp_path_factory):
    """Keys of the duels that nobody disturbs."""

    def make():
        folder = tmp_path_factory.mktemp("whole")
        status, _ = collected(folder)
        rows = found(folder)
        assert status == 0 and len(rows) > SINGLES
        return set(rows)

    return shared("given-up-whole", make)


def test_a_child_that_dies_while_a_task_is_prepared_is_asked_again(tmp_path, monkeypatch, whole):
    worker_dies(monkeypatch, tmp_path, "start", 1)
    status, _ = collected(tmp_path)
    assert status == 0 and set(found(tmp_path)) == whole


def test_a_child_that_dies_at_every_start_is_given_up_by_name(tmp_path, monkeypatch, whole):
    worker_dies(monkeypatch, tmp_path, "start", sys.maxsize)
    status, text = collected(tmp_path)
    assert status == 1 and not (tmp_path / "out" / "README.md").exists()
    assert "given up: shared_zeros" in text and "SIGKILL" in text
    deaths = len(list((tmp_path / "deaths-start").iterdir()))
    assert deaths >= PASSES
    worker_dies(monkeypatch, tmp_path, "", 0)
    status, _ = collected(tmp_path)
    assert status == 0 and set(found(tmp_path)) == whole


def test_a_child_that_dies_in_a_duel_is_a_result(tmp_path, monkeypatch, whole):
    worker_dies(monkeypatch, tmp_path, "duel", 1)
    status, _ = collected(tmp_path)
    rows = found(tmp_path)
    singles = {key for key, row in rows.items() if row["kind"] != "together"}
    assert (
        status == 0
        and singles <= whole
        and len(singles) >= len(whole) - len(rows) + len(singles) - 1
    )
    assert len(singles) + len(tasks_of(rows)) >= len(whole)
    assert [row["status"] for row in rows.values()].count("memory") == 1


@pytest.mark.parametrize(("times", "inputs"), [(1, "recorded"), (sys.maxsize, "made up")])
def test_a_child_that_dies_while_inputs_are_recorded(tmp_path, monkeypatch, whole, times, inputs):
    deaths = []

    def child(arguments, name):
        if len(deaths) < times:
            deaths.append(name)
            return Child(["-c", "import os; os.abort()"], name)
        return Child(arguments, name)

    monkeypatch.setattr("graphopt.tasks.running.Child", child)
    status, _ = collected(tmp_path)
    assert status == 0 and set(found(tmp_path)) == whole and deaths
    assert {row["inputs"] for part in read_parts(tmp_path / "out") for row in part.tasks} == {
        inputs
    }


def test_a_lost_request_is_asked_again_duel_by_duel(tmp_path, monkeypatch, whole):
    executor = Disturbed(lambda request: LOST if len(request.body["pairs"]) > 1 else None)
    status, _ = collected(tmp_path, executor, monkeypatch)
    assert status == 0 and set(found(tmp_path)) == whole
    assert {size for size, lost in executor.asked if lost is None} == {1}


def test_a_duel_that_is_lost_each_time_is_given_up_alone(tmp_path, monkeypatch, whole):
    victims = []

    def disturb(request):
        pairs = request.body["pairs"]
        victims.extend([] if victims else pairs[:1])
        return LOST if victims[0] in pairs else None

    executor = Disturbed(disturb)
    status, text = collected(tmp_path, executor, monkeypatch)
    assert status == 1 and "1 given up" in text
    rows = found(tmp_path)
    missing = whole - set(rows)
    assert set(rows) < whole, "what gains together is not guessed while one duel is missing"
    assert len(missing) <= 2 and len({json.loads(key)[0] for key in missing}) == 1
    assert sum(lost == LOST and size == 1 for size, lost in executor.asked) == PASSES
    executor.disturb = lambda request: None
    status, _ = collected(tmp_path, executor, monkeypatch)
    assert status == 0 and set(found(tmp_path)) == whole


def test_a_request_that_failed_once_is_asked_again(tmp_path, monkeypatch, whole):
    failures = iter([FAILED])
    executor = Disturbed(lambda request: next(failures, None))
    status, _ = collected(tmp_path, executor, monkeypatch)
    assert status == 0 and set(found(tmp_path)) == whole


@pytest.mark.parametrize("where", ["Recorder", "build_graph", "problems_of"])
@pytest.mark.parametrize("error", [MemoryError("no room"), KeyError("a mistake of ours")])
def test_an_error_while_a_program_is_prepared(tmp_path, monkeypatch, whole, where, error):
    real, raised = getattr(asking, where), []

    def once(*arguments, **options):
        if not raised:
            raised.append(where)
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(asking, where, once)
    status, _ = collected(tmp_path)
    assert status == 0 and raised and set(found(tmp_path)) == whole

    def always(*arguments, **options):
        raise error

    monkeypatch.setattr(asking, where, always)
    status, text = collected(tmp_path / "again")
    assert status == 1 and "given up: shared_zeros" in text


def test_a_program_that_cannot_be_measured_is_no_failure_of_the_run(tmp_path, monkeypatch):
    def refused(*arguments, **options):
        raise UnsupportedModuleError(what="no such thing", where="here", fix="none", rule="r")

    monkeypatch.setattr(asking, "build_graph", refused)
    status, text = collected(tmp_path)
    assert (
        status == 0 and "left out: shared_zeros: no such thing" in text and "given up" not in text
    )


def test_what_may_pass():
    child = ChildFailure(what="died", where="here", fix="none", kind="abort", detail="")
    measure = MeasureError(what="cannot", where="here", fix="none")
    assert may_pass(child) and not may_pass(measure)
    measure.__cause__ = child
    assert may_pass(measure)
    assert may_pass(OSError(28, "no space")) and not may_pass(OSError(2, "no such file"))
    assert not may_pass(ValueError("wrong"))


def test_a_run_that_died_after_it_had_written_its_part_does_not_write_it_again(
    tmp_path, monkeypatch
):
    unlinked = []
    monkeypatch.setattr(
        "graphopt.learn.collecting.collect.Path.unlink",
        lambda self, **_: unlinked.append(self.name),
    )
    assert collected(tmp_path)[0] == 0
    assert "collecting.jsonl" in unlinked
    monkeypatch.undo()
    monkeypatch.setenv("GRAPHOPT_COLLECT_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(
        Collector, "singles", lambda self, whole=Collector.singles: whole(self)[:SINGLES]
    )
    parts = list((tmp_path / "out").glob("*.zip"))
    assert collected(tmp_path)[0] == 0
    assert list((tmp_path / "out").glob("*.zip")) == parts
    assert not (tmp_path / "out" / "collecting.jsonl").exists()
    assert found(tmp_path)
