"""``python -m benchmarks search``: evaluations that a search with the policy needs to reach others.

On each program annealing and the genetic search spend all their evaluations, every one a compiled, checked
and timed module. The tuner's search starts from the policy's proposals and has as many. Single short looks
flatter a search that takes many, so what each ended with is measured again, longer, and counts where that
says with confidence that XLA's default is slower. The policy's search has arrived when one of its bests,
measured likewise, is as fast as the better of the two. Programs in which neither gained are not compared.

Finished programs are kept in a file, so that an interrupted run can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Final

from rich.console import Console

from benchmarks.progress import counted
from benchmarks.searching import EVALUATIONS, measure_long, searched_programs, tuner_bests
from graphopt.corpus.program import Program
from graphopt.hlo import build_graph
from graphopt.learn.search import ENGINES, Budget
from graphopt.measure import compile_with
from graphopt.measure.inputs import recorded_inputs
from graphopt.measure.measured import MeasuredScorer
from graphopt.policy import NamedPolicy, resolve
from graphopt.policy.registry import DEFAULT
from graphopt.store.journal import add_to_journal, read_marked

RIVALS: Final = ("annealing", "genetic")
AS_FAST: Final = 0.98
"""Speed-ups this near count as reached: differences below 2 % are noise here."""


@dataclass(frozen=True)
class SearchRow:
    """One program.

    Attributes:
        program: its name.
        nodes: of its graph.
        rivals: search without policy -> speed-up of its best vector, measured again.
        steps: (evaluations, speed-up measured again) of every best of the search with the policy.
        evaluations: that each search had.
    """

    program: str
    nodes: int
    rivals: dict[str, float]
    steps: tuple[tuple[int, float], ...]
    evaluations: int

    @property
    def goal(self) -> float:
        """What the better rival reached; XLA's default if both lost."""
        return max(1.0, *self.rivals.values())

    @property
    def best(self) -> float:
        """What the search with the policy reached; XLA's default if it lost."""
        return max(1.0, *(speedup for _, speedup in self.steps))

    @property
    def reached_at(self) -> int | None:
        """Evaluations until the search with the policy was as fast; None if it never was."""
        arrived = (n for n, speedup in self.steps if speedup >= AS_FAST * self.goal)
        return next(arrived, None)

    @property
    def fewer(self) -> float:
        """The rivals' evaluations over the policy's; 1 where it did not arrive."""
        at = self.reached_at
        return 1.0 if at is None else self.evaluations / max(1, at)

    def __str__(self) -> str:
        """A row of a Markdown table."""
        rivals = " | ".join(f"{speedup:.2f}x" for speedup in self.rivals.values())
        at = "not reached" if self.reached_at is None else str(self.reached_at)
        fewer = f"{self.fewer:.1f}x" if self.goal > 1.0 else "not compared"
        return f"| {self.program} | {self.nodes} | {rivals} | {self.best:.2f}x | {at} | {fewer} |"


def search_program(
    program: Program, policy: NamedPolicy, evaluations: int = EVALUATIONS, seed: int = 0
) -> SearchRow:
    """Runs the rivals and the search with the policy on a program's largest module.

    Raises:
        GraphOptError: the program cannot be compiled or measured.
    """
    fn, args = program.build()
    compiled = compile_with(fn, args)
    data = max(compiled.modules, key=len)
    scorer = MeasuredScorer(build_graph(data), recorded_inputs(compiled.executable, args))
    try:
        rivals = {
            name: measure_long(scorer, ENGINES[name](scorer, Budget(evaluations), seed).decisions)
            for name in RIVALS
        }
        bests = tuner_bests(scorer, policy, evaluations, seed)
        steps = tuple((best.evaluations, measure_long(scorer, best.decisions)) for best in bests)
    finally:
        scorer.close()
    return SearchRow(program.name, len(scorer.graph), rivals, steps, evaluations)


def bench_search(console: Console, out: Path, graphs: Sequence[str] = ()) -> None:
    """Prints a row per program, then the geometric mean of how many fewer evaluations it took.

    Args:
        console: what is written to.
        out: directory of ``search.jsonl``, which keeps finished programs; those in it are not searched again.
        graphs: names of held-out programs; empty for every fourth.
    """
    policy = resolve(DEFAULT)
    console.print(
        f"| program | nodes | {' | '.join(RIVALS)} | with {policy.name} | reached at | fewer |\n"
        f"|{' --- |' * (5 + len(RIVALS))}",
        highlight=False,
    )
    known = Finished(out / "search.jsonl", policy.key)
    rows = []
    with counted(searched_programs(graphs), "programs searched") as rest:
        for program in rest:
            row = known.rows.get(program.name) or _row(program, policy, console)
            if row is not None:
                console.print(str(row), highlight=False)
                rows.append(row)
                known.add(row)
    summarise(rows, console)


class Finished:
    """Rows of an earlier run with the same policy and as many evaluations, in a file of JSON lines."""

    def __init__(self, path: Path, policy_key: str) -> None:
        """Reads the file if there is one."""
        self.path = path
        self.rows: dict[str, SearchRow] = {}
        self._mark = {"policy": policy_key, "evaluations": EVALUATIONS}
        for entry in read_marked(path, self._mark):
            del entry["policy"]
            steps = tuple((int(count), float(speedup)) for count, speedup in entry.pop("steps"))
            self.rows[entry["program"]] = SearchRow(**entry, steps=steps)

    def add(self, row: SearchRow) -> None:
        """Keeps a row that is not known yet."""
        if row.program in self.rows:
            return
        self.rows[row.program] = row
        add_to_journal(self.path, asdict(row) | self._mark)


def _row(program: Program, policy: NamedPolicy, console: Console) -> SearchRow | None:
    try:
        return search_program(program, policy)
    except Exception as error:  # a program that fails is named; the others go on
        console.print(f"| {program.name} | failed: {error} |", highlight=False)
        return None


def summarise(rows: Sequence[SearchRow], console: Console) -> None:
    """Geometric means over the programs in which a rival gained."""
    compared = [row for row in rows if row.goal > 1.0]
    console.print(f"{len(rows)} programs, {EVALUATIONS} evaluations each", highlight=False)
    if not compared:
        return
    reached = sum(row.reached_at is not None for row in compared)
    goal, best, fewer = (
        geometric_mean([getattr(row, name) for row in compared])
        for name in ("goal", "best", "fewer")
    )
    console.print(
        f"in {len(compared)} a rival gained: the better one {goal:.2f}x, the search with the policy "
        f"{best:.2f}x; it arrives in {reached}, with {fewer:.1f} times fewer evaluations (geometric means)",
        highlight=False,
    )
