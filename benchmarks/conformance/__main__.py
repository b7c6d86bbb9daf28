"""jax's own primitive harnesses, rewritten and compared with XLA's default.

    python -m benchmarks.conformance [--only scatter] [--every 4] [--seeds 6 8] [--journal FILE]

Every harness in every form (`harnesses.FORMS`), with the heuristic's decisions and with random ones (the
seeds of ``graphopt fuzz``: 6 draws native regions, 8 restructuring). A program's trials run in a child
process, so that a crash is a line of the report. An interrupted run goes on from its journal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from benchmarks.conformance.harnesses import FORMS, HARNESSES
from graphopt.measure.child import Child, ChildFailure
from graphopt.store.journal import add_to_journal, read_journal

TIMEOUT_S = 120.0
PER_CHILD = 400
"""Programs after which a child is replaced: compiled code is never freed."""


def ask(child: Child | None, request: dict[str, Any]) -> tuple[Child | None, dict[str, Any]]:
    """The answer to one request and the child that lives on, if any."""
    child = child or Child(["-m", "benchmarks.conformance.worker"], "conformance")
    try:
        return child, json.loads(child.ask(json.dumps(request), TIMEOUT_S))
    except ChildFailure as failure:
        child.close()
        return None, {"child": {"status": failure.kind, "detail": failure.detail[-1500:]}}


def serve(jobs: SimpleQueue[dict[str, Any]], journal: Path) -> None:
    """Works jobs off until none is left."""
    child: Child | None = None
    done = 0
    try:
        while True:
            try:
                request = jobs.get_nowait()
            except Empty:
                return
            child, answer = ask(child, request)
            add_to_journal(journal, {**request, "answer": answer})
            done += 1
            if done % PER_CHILD == 0 and child is not None:
                child.close()
                child = None
            for trial, result in failures(answer):
                print(f"{request['name']} {request['form']} {trial}: {result}", flush=True)
            if jobs.qsize() % 200 == 0:
                print(f"... {jobs.qsize()} programs to go", file=sys.stderr, flush=True)
    finally:
        if child is not None:
            child.close()


def failures(answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Trials of a program that did not end well."""
    if "unsuitable" in answer:
        return []
    return [(trial, result) for trial, result in answer.items() if result["status"] != "ok"]


def summary(journal: Path) -> str:
    """Counts of everything in the journal."""
    rows = list(read_journal(journal))
    suitable = [row["answer"] for row in rows if "unsuitable" not in row["answer"]]
    counts = Counter(result["status"] for answer in suitable for result in answer.values())
    names = len({row["name"] for row in rows})
    trials = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    without = len(rows) - len(suitable)
    return f"{names} harnesses, {len(suitable)} programs ({without} have no such form): {trials}"


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="start of the names of harnesses")
    parser.add_argument("--every", type=int, default=1, help="takes each n-th harness")
    parser.add_argument("--forms", nargs="*", default=FORMS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[6, 8])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--journal", type=Path, default=Path("report/conformance.jsonl"))
    arguments = parser.parse_args()
    names = [name for name in HARNESSES if name.startswith(arguments.only)][:: arguments.every]
    known = {(row["name"], row["form"]) for row in read_journal(arguments.journal)}
    jobs: SimpleQueue[dict[str, Any]] = SimpleQueue()
    for name in names:
        for form in arguments.forms:
            if (name, form) not in known:
                jobs.put({"name": name, "form": form, "seeds": arguments.seeds})
    with ThreadPoolExecutor(arguments.workers) as pool:
        for running in [
            pool.submit(serve, jobs, arguments.journal) for _ in range(arguments.workers)
        ]:
            running.result()
    print(summary(arguments.journal))
    return 0


if __name__ == "__main__":
    sys.exit(main())
