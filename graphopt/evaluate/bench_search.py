"""``graphopt bench search``: evaluations that a search with the policy needs to reach searches without it.

On each program annealing and the genetic search spend all their evaluations, every one a compiled, checked
and timed module. The tuner's search starts from the policy's proposals and has as many. Single short looks
flatter a search that takes many, so what each ended with is measured again, longer, and the policy's search
has arrived when one of its bests, measured likewise, is as fast as the better of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Final

from rich.console import Console

from graphopt.corpus.program import Program
from graphopt.corpus.workloads import load_programs
from graphopt.hlo import Decisions, build_graph
from graphopt.learn.search import ENGINES, Budget
from graphopt.learn.tune.search import ModuleSearch
from graphopt.measure import compile_with
from graphopt.measure.inputs import recorded_inputs
from graphopt.measure.measured import MeasuredScorer
from graphopt.policy import NamedPolicy, resolve
from graphopt.policy.base import DEFAULT
from graphopt.policy.suggestions import suggestions

SPLIT: Final = "held-out"
EVERY: Final = 4
"""Every so many programs of the split are searched: each takes a minute or two."""

RIVALS: Final = ("annealing", "genetic")
EVALUATIONS: Final = 40
LONG_S: Final = 1.0
"""Timing of what a search ended with."""

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
        best = max((s for _, s in self.steps), default=1.0)
        at = "not reached" if self.reached_at is None else str(self.reached_at)
        return (
            f"| {self.program} | {self.nodes} | {rivals} | {best:.2f}x | {at} | {self.fewer:.1f}x |"
        )


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
            name: _long(scorer, ENGINES[name](scorer, Budget(evaluations), seed).decisions)
            for name in RIVALS
        }
        steps = _with_policy(scorer, policy, evaluations, seed)
    finally:
        scorer.close()
    return SearchRow(program.name, len(scorer.graph), rivals, steps, evaluations)


def _with_policy(
    scorer: MeasuredScorer, policy: NamedPolicy, evaluations: int, seed: int
) -> tuple[tuple[int, float], ...]:
    search = ModuleSearch(scorer.runner, None, seed, None, suggestions(policy, scorer.graph, seed))
    bests: list[tuple[int, Decisions]] = [(0, search.best.decisions)]
    for _ in search.steps():
        if search.best.decisions is not bests[-1][1]:
            bests.append((search.evaluations, search.best.decisions))
        if search.evaluations >= evaluations:
            break
    return tuple((count, _long(scorer, decisions)) for count, decisions in bests)


def _long(scorer: MeasuredScorer, decisions: Decisions) -> float:
    """Speed-up over XLA's default; 0 for a failure, exactly 1 for the default."""
    if decisions.same_as(scorer.graph.default):
        return 1.0
    found = scorer.runner.measure(decisions, budget_s=LONG_S, method="search")
    return found.ratio if found.ok else 0.0


def bench_search(console: Console, budget_s: float) -> None:
    """Prints a row per program, then the geometric mean of how many fewer evaluations it took."""
    policy = resolve(DEFAULT)
    programs = list(load_programs(SPLIT).values())[::EVERY]
    console.print(
        f"| program | nodes | {' | '.join(RIVALS)} | with {policy.name} | reached at | fewer |\n"
        f"|{' --- |' * (5 + len(RIVALS))}",
        highlight=False,
    )
    rows = [row for program in programs if (row := _row(program, policy, console)) is not None]
    summarise(rows, console)


def _row(program: Program, policy: NamedPolicy, console: Console) -> SearchRow | None:
    try:
        row = search_program(program, policy)
    except Exception as error:  # a program that fails is named; the others go on
        console.print(f"| {program.name} | failed: {error} |", highlight=False)
        return None
    console.print(str(row), highlight=False)
    return row


def summarise(rows: Sequence[SearchRow], console: Console) -> None:
    """Geometric means over the programs."""
    reached = sum(row.reached_at is not None for row in rows)
    goals = geometric_mean([row.goal for row in rows])
    bests = geometric_mean([max(1.0, *(s for _, s in row.steps)) for row in rows])
    console.print(
        f"{len(rows)} programs, {EVALUATIONS} evaluations each: the better rival reaches {goals:.2f}x, the "
        f"search with the policy {bests:.2f}x; it arrives on {reached} programs, with "
        f"{geometric_mean([row.fewer for row in rows]):.1f} times fewer evaluations (geometric means)",
        highlight=False,
    )
