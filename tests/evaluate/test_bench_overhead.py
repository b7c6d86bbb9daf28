"""The hook's share of a compile: measured at first sight and remembered, in processes of their own."""

import json

import pytest
from rich.console import Console

from graphopt.errors import WorkloadError
from graphopt.evaluate import bench_overhead


def test_a_program_is_decided_once_and_then_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_overhead, "ROUNDS", 1)
    monkeypatch.setattr(bench_overhead, "COMPILES", 1)
    console = Console(record=True, width=140)
    (row,) = bench_overhead.bench_overhead(console, tmp_path, ["layernorm"])
    assert row.program == "layernorm" and row.outcome == "rewritten"
    assert 0 < row.again_s < row.first_s and row.first == row.first_s / row.xla_s
    (written,) = json.loads((tmp_path / "overhead.json").read_text())
    assert written["program"] == "layernorm" and written["again_s"] == row.again_s
    text = console.export_text()
    assert "at first sight: median" in text and "remembered: median" in text


def test_unknown_programs_are_named(tmp_path):
    with pytest.raises(WorkloadError, match="no program nothing"):
        bench_overhead.bench_overhead(Console(), tmp_path, ["nothing"])
