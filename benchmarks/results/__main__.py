"""Files measured tables as data, and renders the pages and plots that show them.

python -m benchmarks.results add report/held-out/report.json --name held-out
python -m benchmarks.results render
python -m benchmarks.results list
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated

import tyro

from benchmarks.results.record import DATA, ROOT, Result, load, load_all, save
from graphopt.errors import ConfigError, exit_status


@dataclass(frozen=True)
class Add:
    """File what a benchmark wrote (JSON), or printed (a Markdown table, lines of fuzzing or suites).

    What the file does not say about machine, versions and commit is taken from where this runs: run it on
    the machine and in the environment that measured, or give it.
    """

    file: Annotated[Path, tyro.conf.Positional]
    """What was written or printed."""
    name: str
    """Of the table: docs/data/NAME.json."""
    append: bool = False
    """Keep the rows that are there; rows of the same name and version of jax are replaced."""
    command: str = ""
    """That measured it, if it is not the one that the kind of file implies."""
    machine: str = ""
    """In words, such as "AMD EPYC (AVX2), 2 cores"."""
    jax: str = ""
    """Version of jax."""
    date: str = ""
    """Of the measurement; else what the file says, else when it was written."""
    commit: str = ""
    """That was measured; else the one that is checked out."""
    seed: int | None = None
    """Of the run."""
    note: str = ""
    """What a reader must know besides."""
    history: str = ""
    """Name of a table of figures over commits, which gets one more row: for reports of graphopt evaluate."""


@dataclass(frozen=True)
class Render:
    """Render all pages and plots of docs/results from docs/data."""

    only: tuple[str, ...] = ()
    """Names of pages; all without."""


@dataclass(frozen=True)
class ListResults:
    """List what is filed."""

    kinds: tuple[str, ...] = field(default=())
    """Only tables of these kinds."""


Commands = (
    Annotated[Add, tyro.conf.subcommand("add")]
    | Annotated[Render, tyro.conf.subcommand("render")]
    | Annotated[ListResults, tyro.conf.subcommand("list")]
)


def add(asked: Add, folder: Path = DATA) -> Result:
    """Reads the file and writes the table.

    Raises:
        ConfigError: the file is missing, of no known format, or says too little.
    """
    from benchmarks.results.readers import read

    if not asked.file.is_file():
        raise ConfigError(what=f"no file {asked.file}", where="add", fix="Measure first.")
    found = read(asked.file.read_text())
    written = time.strftime("%Y-%m-%d", time.gmtime(asked.file.stat().st_mtime))
    versions = dict(found.versions) or {"jax": version("jax")}
    day = asked.date or found.date or written
    rows = [dict(row) for row in found.rows]
    if found.kind == "fuzzing":
        jax = {"jax": asked.jax or versions["jax"]}
        rows = [{"name": asked.command or found.command, **jax, **row, "date": day} for row in rows]
    result = Result(
        name=asked.name,
        kind=found.kind,
        command=asked.command or found.command,
        machine=asked.machine or found.machine or _machine(),
        versions={**versions, **({"jax": asked.jax} if asked.jax else {})},
        date=day,
        source=_inside(asked.file),
        rows=tuple(rows),
        commit=asked.commit or _commit(),
        seed=found.seed if asked.seed is None else asked.seed,
        note=asked.note or found.note,
    )
    if asked.append and (folder / f"{asked.name}.json").exists():
        result = _joined(load(asked.name, folder), result)
    save(result, folder)
    if asked.history:
        save(_with_history(load(asked.history, folder), result), folder)
    return result


def _with_history(history: Result, result: Result) -> Result:
    """A table over commits with a last row for what was measured now; a row of the same commit goes.

    Raises:
        ConfigError: the result has no ratios of a policy.
    """
    ratios = [row["policy"] for row in result.rows if "policy" in row]
    rivals = [row["rival"] for row in result.rows if "rival" in row]
    if not ratios:
        raise ConfigError(
            what="no ratios of a policy",
            where=f"--history {history.name}",
            fix="Leave --history out.",
        )
    row = {
        "name": result.commit,
        "date": result.date,
        "machine": result.machine,
        "speedup": round(geometric_mean(ratios), 3),
        **({"rival": round(geometric_mean(rivals), 3)} if rivals else {}),
        "smallest": min(ratios),
    }
    kept = [old for old in history.rows if old["name"] != result.commit]
    return replace(history, rows=(*kept, row), date=max(history.date, result.date))


def _joined(old: Result, new: Result) -> Result:
    """The old rows, those that are measured anew replaced, then the new ones."""

    def key(row: object) -> tuple[object, ...]:
        assert isinstance(row, dict)
        return tuple(row.get(name) for name in ("name", "jax", "devices", "size"))

    fresh = {key(row) for row in new.rows}
    kept = [row for row in old.rows if key(row) not in fresh]
    jax = dict.fromkeys([*old.versions["jax"].split(", "), *new.versions["jax"].split(", ")])
    versions = {**old.versions, **new.versions, "jax": ", ".join(jax)}
    return replace(new, rows=(*kept, *new.rows), versions=versions)


def _inside(path: Path) -> str:
    """A path as the repository sees it: nothing of where the repository lies."""
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _machine() -> str:
    from graphopt.machine import probe

    here = probe()
    return f"{here.name}, {here.simd_bits}-bit vectors, {here.cores} cores"


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()


def _run(asked: Add | Render | ListResults) -> int:
    if isinstance(asked, Add):
        result = add(asked)
        print(f"docs/data/{result.name}.json: {len(result.rows)} rows; {result.about}")
        print("make results renders the pages that show it")
    elif isinstance(asked, ListResults):
        for name, result in load_all().items():
            if not asked.kinds or result.kind in asked.kinds:
                print(f"{name:24} {result.kind:14} {len(result.rows):4} rows  {result.about}")
    else:
        from benchmarks.results.pages import render_all

        for path in render_all(only=asked.only):
            print(path.relative_to(ROOT))
    return 0


def main() -> int:
    """Parses the command line."""
    asked: Add | Render | ListResults = tyro.cli(
        Commands, prog="python -m benchmarks.results", description=__doc__
    )
    return exit_status("benchmarks.results", lambda: _run(asked))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
