"""Commands and programs as the work of a request: what comes back is what they would have left here."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from support.processes import environment

from graphopt.errors import ConfigError
from graphopt.evaluate.commands import elsewhere
from graphopt.evaluate.evaluation.asking import ask_programs
from graphopt.evaluate.evaluation.plan import STORED, Plan
from graphopt.executing.executor import ExecutorError, LocalExecutor

EXPORT = ["tune", "--store", "store.sqlite", "--export", "winners.json"]


def test_commands_run_in_a_folder_of_their_own_and_send_files_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = {"commands": [EXPORT], "files": ["*.json"], "limit_s": 200.0}
    answer, blobs = elsewhere.run_commands(body, ())
    assert answer["status"] == 0 and "0 winners written" in answer["outputs"][0], answer["errors"]
    assert answer["files"] == ["winners.json"] and json.loads(blobs[0])["winners"] == []
    assert list(tmp_path.iterdir()) == []


def test_the_first_command_that_fails_is_the_last(monkeypatch):
    calls = []

    def run(command, **options):
        calls.append(command[-1])
        return SimpleNamespace(returncode=int(command[-1] == "bad"), stdout="out", stderr="why")

    monkeypatch.setattr(elsewhere.subprocess, "run", run)
    body = {"commands": [["good"], ["bad"], ["never"]], "files": [], "limit_s": 1.0}
    answer, blobs = elsewhere.run_commands(body, ())
    assert calls == ["good", "bad"] and blobs == ()
    assert answer == {"status": 1, "outputs": ["out", "out"], "errors": "why", "files": []}


def given_back(monkeypatch, body, blobs=()):
    """An executor whose machine answers so to every command."""
    monkeypatch.setattr(elsewhere, "open_executor", lambda spec: LocalExecutor())
    monkeypatch.setattr(elsewhere, "run_commands", lambda *_: (body, blobs))


def test_files_of_a_benchmark_come_back(tmp_path, monkeypatch, capsys):
    body = {"status": 0, "outputs": ["a table\n"], "errors": "", "files": ["bench/a/times.json"]}
    given_back(monkeypatch, body, (b"{}",))
    assert elsewhere.bench_elsewhere("ray:auto", "overhead", 1.0, ("p",), tmp_path / "out") == 0
    assert (tmp_path / "out" / "a" / "times.json").read_bytes() == b"{}"
    printed = capsys.readouterr()
    assert printed.out == "a table\n" and "run by" in printed.err


def test_what_a_command_says_when_it_fails(tmp_path, monkeypatch, capsys):
    given_back(
        monkeypatch, {"status": 2, "outputs": [""], "errors": "no such program", "files": []}
    )
    store = tmp_path / "store.sqlite"
    assert elsewhere.tune_elsewhere("ray:auto", "nothing", 1.0, 0, store, False, "") == 2
    assert "no such program" in capsys.readouterr().err


def test_a_command_that_cannot_run_is_an_error(monkeypatch):
    def broken(body, blobs):
        raise OSError("no space left")

    given_back(monkeypatch, {})
    monkeypatch.setattr(elsewhere, "run_commands", broken)
    with pytest.raises(ExecutorError, match="no space left"):
        elsewhere.run_elsewhere("ray:auto", [["bench"]], [], 1.0)


def test_a_program_is_evaluated_by_a_request(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    plan = Plan(
        "support.evaluated:WORKLOADS", ("unbuildable",), "heuristic", 0.0, 0, None, tmp_path
    )
    (found,) = ask_programs(
        "local", {"unbuildable": plan.body("unbuildable")}, None, tmp_path / "s"
    )
    name, row = found
    assert name == row["name"] == "unbuildable" and row["status"].startswith("failed: ")
    assert row["place"]


def test_a_request_that_fails_is_a_row(tmp_path):
    (found,) = ask_programs("local", {"p": {"name": "p", "nonsense": 1}}, None, tmp_path / "s")
    assert found[0] == "p" and found[1]["status"].startswith("failed: TypeError")


def test_executors_are_checked_before_anything_is_asked(tmp_path):
    plan = Plan("support.evaluated:WORKLOADS", (), STORED, 0.0, 0, None, tmp_path, executor="slurm")
    with pytest.raises(ConfigError, match="there is no executor"):
        list(ask_programs(plan.executor, {}, None, plan.store_path))
