"""What ``graphopt.explain`` says of programs beside what an installed plugin makes of them.

    python -m benchmarks.explained [pkg.module:WORKLOADS ...] [--limit 20] [--out report/explained.jsonl]

Each program is explained, then compiled anew by jax alone and under `graphopt.install`, and both timed in
turn, as `graphopt demo` does. By default: twenty programs that use third-party libraries, of
`benchmarks.third_party` where the library is installed, filled up with the corpus. Prints a Markdown table,
then the median and the largest error. What is measured is kept in ``--out``: the same command goes on there.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

import graphopt
from benchmarks.progress import counted, ended
from graphopt.corpus.program import Program
from graphopt.corpus.workloads import build_program, load_programs
from graphopt.errors import GraphOptError
from graphopt.evaluate.commands.demo import measure_program
from graphopt.store.journal import add_to_journal, read_marked

BUDGET_S: Final = 2.0
"""Seconds of timing, of each of the two measurements."""

THIRD_PARTY: Final = "benchmarks.third_party.programs:WORKLOADS"

FILLING: Final = "held-out"
"""Where programs are taken from when the installed libraries have fewer than are wanted."""

Row = dict[str, Any]


def spread(programs: Sequence[Program], count: int) -> Iterator[Program]:
    """All programs: at first so many at equal distances, then those between them."""
    step = max(1, len(programs) // max(1, count))
    return (program for start in range(step) for program in programs[start::step])


def chosen(workloads: Sequence[str], count: int) -> list[Program]:
    """So many programs of the sets that are named; of third-party programs and the corpus if none is.

    Raises:
        WorkloadError: there is no such set.
    """
    found: list[Program] = []
    for name in workloads or (THIRD_PARTY, FILLING):
        rest = spread(list(load_programs(name).values()), count - len(found))
        found += islice((p for p in rest if workloads or builds(p)), count - len(found))
    return found


def builds(program: Program) -> bool:
    """False where the library of a program is not installed, or does not work with this jax."""
    try:
        build_program(program, program.name)
    except GraphOptError:
        return False
    return True


def compared(program: Program) -> Row:
    """One program explained, then measured; without ``error`` where the explanation is an estimate.

    Raises:
        GraphOptError: it cannot be built, compiled or run.
    """
    fn, args = build_program(program, program.name)
    said = graphopt.explain(fn, *args, measure_s=BUDGET_S)
    found = measure_program(program, "shipped", BUDGET_S).times.speedup
    row: Row = {"name": program.name, "explained": said.speedup, "installed": found}
    if said.measured is None:
        return {**row, "why": said.why_estimated}
    return {**row, "error": math.expm1(abs(math.log(said.speedup / found)))}


def line(row: Row) -> str:
    """A row of the table."""
    if "error" not in row:
        installed = f"{row['installed']:.2f}x" if "installed" in row else ""
        return f"| {row['name']} | {row['why']} | {installed} | |"
    return f"| {row['name']} | {row['explained']:.2f}x | {row['installed']:.2f}x | {row['error']:.0%} |"


def summary(rows: Iterable[Row]) -> str:
    """How many programs were measured, the median error and the largest."""
    errors = [row["error"] for row in rows if "error" in row]
    if not errors:
        return "nothing was measured"
    return f"{len(errors)} programs: median error {np.median(errors):.1%}, largest {np.max(errors):.1%}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="explanations beside measurements")
    parser.add_argument(
        "workloads", nargs="*", help="sets of programs; third-party ones by default"
    )
    parser.add_argument("--limit", type=int, default=20, help="programs in all")
    parser.add_argument("--out", type=Path, default=Path("report/explained.jsonl"))
    parser.add_argument("--list", action="store_true", help="names the programs, measures nothing")
    options = parser.parse_args()
    programs = chosen(options.workloads, options.limit)
    if options.list:
        print("\n".join(program.name for program in programs))
        return
    mark = {"jax": jax.__version__, "graphopt": graphopt.__version__, "budget_s": BUDGET_S}
    known = {row["name"]: row for row in read_marked(options.out, mark)}
    print("| program | explained | installed | error |\n| --- | --- | --- | --- |")
    rows: list[Row] = []
    with counted(programs, "programs explained and measured") as rest:
        for program in rest:
            if program.name not in known:
                try:
                    known[program.name] = compared(program)
                except GraphOptError as error:
                    print(line({"name": program.name, "why": error.what}), flush=True)
                    continue
                add_to_journal(options.out, {**known[program.name], **mark})
            rows.append(known[program.name])
            print(line(rows[-1]), flush=True)
    print(f"\n{summary(rows)}")


if __name__ == "__main__":
    sys.exit(ended(main))
