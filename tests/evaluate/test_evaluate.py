"""``graphopt evaluate`` and ``graphopt tune``: what they write, and that a bad program stops no other."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console
from support.forks import run_graphopt
from support.processes import environment

from graphopt.errors import ConfigError, WorkloadError
from graphopt.evaluate.commands.evaluate import cells, evaluate_and_show, make_markdown, summary
from graphopt.evaluate.evaluation import plan as evaluation
from graphopt.evaluate.evaluation import worker
from graphopt.evaluate.evaluation.plan import COLUMNS, Plan, make_report, run_evaluation
from graphopt.learn.tune.subject import make_subject
from graphopt.measure import modules_of
from graphopt.measure.comparing.yardstick import UNVERIFIABLE
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.policy import resolve

DESIGNED = {"machine", "versions", "workloads", "geomean_policy", "geomean_tuned"}
"""Fields that a report has; see docs/tuning.md."""


def plan(out: Path, *names: str, **changes) -> Plan:
    values = {
        "workloads": "support.evaluated:WORKLOADS", "names": names, "policy": "heuristic", "budget_s": 0.0,
        "seed": 0, "store": None, "out": out,
    }  # fmt: skip
    return Plan(**{**values, **changes})


@pytest.fixture(autouse=True)
def workloads_can_be_imported(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """(folder, report, printed text) of all programs, without tuning."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    out = tmp_path_factory.mktemp("report") / "new folder"
    console = Console(file=io.StringIO(), width=150)
    report = evaluate_and_show(plan(out), console)
    patch.undo()
    return out, report, console.file.getvalue()


def rows_of(report) -> dict[str, dict]:
    return {row["name"]: row for row in report["workloads"]}


def test_the_report_has_the_fields_that_readers_count_on(evaluated):
    out, report, _ = evaluated
    text = (out / "report.json").read_text()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    written = json.loads(text, parse_constant=refuse)
    assert written == report
    assert set(written) >= DESIGNED
    assert {"name", "cores"} <= set(written["machine"])
    assert {"graphopt", "jax", "jaxlib"} <= set(written["versions"])
    for row in written["workloads"]:
        assert set(row) >= set(COLUMNS)
        assert isinstance(row["status"], str) and isinstance(row["family"], str)


def test_every_program_is_named_and_the_good_ones_are_measured(evaluated):
    _, report, _ = evaluated
    rows = rows_of(report)
    assert list(rows) == [
        "loop", "raises", "fails to run", "aborts", "unbuildable", "not a pair", "plain",
    ]  # fmt: skip
    status = {name: row["status"] for name, row in rows.items()}
    assert status["loop"] == status["plain"] == "ok"
    assert "cannot be traced" in status["raises"]
    assert status["fails to run"].startswith("exit: ")
    assert "SIGABRT" in status["aborts"]
    assert "no such data set" in status["unbuildable"]
    assert "not (fn, args)" in status["not a pair"]
    for name in ("loop", "plain"):
        row = rows[name]
        assert row["nodes"] > 10 and row["default_s"] > 0 and row["policy_s"] > 0
        assert row["policy_low"] <= row["speedup_policy"] <= row["policy_high"]
        assert 0 <= row["max_rel_err"] < 1e-3
        assert row["tuned_s"] is None and row["speedup_tuned"] is None
    assert rows["loop"]["policy_changed"] and rows["loop"]["speedup_policy"] > 1.0


def test_means_are_geometric_and_over_the_good_programs(evaluated):
    _, report, _ = evaluated
    rows = rows_of(report)
    values = [rows[name]["speedup_policy"] for name in ("loop", "plain")]
    assert report["geomean_policy"] == pytest.approx(math.sqrt(values[0] * values[1]))
    assert report["geomean_tuned"] is None


def test_tables_and_plots_are_written(evaluated):
    out, report, printed = evaluated
    for name in ("speedups.png", "progress.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    markdown = (out / "report.md").read_text()
    for row in report["workloads"]:
        assert row["name"] in markdown and row["name"] in printed
    assert "failed: raises, fails to run, aborts" in markdown
    assert "policy: geometric mean" in printed
    assert f"{rows_of(report)['loop']['speedup_policy']:.2f}x" in markdown


def test_an_interrupted_evaluation_goes_on_where_it_was(evaluated, tmp_path, monkeypatch):
    _, report, _ = evaluated
    (tmp_path / "report.json").write_text(json.dumps(report))
    asked = []

    def evaluate_one(plan, name, tell):
        asked.append(name)
        return {"name": name, "status": "ok", "speedup_policy": 2.0}

    monkeypatch.setattr(evaluation, "evaluate_one", evaluate_one)
    again = run_evaluation(plan(tmp_path), lambda message, row: None)
    assert asked == ["raises", "fails to run", "aborts", "unbuildable", "not a pair"]
    assert rows_of(again)["loop"] == rows_of(report)["loop"]
    assert json.loads((tmp_path / "report.json").read_text())["workloads"] == again["workloads"]
    asked.clear()
    run_evaluation(plan(tmp_path, seed=1), lambda message, row: None)
    assert len(asked) == 7, "other settings start anew"


@pytest.mark.parametrize("text", ["", "[]", '{"settings": 1}', '{"workloads": [{}]}'])
def test_a_damaged_report_is_started_anew(tmp_path, text, monkeypatch):
    (tmp_path / "report.json").write_text(text)
    monkeypatch.setattr(
        evaluation, "evaluate_one", lambda plan, name, tell: {"name": name, "status": "ok"}
    )
    report = run_evaluation(plan(tmp_path, "loop"), lambda message, row: None)
    assert [row["status"] for row in report["workloads"]] == ["ok"]


def test_a_worker_that_talks_nonsense_is_named(tmp_path, monkeypatch):
    real = evaluation.Child
    answers = ["hello", "[]", '{"row": 3}', '{"other": 1}', "null"]
    for answer in answers:
        code = f"import sys; sys.stdin.readline(); print({answer!r})"
        monkeypatch.setattr(evaluation, "Child", lambda _, name, c=code: real(["-c", c], name))
        report = run_evaluation(plan(tmp_path, "loop"), lambda message, row: None)
        assert rows_of(report)["loop"]["status"].startswith("garbage: answered")


def test_infinities_do_not_get_into_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(
        evaluation,
        "evaluate_one",
        lambda plan, name, tell: {"name": name, "status": "wrong", "max_rel_err": math.inf},
    )
    run_evaluation(plan(tmp_path, "loop"), lambda message, row: None)
    text = (tmp_path / "report.json").read_text()
    assert "Infinity" not in text
    assert rows_of(json.loads(text))["loop"]["max_rel_err"] is None


def logistic(x, steps, rate=3.9, expanded=False):
    """The logistic map, in which a difference doubles at every step."""

    def step(x, _):
        return (rate * x - rate * (x * x) if expanded else rate * x * (1.0 - x)), None

    return jax.lax.scan(step, x, None, length=steps)[0]


@pytest.mark.parametrize(
    ("steps", "rate", "verdict"), [(200, 3.9, UNVERIFIABLE), (12, 3.95, "wrong result: off by")]
)
def test_chaotic_programs_are_told_from_wrong_results(steps, rate, verdict, tmp_path, monkeypatch):
    """The policy's program computes the map in another order, or at another rate."""
    x = jnp.linspace(0.1, 0.9, 64)
    (other,) = modules_of(lambda x: logistic(x, steps, rate, expanded=True), (x,))
    monkeypatch.setattr(
        worker, "optimize_module", lambda *_, **__: (ModuleRecord("m", Outcome.REWRITTEN), other)
    )
    subject = make_subject(lambda x: logistic(x, steps), (x,))
    row = worker._policy_columns(subject, resolve("heuristic"), None)
    assert row["status"].startswith(verdict) and row["status"].endswith("(policy)")
    assert row["max_rel_err"] > 0 and f"{row['max_rel_err']:.1e}" in row["status"]
    assert row["status"].count("e-") + row["status"].count("e+") >= 2, "both errors are stated"
    assert evaluation.has_failed(row) is (verdict != UNVERIFIABLE)
    report = make_report(plan(tmp_path), [{**dict.fromkeys(COLUMNS), "name": "map", **row}])
    assert report["geomean_policy"] is None
    assert (f"{UNVERIFIABLE}, not in the means: map" in summary(report)) is (steps == 200)
    assert ("failed: map" in summary(report)) is (steps == 12)


def test_an_interrupted_evaluation_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(plan, name, tell):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "evaluate_one", interrupted)
    console = Console(file=io.StringIO(), width=300)
    with pytest.raises(KeyboardInterrupt):
        evaluate_and_show(plan(tmp_path, "loop"), console)
    assert "the same command goes on from there" in console.file.getvalue()


def test_where_every_program_fails(tmp_path):
    console = Console(file=io.StringIO(), width=150)
    report = evaluate_and_show(plan(tmp_path, workloads="support.evaluated:HOPELESS"), console)
    printed = console.file.getvalue()
    assert printed.startswith("Traceback (most recent call last):")
    assert printed.index("OSError: no such data set") < printed.index("unbuildable  user")
    assert "ValueError: cannot be traced" in printed
    assert report["geomean_policy"] is None
    assert summary(report) == "failed: unbuildable, raises"
    assert (tmp_path / "speedups.png").exists()


def test_programs_and_budgets_that_do_not_exist(tmp_path):
    with pytest.raises(WorkloadError, match="no program nonsense"):
        run_evaluation(plan(tmp_path, "nonsense"), lambda message, row: None)
    with pytest.raises(ConfigError, match="a budget of"):
        plan(tmp_path, budget_s=-1.0)
    assert not (tmp_path / "report.json").exists()


def test_tables_of_tuned_programs(tmp_path):
    row = {
        **dict.fromkeys(COLUMNS), "name": "p", "family": "f", "status": "ok", "default_s": 2e-3,
        "tuned_s": 1e-3, "speedup_tuned": 2.0, "tuned_low": 1.9, "tuned_high": 2.1,
        "evaluations": 12, "max_rel_err": 1e-7, "winner": "native loops",
        "changes": {"unit = native": 3}, "why": "3 x unit = native: 2.00x (1.90-2.10)",
        "history": [[3, 1.0, 2.0]],
    }  # fmt: skip
    report = make_report(plan(tmp_path), [row])
    assert "2.00x" in cells(row) and "1.90-2.10" in cells(row) and "2.000" in cells(row)
    assert "* p: native loops (3 x unit = native: 2.00x (1.90-2.10))" in make_markdown(report)
    assert summary(report) == (
        "tuned: geometric mean 2.00x, smallest 2.00x; all results equal to rounding"
    )


# The commands.


def graphopt(*arguments: str, store: Path) -> str:
    done = run_graphopt(*arguments, env={"GRAPHOPT_STORE": str(store)})
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_tune_command_finds_replays_exports_and_imports(tmp_path):
    store, file = tmp_path / "store", tmp_path / "winners.json"
    found = json.loads(
        graphopt("tune", "support.evaluated:_loop", "--budget-s", "3", "--json", store=store)
    )
    assert found["verified"] and found["speedup"] >= 1.0 and found["modules"][0]["nodes"] > 10
    text = graphopt("tune", "support.evaluated:_loop", "--replay", "--budget-s", "1", store=store)
    assert "support.evaluated:_loop: " in text
    assert f"1 winners written to {file}" in graphopt("tune", "--export", str(file), store=store)
    other = tmp_path / "other"
    text = graphopt("tune", "--import", str(file), store=other)
    assert text.startswith("1 winners taken from")
    text = graphopt("tune", "support.evaluated:_loop", "--replay", "--budget-s", "1", store=other)
    assert f"{found['program']}: " in text


def test_the_tune_command_says_what_is_wrong(tmp_path):
    env = {"GRAPHOPT_STORE": str(tmp_path / "store")}
    for arguments, message in (
        (("tune",), "name a program"),
        (("tune", "no_such_module:x"), "cannot be imported"),
        (("tune", "support.evaluated:_raises"), "cannot be compiled"),
        (("tune", "support.evaluated:_loop", "--replay"), "no stored winner"),
        (("tune", "--import", str(tmp_path / "nowhere")), "cannot be read"),
    ):
        done = run_graphopt(*arguments, env=env)
        assert done.returncode == 2
        assert message in done.stderr.splitlines()[-1]
        assert done.stderr.startswith("Traceback") is ("_raises" in arguments[-1])


def test_the_evaluate_command_tunes(tmp_path):
    out = tmp_path / "report"
    text = graphopt(
        "evaluate", "--workloads", "support.evaluated:WORKLOADS", "--graphs", "loop", "--budget-s", "5",
        "--policy", "", "--out", str(out), store=tmp_path / "unused",
    )  # fmt: skip
    (row,) = json.loads((out / "report.json").read_text())["workloads"]
    assert row["status"] == "ok" and row["speedup_tuned"] >= 1.0
    assert row["tuned_low"] <= row["speedup_tuned"] <= row["tuned_high"]
    assert row["winner"] and row["nodes"] > 10
    assert row["policy_s"] is None
    assert "tuned: geometric mean" in text
    assert (out / "store.sqlite").exists() and not (tmp_path / "unused").exists()

    again = tmp_path / "again"
    graphopt(
        "evaluate", "--workloads", "support.evaluated:WORKLOADS", "--graphs", "loop", "--budget-s", "0",
        "--policy", "stored", "--store", str(out / "store.sqlite"), "--out", str(again),
        store=tmp_path / "unused",
    )  # fmt: skip
    (replayed,) = json.loads((again / "report.json").read_text())["workloads"]
    assert replayed["status"] == "ok" and replayed["tuned_s"] is None
    assert replayed["policy_changed"] == (row["tuned_s"] != row["default_s"])
