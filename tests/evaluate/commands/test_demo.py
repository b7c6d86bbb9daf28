"""``graphopt demo``: rows, table and JSON of programs measured with and without the plugin."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace

import pytest
from rich.console import Console

import graphopt
from graphopt.corpus.fuzzing import FUZZ
from graphopt.errors import PolicyError, WorkloadError
from graphopt.evaluate.commands import demo
from graphopt.evaluate.commands.demo import DemoRow, make_markdown, make_table, run_demo, summary
from graphopt.evaluate.commands.showing import picture
from graphopt.measure import Comparison
from graphopt.measure.comparing.yardstick import UNVERIFIABLE

BUDGET_S = 0.2


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


@pytest.fixture
def small(console):
    """Runs the demo on small programs."""
    return lambda policy, *names: run_demo(
        policy, names, spec="fuzz", budget_s=BUDGET_S, console=console
    )


def test_two_programs_are_measured_and_equal(console, tmp_path):
    out = tmp_path / "rows.json"
    names = ("recurrent_products", "fibonacci")
    rows = run_demo("heuristic", names, spec="fuzz", budget_s=BUDGET_S, out=out, console=console)

    assert sorted(row.name for row in rows) == sorted(names)
    by_name = {row.name: row for row in rows}
    for row in rows:
        assert row.equal
        assert row.relative < 1e-4
        assert row.nodes > 0
        assert row.times.pairs > 0
        assert row.times.low <= row.times.speedup <= row.times.high
    assert by_name["recurrent_products"].outcome == "rewritten: heuristic"
    assert by_name["recurrent_products"].clusters_after > 0
    assert by_name["fibonacci"].outcome == "kept: no gain expected"
    assert by_name["fibonacci"].clusters_after == 0

    assert json.loads(out.read_text()) == json.loads(
        json.dumps([{**asdict(row), "equal": True} for row in rows])
    )

    text = console.file.getvalue()
    assert "policy 'heuristic'" in text
    for row in rows:
        (line,) = (line for line in text.splitlines() if line.startswith(f"│ {row.name}"))
        assert "equal" in line
        assert str(row.nodes) in line
    assert "kept: no gain expected" in text
    assert "geometric mean speed-up" in text
    assert "all results equal to rounding" in text
    fastest = max(rows, key=lambda row: row.times.speedup)
    assert text.rstrip().splitlines()[-1].lstrip().startswith(f"graphopt explain {fastest.name} ")


def test_nothing_stays_installed(small):
    small("xla-default", "twin_carry")
    assert graphopt.report().policy is None


def test_unknown_programs(console):
    with pytest.raises(WorkloadError, match="no_such_program"):
        run_demo(graphs=("no_such_program",), console=console)


def test_one_unknown_program_among_known_ones(small):
    with pytest.raises(WorkloadError, match="no_such_program"):
        small("heuristic", "twin_carry", "no_such_program")


def test_unknown_program_sets(console):
    with pytest.raises(WorkloadError):
        run_demo(spec="no_such_set", console=console)


def test_unknown_policies(small):
    with pytest.raises(PolicyError, match="no_such_policy"):
        small("no_such_policy", "twin_carry")


def row(name: str, speedup: float, problem: str = "", chaotic: bool = False) -> DemoRow:
    times = Comparison(1e-3 * speedup, 1e-3, speedup, 0.9 * speedup, 1.1 * speedup, 9)
    return DemoRow(
        name=name,
        nodes=10,
        clusters_before=4,
        clusters_after=2,
        regions=1,
        outcome="rewritten",
        times=times,
        relative=1e-7,
        compile_default_s=0.5,
        compile_s=1.0,
        problem=problem,
        chaotic=chaotic,
    )


def printed(rows: list[DemoRow]) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(make_table(rows, "heuristic"))
    return console.file.getvalue()


def test_the_summary_states_means_and_extremes():
    text = summary([row("one", 1.0), row("four", 4.0)])
    assert "geometric mean speed-up 2.00x, smallest 1.00x, largest 4.00x" in text
    assert "compile time 2.00x of XLA's, largest 2.00x" in text
    assert "all results equal" in text


def test_different_results_stand_out():
    rows = [row("right", 2.0), row("broken", 9.0, "wrong result: off by 3.0e-01")]
    assert summary(rows).endswith("results differ: broken (wrong result: off by 3.0e-01)")
    assert printed(rows).count("wrong result: off by 3.0e-01") == 1


def test_chaotic_results_are_not_called_wrong():
    text = summary([row("right", 2.0), row("wild", 3.0, f"{UNVERIFIABLE}: ...", chaotic=True)])
    assert "differ" not in text
    assert text.endswith(f"{UNVERIFIABLE}: wild; all other results equal to rounding")


def test_after_an_interrupt_what_was_measured_is_shown_and_written(console, tmp_path, monkeypatch):
    names = tuple(name for name in FUZZ.names() if name in ("recurrent_products", "fibonacci"))
    out = tmp_path / "rows.json"

    def measured(program, policy, budget_s, name):
        if name == names[1]:
            raise KeyboardInterrupt
        return row(name, 2.0)

    monkeypatch.setattr(demo, "measure_program", measured)
    with pytest.raises(KeyboardInterrupt):
        run_demo(graphs=names, spec="fuzz", out=out, console=console)
    text = console.file.getvalue()
    assert "interrupted: 1 of 2 programs measured" in text and "next:" in text
    assert [r["name"] for r in json.loads(out.read_text())] == [names[0]]


def test_the_picture_is_longest_for_the_fastest():
    lines = picture({"one": 1.0, "eight": 8.0, "two": 2.0, "half": 0.5}).splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["eight", "two", "one", "half"]
    eight, two = (line.count("█") for line in lines[:2])
    assert abs(eight - 3 * two) <= 2
    assert lines[2].endswith("|") and lines[3].endswith("<")


def test_the_table_as_markdown(console):
    rows = run_demo(
        graphs=("twin_carry",), spec="fuzz", budget_s=BUDGET_S, markdown=True, console=console
    )
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("|")]
    assert lines == make_markdown(rows).splitlines()
    assert len(lines) == 3
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| twin_carry | ")


def test_programs_that_were_not_rewritten_say_why():
    kept = replace(row("same", 1.0), clusters_after=0, regions=0, outcome="fell back: donation")
    assert "equal (fell back: donation)" in printed([kept])
