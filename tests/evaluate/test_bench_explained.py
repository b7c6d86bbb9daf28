"""Explanations beside measurements: which programs, what is kept, what is printed."""

import json
import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks import explained
from benchmarks.results.readers import read
from graphopt.corpus.program import Program
from graphopt.store.journal import read_journal


def programs(count):
    return [
        Program(f"program-{n}", "toys", lambda: (jnp.sin, (1.0,)), "sine") for n in range(count)
    ]


def test_programs_are_taken_at_equal_distances_first():
    names = [p.name for p in explained.spread(programs(9), 3)]
    assert names[:3] == ["program-0", "program-3", "program-6"]
    assert sorted(names) == [f"program-{n}" for n in range(9)]
    assert len(list(explained.spread(programs(2), 20))) == 2


def test_programs_of_libraries_that_are_not_installed_are_left_out(monkeypatch):
    def missing():
        raise ImportError("no such library")

    broken = Program("broken", "toys", missing, "none")
    sets = {explained.THIRD_PARTY: [broken, *programs(2)], explained.FILLING: programs(9)[5:]}
    monkeypatch.setattr(explained, "load_programs", lambda name: {p.name: p for p in sets[name]})
    found = [program.name for program in explained.chosen((), 4)]
    assert found == ["program-0", "program-1", "program-5", "program-7"]


def test_twenty_programs_are_chosen_by_default():
    found = explained.chosen((), 20)
    assert len({program.name for program in found}) == 20
    assert any(program.family == "workload" or "optax" in program.name for program in found)


def test_what_is_measured_is_kept_and_not_measured_again(monkeypatch, tmp_path, capsys):
    def build():
        def loop(x):
            return jax.lax.fori_loop(0, 50, lambda _, y: jnp.sin(y) * jnp.cos(y) + 1.0, x)

        return loop, (jnp.ones(8),)

    program = Program("sines", "toys", build, "sines")
    monkeypatch.setattr(explained, "chosen", lambda workloads, count: [program])
    monkeypatch.setattr(explained, "BUDGET_S", 0.1)
    out = tmp_path / "explained.jsonl"
    monkeypatch.setattr(sys, "argv", ["explained", "--out", str(out)])
    explained.main()
    (row,) = read_journal(out)
    assert row["error"] >= 0 and row["installed"] > 0
    first = capsys.readouterr().out
    out.write_text(json.dumps({**row, "explained": 7.0}) + "\n")
    explained.main()
    again = capsys.readouterr().out
    assert "| sines | 7.00x |" in again and "1 programs: median error" in again
    found = read(first)
    assert [r["name"] for r in found.rows] == ["sines"]
    monkeypatch.setattr(explained, "BUDGET_S", 0.2)  # other settings: measured anew
    explained.main()
    assert len(list(read_journal(out))) == 2


@pytest.mark.parametrize("rows", [[], [{"name": "a", "why": "failed"}]])
def test_nothing_measured_is_said(rows):
    assert explained.summary(rows) == "nothing was measured"
    assert [explained.line(row) for row in rows] in ([], ["| a | failed |  | |"])
