"""Collecting: every duel is noted at once, nothing is measured twice, parts hold everything."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console
from support.captures import captured

from graphopt.errors import ConfigError, StoreError
from graphopt.hlo import build_graph
from graphopt.learn.collecting.collect import JOURNAL, CollectPlan, Notes, alone, machine_lock
from graphopt.learn.collecting.collect_session import collect_session
from graphopt.learn.collecting.command import FillPlan
from graphopt.learn.collecting.duelling import Collector
from graphopt.store import decode_decisions
from graphopt.tasks import cut
from graphopt.tasks.parts import SUFFIX, provenance, read_part, read_parts, write_part


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_COLLECT_LOCK", str(tmp_path / "lock"))


def plan(folder, budget_s=1000.0, names=("shared_zeros",), share=0.25):
    return CollectPlan(FillPlan(("fuzz",), names, budget_s, None, 0, 400), folder, share)


def quiet():
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHOPT_COLLECT_LOCK", str(folder / "lock"))
        patch.setattr("graphopt.tasks.duel.LOOK_S", 0.001)
        patch.setattr(Collector, "singles", lambda self, whole=Collector.singles: whole(self)[:5])
        assert collect_session(plan(folder), quiet()) == 0
    return folder


def test_a_part_holds_tasks_and_duels_and_where_they_come_from(collected):
    (part,) = read_parts(collected)
    assert part.card["machine"] == provenance()["machine"] and part.card["jaxlib"]
    assert part.card["duels"] == len(part.duels) > 5
    assert part.card["tasks"] == len(part.tasks) == len({row["task"] for row in part.tasks}) > 0
    tasks = {row["task"]: row for row in part.tasks}
    for row in part.tasks:
        graph = build_graph(part.module(row), allow_donation=True)
        assert graph.fingerprint == row["task"] and row["inputs"] == "recorded"
        decode_decisions(graph, row["heuristic"])
    assert {row["rival"] for row in part.duels} <= {"heuristic", "default"}
    for row in part.duels:
        assert row["task"] in tasks and row["edits"]
        assert row["status"] == "ok"
        assert row["low"] <= row["log_ratio"] <= row["high"] and len(row["looks"]) >= 2
    assert not (collected / JOURNAL).exists() and (collected / "README.md").exists()


def test_the_same_command_measures_nothing_again(collected, monkeypatch):
    monkeypatch.setattr(Collector, "singles", lambda self, whole=Collector.singles: whole(self)[:5])
    assert collect_session(plan(collected), quiet()) == 0
    assert len(list(collected.glob(f"*{SUFFIX}"))) == 1


def test_what_a_killed_run_left_becomes_a_part(tmp_path):
    (task, *_) = cut(captured("scan_grad").graph)
    notes = Notes(tmp_path)
    collector = Collector(task)
    notes.note_task(collector.row("scan_grad", "scan", True), task.data)
    notes.note_duel({"task": task.fingerprint, "key": "a", "status": "ok"})
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"duel row": {"tas')
    path = Notes(tmp_path).finish()
    part = read_part(path)
    assert part.module(part.tasks[0]) == task.data and len(part.duels) == 1
    assert Notes(tmp_path).known == {"a"}


def test_an_interrupted_run_keeps_what_it_measured(tmp_path, monkeypatch):
    def interrupted(plan, notes, tell, executor):
        notes.note_duel({"task": "t", "key": "k", "status": "ok"})
        raise KeyboardInterrupt

    monkeypatch.setattr("graphopt.learn.collecting.collect_session.collect", interrupted)
    assert collect_session(plan(tmp_path), quiet()) == 130
    (part,) = read_parts(tmp_path)
    assert [row["key"] for row in part.duels] == ["k"]


def test_experiments_differ_and_include_the_heuristic():
    (task, *_) = cut(captured("scan_grad").graph)
    collector = Collector(task)
    singles = collector.singles()
    assert singles[0].kind == "heuristic" and singles[0].rival == "default"
    assert len({collector.key(e) for e in singles}) == len(singles)
    json.loads(collector.key(singles[0]))


def test_gains_that_do_not_overlap_are_tried_together():
    collector = Collector(cut(captured("adam_step").graph)[0])
    singles = [e for e in collector.singles() if e.rival == "heuristic"]
    assert collector.together({collector.key(singles[0]): 0.1}) is None
    first = singles[0]
    rest = next(e for e in singles if not {x[:2] for x in e.edits} & {x[:2] for x in first.edits})
    gains = {collector.key(rest): 0.1, collector.key(first): 0.3}
    both = collector.together(gains)
    assert set(both.edits) == {*first.edits, *rest.edits}
    gains |= {collector.key(e): 0.05 for e in singles if e.edits[0][:2] == first.edits[0][:2]}
    gains[collector.key(first)] = 0.3
    clash = collector.together(gains)
    assert {*first.edits} <= set(clash.edits)


def test_two_runs_do_not_measure_at_once(tmp_path):
    script = (
        "from graphopt.learn.collecting.collect import alone, machine_lock\n"
        "try:\n    with alone(machine_lock()): print('in')\nexcept Exception as e: print(type(e).__name__)"
    )
    with alone(machine_lock()):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "StoreError", done.stderr
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "in", done.stderr


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="least share"):
        collect_session(plan(tmp_path, share=2.0), quiet())
    with pytest.raises(ConfigError, match="held-out"):
        FillPlan(("held-out",), (), 1.0, None, 0, 400)


def test_damaged_parts_are_named(tmp_path):
    path = write_part(tmp_path, {"machine": "m"}, [({"task": "t"}, b"abc")], [])
    assert read_part(path).module(read_part(path).tasks[0]) == b"abc"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StoreError, match="cannot be read"):
        list(read_parts(tmp_path))
