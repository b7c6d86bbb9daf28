"""The sealed programs: opened once per release, noted each time, and used by nothing else."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.sealed.__main__ import OPENINGS, begin, summary
from benchmarks.sealed.programs import FAMILIES, WORKLOADS
from graphopt.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
PLAIN = {
    name: build
    for family, programs in FAMILIES.items()
    if not family.startswith("library_")
    for name, build in programs.items()
}


def report(**ratios: float) -> str:
    row = {"family": "user", "nodes": 9, "status": "ok", "default_s": 1e-3}
    rows = [{**row, "name": name, "speedup_policy": ratio} for name, ratio in ratios.items()]
    rows.append({"name": "broken", "status": "error"})
    settings = {"workloads": "sealed", "policy": "shipped", "budget_s": 0.0, "seed": 0}
    machine, versions = {"name": "a machine", "cores": 2}, {"jax": "1", "python": "3"}
    content = {"settings": settings, "machine": machine, "versions": versions, "date": "2026-01-01"}
    return json.dumps({**content, "workloads": rows})


def test_there_are_ten_families_and_sixty_programs_at_least():
    assert len(FAMILIES) >= 10 and len(WORKLOADS) >= 60
    assert len(WORKLOADS) == sum(map(len, FAMILIES.values())), "names are unique"


@pytest.mark.parametrize("name", PLAIN)
def test_programs_can_be_traced(name):
    fn, args = PLAIN[name]()
    results = jax.tree.leaves(jax.eval_shape(fn, *args))
    assert results and all(np.prod(result.shape) > 0 for result in results)


def test_nothing_else_uses_the_sealed_programs():
    own = ROOT / "benchmarks" / "sealed"
    sources = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "graphopt").rglob("*.py")]
    users = [p for p in sources if "benchmarks.sealed" in p.read_text() and own not in p.parents]
    assert not users


def test_a_release_is_opened_once():
    openings = []
    row = begin(openings, "1.0", "abc")
    assert openings == [row] and begin(openings, "1.0", "abc") is row, "resumed"
    with pytest.raises(ConfigError, match="opened on"):
        begin(openings, "1.0", "def")
    row["programs"] = 3
    with pytest.raises(ConfigError, match="opened on"):
        begin(openings, "1.0", "abc")
    assert begin(openings, "1.1", "def") is openings[1]


def test_the_summary_names_what_is_slow_and_what_failed():
    found = summary(report(fast=2.0, slow=0.5))
    assert (found["programs"], found["speedup"], found["smallest"]) == (2, 1.0, 0.5)
    assert found["slow"] == ["slow"] and found["failed"] == ["broken"]


def test_every_opening_is_complete():
    openings = json.loads(OPENINGS.read_text())
    assert openings
    for row in openings:
        assert {"release", "commit", "date", "programs", "speedup", "smallest"} <= set(row)
