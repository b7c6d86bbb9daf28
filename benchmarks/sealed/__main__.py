"""Measures the sealed programs, and notes that they were opened.

    python -m benchmarks.sealed --release 0.1 [--out report/sealed]

They were written by people who had seen neither graphopt nor its results, and nothing is tuned by them: they
are measured once per release, on committed code. Every opening is a row of ``openings.json``, written before
the first measurement. An interrupted opening is resumed by the same command.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from benchmarks.progress import ended
from benchmarks.results.readers import read
from benchmarks.sealed.programs import FAMILIES
from graphopt.errors import ConfigError

ROOT: Final = Path(__file__).resolve().parents[2]
OPENINGS: Final = Path(__file__).with_name("openings.json")
SLOW: Final = 0.95
"""Of XLA's default: programs below are named in the row."""


def git(*arguments: str) -> str:
    """What git prints."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def begin(openings: list[dict[str, Any]], release: str, commit: str) -> dict[str, Any]:
    """The row of an opening: a new one, or the one of the same release and commit that was begun.

    Raises:
        ConfigError: the release was opened at another commit, or its opening has ended.
    """
    row = next((row for row in openings if row["release"] == release), None)
    if row is None:
        row = {"release": release, "commit": commit, "date": time.strftime("%Y-%m-%d")}
        openings.append(row)
        return row
    if row["commit"] != commit or "programs" in row:
        raise ConfigError(
            what=f"release {release} was opened on {row['date']} at {row['commit']}",
            where="python -m benchmarks.sealed",
            fix="Measure the next release; for work in between there are the other sets.",
        )
    return row


def summary(report: str) -> dict[str, Any]:
    """What a row says of ``report.json``, as `graphopt evaluate` writes it."""
    content, found = json.loads(report), read(report)
    ratios = {str(row["name"]): float(row["policy"]) for row in found.rows}
    bad = [row["name"] for row in content["workloads"] if row["status"] != "ok"]
    return {
        "machine": found.machine,
        "versions": dict(found.versions),
        "programs": len(ratios),
        "speedup": round(geometric_mean(ratios.values()), 3),
        "smallest": min(ratios.values()),
        "slow": sorted(name for name, ratio in ratios.items() if ratio < SLOW),
        "failed": sorted(bad),
    }


def measure(out: Path) -> int:
    """Runs `graphopt evaluate` on all programs, the shipped policy beside the heuristic."""
    command = [sys.executable, "-m", "graphopt", "evaluate", "--policy", "shipped", "--zero-shot"]
    command += ["--workloads", "benchmarks.sealed.programs:WORKLOADS", "--out", str(out)]
    return subprocess.run(command, cwd=ROOT).returncode


def _save(openings: list[dict[str, Any]]) -> None:
    OPENINGS.write_text(json.dumps(openings, indent=1) + "\n")


def main() -> int:
    """Parses the command line and opens the set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sealed", description=__doc__)
    parser.add_argument("--release", required=True, help="its version, such as 0.1")
    parser.add_argument("--out", type=Path, default=Path("report/sealed"), help="folder of results")
    asked = parser.parse_args()
    own = str(OPENINGS.relative_to(ROOT))
    if [line for line in git("status", "--porcelain").splitlines() if not line.endswith(own)]:
        raise ConfigError(
            what="changes that are not committed",
            where="python -m benchmarks.sealed",
            fix="Commit first: a row says which code was measured.",
        )
    openings = json.loads(OPENINGS.read_text()) if OPENINGS.exists() else []
    row = begin(openings, asked.release, git("rev-parse", "--short", "HEAD"))
    _save(openings)
    programs = sum(map(len, FAMILIES.values()))
    print(f"{programs} programs of {len(FAMILIES)} families", file=sys.stderr)
    status = measure(asked.out)
    report = asked.out / "report.json"
    if status != 0 or not report.exists():
        return status or 1
    row.update(summary(report.read_text()))
    _save(openings)
    print(json.dumps(row, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
