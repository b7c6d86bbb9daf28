"""jax's own primitive harnesses, rewritten and compared with XLA's default.

    python -m benchmarks.conformance [--only scatter] [--every 4] [--seeds 6 8] [--journal FILE]

Every harness in every form (`harnesses.FORMS`), with the heuristic's decisions and with random ones (the
seeds of ``graphopt fuzz``: 6 draws native regions, 8 restructuring). A program's trials run in a child
process, so that a crash is a line of the report. An interrupted run goes on from its journal.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.conformance.harnesses import FORMS, HARNESSES
from benchmarks.progress import counted, ended
from graphopt.measure.children.child import ChildFailure
from graphopt.measure.children.pool import ask_all
from graphopt.store.journal import add_to_journal, read_journal

TIMEOUT_S = 120.0
AT_ONCE = 800
"""Programs after which the children are replaced: compiled code is never freed."""

Row = dict[str, Any]
"""A question (name, form, seeds) and its answer, as the journal has it."""


def questions(options: argparse.Namespace) -> list[tuple[str, Row]]:
    """What is still to be asked, named."""
    names = [name for name in HARNESSES if name.startswith(options.only)][:: options.every]
    known = {(row["name"], row["form"]) for row in read_journal(options.journal)}
    return [
        (f"{name} {form}", {"name": name, "form": form, "seeds": options.seeds})
        for name in names
        for form in options.forms
        if (name, form) not in known
    ]


def run(asked: list[tuple[str, Row]], journal: Path, workers: int) -> None:
    """Asks everything; adds each answer to the journal and prints what did not end well."""
    requests = dict(asked)

    def tell(name: str, answer: Row | ChildFailure) -> None:
        if isinstance(answer, ChildFailure):
            answer = {"child": {"status": answer.kind, "detail": answer.detail[-1500:]}}
        add_to_journal(journal, {**requests[name], "answer": answer})
        for trial, result in failures(answer):
            print(f"{name} {trial}: {result}", flush=True)

    command = ["-m", "benchmarks.conformance.worker"]
    with counted(range(0, len(asked), AT_ONCE), f"times {AT_ONCE} programs tried") as rest:
        for start in rest:
            some = asked[start : start + AT_ONCE]
            ask_all(command, some, tell=tell, workers=workers, timeout_s=TIMEOUT_S)


def failures(answer: Row) -> list[tuple[str, Row]]:
    """Trials of a program that did not end well."""
    if "unsuitable" in answer:
        return []
    return [(trial, result) for trial, result in answer.items() if result["status"] != "ok"]


def summary(rows: list[Row]) -> str:
    """Counts of everything in a journal."""
    suitable = [row["answer"] for row in rows if "unsuitable" not in row["answer"]]
    counts = Counter(result["status"] for answer in suitable for result in answer.values())
    names = len({row["name"] for row in rows})
    trials = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    without = len(rows) - len(suitable)
    return f"{names} harnesses, {len(suitable)} programs ({without} have no such form): {trials}"


def main() -> int:
    """Runs what the command line asks for; 1 if a trial did not end well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="start of the names of harnesses")
    parser.add_argument("--every", type=int, default=1, help="takes each n-th harness")
    parser.add_argument("--forms", nargs="*", default=FORMS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[6, 8])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--journal", type=Path, default=Path("report/conformance.jsonl"))
    options = parser.parse_args()
    run(questions(options), options.journal, options.workers)
    rows = list(read_journal(options.journal))
    print(summary(rows))
    return int(any(failures(row["answer"]) for row in rows))


if __name__ == "__main__":
    sys.exit(ended(main))
