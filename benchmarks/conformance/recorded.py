"""Modules that libraries compile in their own tests, timed: the policy beside XLA's default, or another one.

    python -m benchmarks.conformance.recorded record [--only optax distrax] [--limit-s 300] [--folder FOLDER]
    python -m benchmarks.conformance.recorded time [--only optax distrax] [--each 40] [--folder FOLDER]
    python -m benchmarks.conformance.recorded time --against heuristic [--each 40] [--folder FOLDER]

``record`` runs the tests of `benchmarks.conformance.libraries`, in its environment, and keeps in
``FOLDER/NAME.sqlite`` each module that they compile, with the values of its inputs at one call. It goes on
where it was stopped. Nothing is timed meanwhile.

``time`` takes so many modules of each library, in the order of their digests, at most `SAME_NAME` of one
name, and measures those that the policy changes in turn with XLA's default, in a child process; results are
compared too. With another policy to measure ``--against``, it takes those about which the two decide
differently. Rows go to ``FOLDER/timed.jsonl``; the same command goes on there. Prints a line per library.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from benchmarks.conformance.libraries import (
    LIBRARIES,
    finish,
    is_installed,
    source_of,
    start,
)
from benchmarks.progress import counted, ended
from graphopt.errors import GraphOptError, MeasureError
from graphopt.hlo import build_graph
from graphopt.learn.background.tuning import inputs_of
from graphopt.measure.children.runner import Runner
from graphopt.policy.registry import DEFAULT, NamedPolicy, resolve
from graphopt.store import Store
from graphopt.store.journal import add_to_journal, read_marked
from graphopt.store.queue import items, load
from graphopt.store.queue_items import Item

SAME_NAME: Final = 5
"""Most modules of one name and library: tests repeat a function for many types."""

SLOWER: Final = 0.95
"""A module whose interval lies below this is slower."""

Row = dict[str, Any]

HEAD: Final = (
    "| library | modules | changed | timed | over {} | lowest | slower | compile | different | cannot run |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)

SHORT_S: Final = 0.05
"""Of timing a rival whose compile time is wanted."""


def record(name: str, folder: Path, limit_s: float) -> str:
    """Runs a library's tests with a recording graphopt; what was recorded, in words."""
    store = folder / f"{name}.sqlite"
    log = folder / f"{name}.jsonl"
    recording = {"GRAPHOPT_RECORD": "inputs", "GRAPHOPT_STORE": str(store)}
    run = start(LIBRARIES[name].split(), source_of(name, folder), limit_s, log, recording)
    suite = finish(run, log)
    state = "to its end" if suite.ended else "killed" if suite.killed else "stopped"
    return (
        f"{name}: {len(items(Store(store)).items)} modules of {len(suite.outcomes)} tests, {state}"
    )


def chosen(store: Store, each: int) -> Iterator[Item]:
    """So many modules that ran, in the order of their digests: any order that says nothing of them."""
    taken: Counter[str] = Counter()
    for item in sorted(items(store).items, key=lambda item: item.id):
        if item.has_values and taken[item.program] < SAME_NAME and taken.total() < each:
            taken[item.program] += 1
            yield item


def timed(
    library: str,
    store: Store,
    item: Item,
    policy: NamedPolicy,
    budget_s: float,
    against: NamedPolicy | None = None,
) -> Row:
    """One module measured; without times where the policy changes nothing or it cannot run by itself.

    Args:
        library: whose tests compiled it.
        store: of the library.
        item: the module.
        policy: decides about it.
        budget_s: seconds of timing.
        against: decides what it is measured against; None for XLA's default.
    """
    row: Row = {"library": library, "id": item.id, "program": item.program, "status": "default"}
    data, values = load(store, item.id)
    try:
        graph = build_graph(data, allow_donation=True)
        decisions = policy.decide(graph) or graph.default
        rival = (None if against is None else against.decide(graph)) or graph.default
        if decisions.same_as(rival):
            return row
        with Runner(data, inputs_of(data, item, values, 0)) as runner:
            before = runner.measure(rival, budget_s=SHORT_S)
            if not before.ok:
                detail = f"the rival: {before.status} {before.detail}"
                return row | {"status": "cannot run", "detail": detail[:300]}
            found = runner.measure(decisions, against=rival, budget_s=budget_s)
    except MeasureError as error:
        return row | {"status": "cannot run", "detail": str(error)[:300]}
    except GraphOptError as error:
        return row | {"status": "default", "detail": str(error)[:300]}
    return row | {
        "status": found.status,
        "detail": found.detail[:300],
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "compile": found.compile_s / before.compile_s,
        "rival_us": 1e6 * found.rival_s,
        "nodes": len(graph),
    }


def _mean(values: Sequence[float]) -> str:
    """Their geometric mean, as a ratio; nothing for none."""
    return f"{geometric_mean(values):.2f}x" if values else ""


def line(library: str, rows: Iterable[Row]) -> str:
    """A row of the table."""
    every = list(rows)
    states = Counter(row["status"] for row in every)
    right = [row for row in every if row["status"] == "ok"]
    ratios = [row["ratio"] for row in right]
    slower = sum(row["high"] < SLOWER for row in right)
    lowest = f"{min(ratios):.2f}x" if ratios else ""
    different = states.total() - states["ok"] - states["default"] - states["cannot run"]
    return (
        f"| {library} | {len(every)} | {len(every) - states['default']} | {len(ratios)} | {_mean(ratios)}"
        f" | {lowest} | {slower} | {_mean([row['compile'] for row in right])} | {different}"
        f" | {states['cannot run']} |"
    )


def record_all(options: argparse.Namespace) -> int:
    """Records one library after the other."""
    with counted(options.only, "libraries recorded") as rest:
        for name in rest:
            print(record(name, options.folder, options.limit_s), flush=True)
    return 0


def time_all(options: argparse.Namespace) -> int:
    """Times modules of one library after the other; 1 where results differ."""
    policy = resolve(options.policy)
    against = None if options.against is None else resolve(options.against)
    rival = "default" if against is None else against.name
    journal = options.folder / "timed.jsonl"
    mark = {"policy": policy.name, "against": rival, "each": options.each}
    rows = list(read_marked(journal, mark))
    known = {(row["library"], row["id"]) for row in rows}
    stores = {name: Store(options.folder / f"{name}.sqlite") for name in options.only}
    todo = [
        (name, store, item)
        for name, store in stores.items()
        for item in chosen(store, options.each)
        if (name, item.id) not in known
    ]
    with counted(todo, "modules timed") as rest:
        for name, store, item in rest:
            row = timed(name, store, item, policy, options.budget_s, against) | mark
            add_to_journal(journal, row)
            rows.append(row)
    print(HEAD.format(rival))
    for name in options.only:
        of_library = [row for row in rows if row["library"] == name]
        if of_library:
            print(line(name, of_library))
    print(line("all", rows))
    for row in rows:
        if row["status"] not in ("ok", "default", "cannot run"):
            print(
                f"  {row['library']} {row['id']} {row['program']}: {row['status']} {row['detail']}"
            )
    return int(any(row["status"] not in ("ok", "default", "cannot run") for row in rows))


def main() -> int:
    """Records or times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("record", "time"))
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--folder", type=Path, default=Path("report/recorded"))
    parser.add_argument("--limit-s", type=float, default=300.0, help="of each library's tests")
    parser.add_argument("--each", type=int, default=40, help="modules of each library")
    parser.add_argument("--budget-s", type=float, default=1.0, help="of timing, for each module")
    parser.add_argument("--policy", default=DEFAULT)
    parser.add_argument("--against", help="a policy; XLA's default where none is named")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "record":
        options.only = options.only or [name for name in LIBRARIES if is_installed(name)]
        return record_all(options)
    recorded = [
        path.stem for path in sorted(options.folder.glob("*.sqlite")) if "." not in path.stem
    ]
    options.only = options.only or recorded
    return time_all(options)


if __name__ == "__main__":
    sys.exit(ended(main))
