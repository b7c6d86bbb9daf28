"""The ``graphopt`` command: options arrive, errors are one line, exit statuses mean something."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from support.processes import environment, run_python

import graphopt
from graphopt import cli
from graphopt.cli import main
from graphopt.evaluate.commands.demo import run_demo
from graphopt.evaluate.commands.run import run_script
from graphopt.evaluate.commands.tune import run_tune
from graphopt.policy.registry import DEFAULT

COMMANDS = (
    "demo", "fill", "collect", "ship", "tune", "evaluate", "fuzz", "capture", "corpus", "explain", "bench",
    "doctor", "store", "queue", "fleet", "advantages",
)  # fmt: skip


@pytest.fixture
def workloads(tmp_path: Path, monkeypatch):
    """A module with good and bad programs in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    code = """
        import jax.numpy as jnp
        import numpy as np

        def wave():
            return (lambda x: jnp.sin(x) * x + jnp.cos(x) * 2 + jnp.exp(-x)), (np.ones(8),)

        def unbuildable():
            raise OSError("no such data set")

        def rubbish():
            return 3

        WAVES = {"wave": wave}
        NAMED = {"My Wave": wave}
        UNBUILDABLE = {"unbuildable": unbuildable}
        RUBBISH = {"rubbish": rubbish}
        EMPTY = {}
    """
    (tmp_path / "some_workloads.py").write_text(textwrap.dedent(code))
    yield
    sys.modules.pop("some_workloads", None)


# Defaults.


def test_every_command_and_function_has_the_same_policy_by_default():
    functions = (
        graphopt.install,
        graphopt.tune,
        graphopt.explain,
        run_demo,
        run_tune,
        run_script,
    )
    defaults = {
        function.__name__: inspect.signature(function).parameters["policy"].default
        for function in functions
    }
    for command in get_args(cli.Commands):
        fields = {field.name: field.default for field in dataclasses.fields(command)}
        if "policy" in fields:
            defaults[command.__name__] = fields["policy"]
    assert {"Demo", "Evaluate", "Explain", "Tune"} < set(defaults)
    assert set(defaults.values()) == {DEFAULT}, defaults


# Help.


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    output = capsys.readouterr().out
    assert f"usage: graphopt {command}" in output


def test_the_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    output = capsys.readouterr().out
    classes = {command.__name__.lower() for command in get_args(cli.Commands)}
    assert classes == {*COMMANDS, "run", "train"}
    for command in sorted(classes):
        assert re.search(rf"\b{command}\b", output), f"{command} is not listed"


def test_python_m_graphopt_is_the_command():
    done = run_python("-m", "graphopt", "--help")
    assert done.returncode == 0, done.stderr
    assert "usage: graphopt" in done.stdout


# Errors.


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["fuzz", "--no-such-option"], ["fuzz", "--trials", "many"], ["capture"]],
    ids=" ".join,
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err != ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fuzz --graphs nonsense", "nonsense"),
        ("fuzz --workloads nonsense", "nonsense"),
        ("fuzz --workloads no_such_module:WORKLOADS", "no_such_module"),
        ("fuzz --workloads some_workloads:EMPTY", "EMPTY"),
        ("fuzz --graphs fibonacci --trials 1 --workers 0", "workers"),
        ("demo --graphs nonsense", "nonsense"),
        ("demo --workloads nonsense", "nonsense"),
        ("demo --workloads some_workloads:EMPTY", "EMPTY"),
        ("demo --workloads some_workloads:RUBBISH", "rubbish"),
        ("demo --workloads some_workloads:WAVES --policy nonsense", "nonsense"),
        ("capture nonsense", "nonsense"),
        ("capture some_workloads:nonsense", "nonsense"),
        ("capture some_workloads:rubbish", "rubbish"),
        ("capture some_workloads:WAVES", "WAVES"),
        ("bench nonsense", "nonsense"),
        ("run no_such_script.py", "no_such_script.py"),
    ],
)
def test_errors_are_one_line_on_stderr(workloads, capsys, command, message):
    assert main(command.split()) == 2
    errors = capsys.readouterr().err
    (line,) = (line for line in errors.splitlines() if line.startswith("graphopt: "))
    assert message in line
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "command", ["capture some_workloads:unbuildable", "demo --workloads some_workloads:UNBUILDABLE"]
)
def test_a_program_that_raises_shows_its_own_traceback_first(workloads, capsys, command):
    assert main(command.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    (place,) = (line for line in lines if "File " in line)
    assert "some_workloads.py" in place and place.endswith("in unbuildable")
    assert lines[-2] == "OSError: no such data set"
    assert lines[-1].startswith("graphopt: ") and "cannot be built" in lines[-1]


def test_the_exit_status_reaches_the_shell(tmp_path):
    done = run_python("-m", "graphopt", "capture", "nonsense", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("graphopt: nonsense ")
    assert done.stdout == ""


def test_a_place_for_results_that_does_not_exist(workloads, tmp_path, capsys):
    out = tmp_path / "new" / "rows.json"
    command = "demo --workloads some_workloads:WAVES --budget-s 0.1 --out"
    # Refused before anything is measured: results must not be lost after it.
    assert main([*command.split(), str(out)]) == 2
    captured = capsys.readouterr()
    assert "there is no folder" in captured.err and not captured.out
    out.parent.mkdir()
    assert main([*command.split(), str(out)]) == 0
    assert [row["name"] for row in json.loads(out.read_text())] == ["wave"]


def test_an_interrupt(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("graphopt.evaluate.commands.doctor.diagnose", interrupted)
    assert main(["doctor"]) == 130


def test_a_defect_is_not_hidden(monkeypatch):
    def defect():
        raise RuntimeError("a defect")

    monkeypatch.setattr("graphopt.evaluate.commands.doctor.diagnose", defect)
    with pytest.raises(RuntimeError, match="a defect"):
        main(["doctor"])


def test_a_closed_pipe_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "graphopt", "capture", "knapsack", "--hlo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 0, errors
    assert errors == ""


# What the commands do.


@pytest.fixture
def calls(monkeypatch):
    """Replaces a function by one that returns a value; collects its arguments by their names."""

    def replace(module: str, name: str, result: object) -> list[dict[str, object]]:
        seen: list[dict[str, object]] = []
        signature = inspect.signature(getattr(importlib.import_module(module), name))

        def stand_in(*args: object, **options: object) -> object:
            bound = signature.bind(*args, **options)
            bound.apply_defaults()
            seen.append(bound.arguments)
            return result

        monkeypatch.setattr(f"{module}.{name}", stand_in)
        return seen

    return replace


@pytest.mark.parametrize(
    ("equal", "chaotic", "status"), [(True, False, 0), (False, True, 0), (False, False, 1)]
)
def test_demo_passes_its_options_on_and_fails_on_differences(calls, equal, chaotic, status):
    row = SimpleNamespace(equal=equal, chaotic=chaotic)
    seen = calls("graphopt.evaluate.commands.demo", "run_demo", [row])
    assert main(["demo"]) == status
    options = "--policy xla-default --graphs a b --workloads m:W --budget-s 0.5 --out rows.json"
    assert main(["demo", *options.split()]) == status
    default = {"policy": DEFAULT, "graphs": (), "spec": "demo", "out": None}
    assert default.items() <= seen[0].items()
    asked = {"policy": "xla-default", "graphs": ("a", "b"), "spec": "m:W", "budget_s": 0.5}
    assert (asked | {"out": Path("rows.json")}).items() <= seen[1].items()


@pytest.mark.parametrize(("failures", "status"), [([], 0), (["a trial"], 1)])
def test_fuzz_passes_its_options_on_and_fails_on_failures(calls, failures, status):
    report = SimpleNamespace(failures=failures)
    seen = calls("graphopt.evaluate.fuzzing.progress", "run_fuzz", report)
    assert main(["fuzz"]) == status
    options = (
        "--workloads demo --graphs a --trials 7 --seed 8 --timeout-s 9 --workers 1 --devices 3"
    )
    assert main(["fuzz", *options.split()]) == status
    assert {"spec": "fuzz", "graphs": ()}.items() <= seen[0].items()
    asked = {"spec": "demo", "graphs": ("a",), "trials": 7, "seed": 8, "timeout_s": 9.0}
    assert (asked | {"workers": 1, "devices": 3}).items() <= seen[1].items()


def test_bench_passes_its_options_on(calls):
    seen = calls("graphopt.evaluate.bench", "run_bench", None)
    assert main(["bench"]) == 0
    assert main(["bench", "overhead", "--budget-s", "1"]) == 0
    assert seen[0]["what"] == "all"
    assert {"what": "overhead", "budget_s": 1.0}.items() <= seen[1].items()


@pytest.mark.parametrize(("healthy", "status"), [(True, 0), (False, 1)])
def test_doctor_fails_on_an_unhealthy_machine(calls, capsys, healthy, status):
    calls("graphopt.evaluate.commands.doctor", "diagnose", ("findings", healthy))
    assert main(["doctor"]) == status
    assert capsys.readouterr().out == "findings\n"


def test_run_leaves_every_argument_to_the_script(calls):
    seen = calls("graphopt.evaluate.commands.run", "run_script", 5)
    assert main(["run", "script.py", "--policy", "x", "-h"]) == 5
    assert [call["arguments"] for call in seen] == [["script.py", "--policy", "x", "-h"]]


def test_capture_describes_a_builtin_program(capsys):
    assert main(["capture", "knapsack"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("Graph(")
    assert "loop_body" in output
    assert "trips" in output
    assert "operations: " in output
    assert "HloModule" not in output


def test_capture_prints_the_text_of_a_users_program(workloads, capsys):
    assert main(["capture", "some_workloads:wave", "--hlo"]) == 0
    output = capsys.readouterr().out
    assert "HloModule" in output
    assert "cosine" in output


def test_demo_takes_the_users_own_programs_by_name(workloads, capsys):
    command = ["demo", "--workloads", "some_workloads:NAMED", "--budget-s", "0.1", "--graphs"]
    assert main([*command, "My Wave"]) == 0
    output = capsys.readouterr().out
    assert "My Wave" in output
    assert "equal" in output
