"""``graphopt doctor``: it tells working machines from others and never fails itself."""

from __future__ import annotations

import jax
import pytest
from support.processes import run_python

import graphopt
from graphopt import jax_private
from graphopt.cli import main
from graphopt.evaluate.commands.doctor import diagnose
from graphopt.machine import probe
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.measure.capabilities.table import TABLE


@pytest.fixture(autouse=True)
def nothing_installed():
    graphopt.uninstall()


def test_a_working_machine():
    text, healthy = diagnose()
    assert healthy
    assert f"graphopt {graphopt.__version__}" in text
    assert f"jax {jax.__version__}" in text
    assert "hook: fires" in text
    assert "backend cpu" in text
    assert str(probe()) in text
    for unit in probe().units:
        assert f"unit {unit.name}: {unit.description}" in text
    donation = own_capabilities().donation
    assert ("left alone: modules with donated arguments" in text) is not donation
    for row in TABLE:
        state = "no" if row.name == "donation" and not donation else "yes"
        assert f"  {row.name}: {state} ({row.meaning})" in text
    assert "PROBLEM" not in text


def test_the_command_prints_it_and_succeeds(capsys):
    assert main(["doctor"]) == 0
    assert "hook: fires" in capsys.readouterr().out


def test_it_leaves_an_installed_plugin_alone():
    graphopt.install("xla-default")
    try:
        assert diagnose()[1]
        assert graphopt.report().policy == "xla-default"
    finally:
        graphopt.uninstall()


def test_an_older_jax_is_a_problem(monkeypatch, capsys):
    monkeypatch.setattr(jax, "__version__", "0.10.1")
    text, healthy = diagnose()
    assert not healthy
    assert "PROBLEM: jax 0.10.1 has no HLO transformation hook" in text
    assert "Install jax>=0.10.2" in text
    assert main(["doctor"]) == 1
    assert "PROBLEM" in capsys.readouterr().out


def test_a_hook_that_does_not_fire_is_a_problem(monkeypatch):
    monkeypatch.setattr(jax_private, "register_transform", lambda *a, **k: None)
    text, healthy = diagnose()
    assert not healthy
    assert "DOES NOT FIRE" in text


def test_a_hook_that_cannot_be_registered_is_a_problem(monkeypatch):
    def refuse(*args, **kwargs):
        raise NotImplementedError("no hook in here")

    monkeypatch.setattr(jax_private, "register_transform", refuse)
    text, healthy = diagnose()
    assert not healthy
    assert "PROBLEM: this jax cannot register HLO transformations: no hook in here" in text


def test_a_missing_backend_is_a_problem_not_a_crash():
    done = run_python("-m", "graphopt", "doctor", env={"JAX_PLATFORMS": "none_such"})
    assert done.returncode == 1
    assert "PROBLEM" in done.stdout
    assert "none_such" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False)])
def test_it_says_that_everything_is_disabled(monkeypatch, value, shown):
    monkeypatch.setenv("GRAPHOPT_DISABLE", value)
    text, healthy = diagnose()
    assert healthy
    assert ("GRAPHOPT_DISABLE is set" in text) is shown


def test_it_names_the_store(monkeypatch, tmp_path):
    monkeypatch.delenv("GRAPHOPT_STORE", raising=False)
    assert "store: not used" in diagnose()[0]
    monkeypatch.setenv("GRAPHOPT_STORE", str(tmp_path / "store.sqlite"))
    assert f"store: {tmp_path / 'store.sqlite'}" in diagnose()[0]


def test_it_mentions_the_persistent_cache(tmp_path):
    done = run_python(
        "-m", "graphopt", "doctor", env={"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    )
    assert done.returncode == 0, done.stderr
    assert "persistent compilation cache" in done.stdout
