"""``graphopt bench overhead``: milliseconds in the hook against XLA's own compile time of the same module.

Each module is offered to an installed graphopt in two processes, one after the other: the first has not seen
it, the second finds the answer of the first in the store. XLA's time is that of its default: nothing of the
hook is in it. Programs come from the demo and, where their libraries are installed, `benchmarks.third_party`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from graphopt.corpus.program import Program
from graphopt.corpus.workloads import load_programs
from graphopt.errors import WorkloadError
from graphopt.hlo.module.index import parse
from graphopt.measure.compiling.functions import Compiled, compile_with
from graphopt.progress import Show, steps

SETS: Final = ("demo", "benchmarks.third_party.programs:WORKLOADS")
"""Program sets; one that cannot be imported is left out."""

COMPILES: Final = 3
COMPILES_S: Final = 4.0
"""Compiles by XLA's default, fewer where they take so many seconds together; the median counts."""

ROUNDS: Final = 3
"""Pairs of processes, each pair with a store of its own; the median counts."""

TIMEOUT_S: Final = 600.0

_WORKER: Final = ("-m", "graphopt.evaluate.overhead_worker")


@dataclass(frozen=True)
class Overhead:
    """What the modules of one program cost.

    Attributes:
        program: name.
        instructions: HLO instructions.
        outcome: what became of the largest module at first sight.
        xla_s: seconds that XLA compiles by its default.
        first_s: seconds in the hook at first sight.
        again_s: seconds in the hook of a later process.
    """

    program: str
    instructions: int
    outcome: str
    xla_s: float
    first_s: float
    again_s: float

    @property
    def first(self) -> float:
        """Share of XLA's time at first sight."""
        return self.first_s / self.xla_s

    @property
    def again(self) -> float:
        """Share of XLA's time where the answer is remembered."""
        return self.again_s / self.xla_s


@dataclass(frozen=True)
class _Captured:
    program: str
    xla_s: float
    modules: list[bytes]


def bench_overhead(console: Console, out: Path, names: Sequence[str] = ()) -> list[Overhead]:
    """Measures, prints a table and writes ``overhead.json``.

    Args:
        console: what is written to.
        out: directory of the JSON file.
        names: of programs; empty for all.

    Raises:
        WorkloadError: there is no such program.
        KeyboardInterrupt: it was interrupted; nothing is written.
    """
    programs = _programs(names)
    with steps(console, len(programs) + 2 * ROUNDS, "steps done") as show:
        captured = list(_capture(console, programs, show))
        rows = _measured(captured, lambda text, done: show(text, len(programs) + done))
    out.mkdir(parents=True, exist_ok=True)
    written = out / "overhead.json"
    written.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    console.print(_table(rows))
    for title, shares in (
        ("at first sight", [row.first for row in rows]),
        ("remembered", [row.again for row in rows]),
    ):
        console.print(
            f"share of XLA's compile time, {title}: median {median(shares):.2%}, "
            f"largest {max(shares):.2%}, {len(rows)} programs"
        )
    console.print(f"written to {written}")
    return rows


def _programs(names: Sequence[str]) -> list[Program]:
    found: dict[str, Program] = {}
    for spec in SETS:
        try:
            found |= {program.name: program for program in load_programs(spec).values()}
        except WorkloadError:
            if spec == "demo":
                raise
    unknown = sorted(set(names) - set(found))
    if unknown:
        raise WorkloadError(
            what=f"no program {', '.join(unknown)}",
            where="graphopt bench overhead --graphs",
            fix=f"Choose from {', '.join(found)}.",
        )
    return [program for name, program in found.items() if not names or name in names]


def _capture(console: Console, programs: Sequence[Program], show: Show) -> Iterator[_Captured]:
    """Compiles by XLA's default; programs whose library is missing, or too old for this jax, are named."""
    for done, program in enumerate(programs):
        show(f"overhead: compiling {program.name}", done)
        try:
            compiles = _compiled(program)
        except Exception as error:  # of somebody else's library
            console.print(f"{program.name} is left out: {type(error).__name__}")
            continue
        yield _Captured(program.name, median(c.compile_s for c in compiles), compiles[0].modules)


def _compiled(program: Program) -> list[Compiled]:
    fn, args = program.build()
    compiles = [compile_with(fn, args)]
    while len(compiles) < COMPILES and sum(c.compile_s for c in compiles) < COMPILES_S:
        compiles.append(compile_with(fn, args))
    return compiles


def _measured(captured: Sequence[_Captured], show: Show) -> list[Overhead]:
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, program in enumerate(captured):
            for module, data in enumerate(program.modules):
                paths.append(Path(folder) / f"{number}.{module}")
                paths[-1].write_bytes(data)
        rounds = []
        for count in range(ROUNDS):
            pair = []
            for which in range(2):
                show(f"overhead: round {count + 1} of {ROUNDS}", 2 * count + which)
                pair.append(_offered(paths, Path(folder) / f"store{count}.sqlite"))
            rounds.append(pair)
    rows, first = [], 0
    for program in captured:
        places = range(first, first + len(program.modules))
        first += len(program.modules)
        seconds = [
            median(sum(pair[which][place][0] for place in places) for pair in rounds)
            for which in range(2)
        ]
        largest = max(places, key=lambda place: len(program.modules[place - places.start]))
        rows.append(
            Overhead(
                program.program,
                sum(parse(data).instruction_count for data in program.modules),
                rounds[0][0][largest][1],
                program.xla_s,
                *seconds,
            )
        )
    return rows


def _offered(paths: Sequence[Path], store: Path) -> list[tuple[float, str]]:
    """Seconds and outcome of each module in a new process."""
    asked = json.dumps({"store": str(store), "modules": [str(path) for path in paths]})
    done = subprocess.run(
        (sys.executable, *_WORKER),
        input=asked,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return [(seconds, outcome) for seconds, outcome in json.loads(done.stdout)]


def _table(rows: Sequence[Overhead]) -> Table:
    table = Table(title="time in the hook, and its share of XLA's compile time without it")
    for position, column in enumerate(
        ("program", "instructions", "XLA ms", "outcome", "first ms", "share", "again ms", "share")
    ):
        table.add_column(column, justify="left" if position in (0, 3) else "right")
    for row in rows:
        table.add_row(
            row.program, str(row.instructions), f"{row.xla_s * 1e3:.0f}", row.outcome,
            f"{row.first_s * 1e3:.1f}", f"{row.first:.1%}", f"{row.again_s * 1e3:.2f}",
            f"{row.again:.2%}",
        )  # fmt: skip
    return table
