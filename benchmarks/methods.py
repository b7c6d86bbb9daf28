"""``python -m benchmarks methods``: every way to decide, at equal evaluations and at equal seconds.

One evaluation compiles, checks and times a module in a child process of its own. Every method runs until its
evaluations are spent; counted are its best of all of them, and its best of the first seconds, in which the
policy's own arithmetic and the compiling of gradients count. Single short looks flatter a method that takes
many, so what is counted is measured again, longer.

Finished programs are kept in a file, so that an interrupted run can go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import numpy as np
from rich.console import Console

from benchmarks.progress import counted
from benchmarks.searching import (
    EVALUATIONS,
    Best,
    measure_long,
    searched_programs,
    tuner_bests,
)
from graphopt.corpus.program import Program
from graphopt.hlo import DecisionBatch, build_graph
from graphopt.learn.search import ENGINES, Budget
from graphopt.measure import compile_with
from graphopt.measure.inputs import recorded_inputs
from graphopt.measure.measured import MeasuredScorer
from graphopt.measure.plans import vector_key
from graphopt.measure.scoring import Scores
from graphopt.policy import NamedPolicy, resolve
from graphopt.policy.registry import DEFAULT
from graphopt.policy.starts import learned_part
from graphopt.store.journal import add_to_journal, read_marked

SECONDS: Final = 30.0
"""Of searching, at which the methods are compared besides."""

CURVE: Final = (1, 2, 5, 10, 20)
"""Evaluations before the last at which the best so far is measured again: learning curves."""

RANDOM_SHARES: Final = (0.02, 0.1, 0.3)
"""Parts of XLA's decisions that random draws change, in turn."""


class TracingScorer:
    """Scores as another scorer does and keeps every new best, from XLA's default on.

    Attributes:
        name: of the scorer within.
        graph: whose vectors are scored.
        deterministic: whether equal vectors get equal scores.
        bests: in order.
    """

    def __init__(self, scorer: MeasuredScorer) -> None:
        """Times XLA's default, then starts the clock."""
        self.name, self.graph = scorer.name, scorer.graph
        self.deterministic = scorer.deterministic
        self._scorer = scorer
        self._best_s = scorer.default_s
        self._evaluations = 0
        self._start = time.perf_counter()
        self.bests = [Best(0, 0.0, self.graph.default)]

    @property
    def default_s(self) -> float:
        """Seconds of XLA's own decisions."""
        return self._scorer.default_s

    def score(self, batch: DecisionBatch) -> Scores:
        """Times of B vectors inside the graph's masks, one after the other."""
        parts = []
        for index in range(len(batch)):
            parts.append(self._scorer.score(DecisionBatch.stack([batch[index]])))
            self._evaluations += 1
            seconds = float(parts[-1].seconds[0])
            if seconds < self._best_s:
                self._best_s = seconds
                elapsed = time.perf_counter() - self._start
                self.bests.append(Best(self._evaluations, elapsed, batch[index].copy()))
        return Scores(
            np.concatenate([part.seconds for part in parts]),
            tuple(reason for part in parts for reason in part.reasons),
            measured=sum(part.measured for part in parts),
            known=sum(part.known for part in parts),
        )


Method = Callable[[TracingScorer, NamedPolicy, int], None]
"""Spends so many evaluations on a scorer, or a few more; takes the shipped policy and a seed of 0."""


def _zero_shot(scorer: TracingScorer, shipped: NamedPolicy, evaluations: int) -> None:
    decided = shipped.decide(scorer.graph)
    if decided is not None:
        scorer.score(DecisionBatch.stack([decided]))


def _heuristic(scorer: TracingScorer, shipped: NamedPolicy, evaluations: int) -> None:
    _zero_shot(scorer, resolve("heuristic"), evaluations)


def _engine(name: str) -> Method:
    def search(scorer: TracingScorer, shipped: NamedPolicy, evaluations: int) -> None:
        ENGINES[name](scorer, Budget(evaluations), 0)

    return search


def _random(scorer: TracingScorer, shipped: NamedPolicy, evaluations: int) -> None:
    rng, graph = np.random.default_rng(0), scorer.graph
    for index in range(evaluations):
        share = RANDOM_SHARES[index % len(RANDOM_SHARES)]
        drawn = graph.masks.sample(rng, graph.default, share)
        scorer.score(DecisionBatch.stack([drawn]))


def _finetuned(scorer: TracingScorer, shipped: NamedPolicy, evaluations: int) -> None:
    from graphopt.learn.finetune import finetune  # it imports flax and optax

    learned = learned_part(shipped)
    if learned is not None:
        # Rollouts of 16: the last may go beyond, and what it finds there does not count.
        finetune(learned.network, scorer, budget_s=float("inf"), max_steps=-(-evaluations // 16))


METHODS: Final[dict[str, Method]] = {
    "heuristic": _heuristic,
    "zero-shot": _zero_shot,
    "fine-tuned": _finetuned,
    "random": _random,
    "greedy": _engine("greedy"),
    "annealing": _engine("annealing"),
    "genetic": _engine("genetic"),
}
"""Those that score through a scorer; the tuner's search, with and without the policy, has its own."""

TUNERS: Final = ("tuned without", "tuned with policy")


@dataclass(frozen=True)
class MethodsRow:
    """One program.

    Attributes:
        program: its name.
        nodes: of its graph.
        curves: method -> speed-ups of its best of so many evaluations (`counts`), measured again.
        by_seconds: method -> speed-up of its best of the first `seconds`, measured again.
        evaluations: that each method had.
        seconds: of searching.
    """

    program: str
    nodes: int
    curves: dict[str, list[float]]
    by_seconds: dict[str, float]
    evaluations: int
    seconds: float

    @property
    def by_evaluations(self) -> dict[str, float]:
        """Method -> speed-up of its best of all evaluations."""
        return {name: curve[-1] for name, curve in self.curves.items()}

    def __str__(self) -> str:
        """A row of a Markdown table."""
        cells = [
            f"{self.by_evaluations[name]:.2f}x / {self.by_seconds[name]:.2f}x"
            for name in self.by_evaluations
        ]
        return f"| {self.program} | {' | '.join(cells)} |"


def compare_methods(
    program: Program,
    policy: NamedPolicy,
    evaluations: int = EVALUATIONS,
    seconds: float = SECONDS,
) -> MethodsRow:
    """Runs every method on a program's largest module, each with a fresh child process.

    Raises:
        GraphOptError: the program cannot be compiled or measured.
    """
    fn, args = program.build()
    compiled = compile_with(fn, args)
    graph = build_graph(max(compiled.modules, key=len))
    inputs = recorded_inputs(compiled.executable, args)
    bests = {}
    for name in (*METHODS, *TUNERS):
        with closing(MeasuredScorer(graph, inputs)) as scorer:
            tracing = TracingScorer(scorer)  # starts the child
            if name in TUNERS:
                used = policy if name == TUNERS[1] else None
                bests[name] = tuner_bests(scorer, used, evaluations, 0)
            else:
                METHODS[name](tracing, policy, evaluations)
                bests[name] = tracing.bests
    with closing(MeasuredScorer(graph, inputs)) as scorer:
        judge = _Judge(scorer)
        return MethodsRow(
            program.name,
            len(graph),
            {n: [judge(b, _within(k)) for k in counts(evaluations)] for n, b in bests.items()},
            {n: judge(best, lambda b: b.seconds <= seconds) for n, best in bests.items()},
            evaluations,
            seconds,
        )


def counts(evaluations: int) -> list[int]:
    """Evaluations at which the best so far counts: those of `CURVE` before the last, and the last."""
    return [*(k for k in CURVE if k < evaluations), evaluations]


def _within(evaluations: int) -> Callable[[Best], bool]:
    return lambda best: best.evaluations <= evaluations


class _Judge:
    """Measures the last best that counts again, equal vectors once; what fails then is XLA's default."""

    def __init__(self, scorer: MeasuredScorer) -> None:
        self._scorer = scorer
        self._known: dict[bytes, float] = {}

    def __call__(self, bests: Sequence[Best], counts: Callable[[Best], bool]) -> float:
        last = [best.decisions for best in bests if counts(best)][-1]
        key = vector_key(last)
        if key not in self._known:
            self._known[key] = measure_long(self._scorer, last) or 1.0
        return self._known[key]


def bench_methods(console: Console, out: Path, graphs: Sequence[str] = ()) -> None:
    """Prints a row per program, then geometric means.

    Args:
        console: what is written to.
        out: directory of ``methods.jsonl``, which keeps finished programs; those in it are not run again.
        graphs: names of held-out programs; empty for every fourth.
    """
    policy = resolve(DEFAULT)
    mark = {
        "policy": policy.key, "evaluations": EVALUATIONS, "seconds": SECONDS, "curve": list(CURVE),
    }  # fmt: skip
    path = out / "methods.jsonl"
    known = finished(path, mark)
    names = (*METHODS, *TUNERS)
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(f"| program | {' | '.join(names)} |\n|{' --- |' * (1 + len(names))}")
    rows = []
    with counted(searched_programs(graphs), "programs searched") as rest:
        for program in rest:
            row = known.get(program.name)
            if row is None:
                try:
                    row = compare_methods(program, policy)
                except Exception as error:  # a program that fails is named; the others go on
                    say(f"| {program.name} | failed: {error} |")
                    continue
                add_to_journal(path, asdict(row) | mark)
            say(str(row))
            rows.append(row)
    say(summary(rows))
    say(learning_curves(rows, EVALUATIONS))


def finished(path: Path, mark: dict[str, Any]) -> dict[str, MethodsRow]:
    """Rows of an earlier run with the same policy and limits, by program."""
    found = {}
    for entry in read_marked(path, mark):
        del entry["policy"], entry["curve"]
        found[entry["program"]] = MethodsRow(**entry)
    return found


def summary(rows: Sequence[MethodsRow]) -> str:
    """A last row: geometric means."""
    if not rows:
        return "nothing was measured"
    cells = []
    for name in rows[0].by_evaluations:
        means = [
            geometric_mean([getattr(row, field)[name] for row in rows])
            for field in ("by_evaluations", "by_seconds")
        ]
        cells.append(f"{means[0]:.2f}x / {means[1]:.2f}x")
    return f"| geometric mean of {len(rows)} | {' | '.join(cells)} |"


def learning_curves(rows: Sequence[MethodsRow], evaluations: int) -> str:
    """A Markdown table: geometric means of the programs by method and number of evaluations."""
    columns = counts(evaluations)
    lines = [
        f"| best of so many evaluations | {' | '.join(map(str, columns))} |",
        f"|{' --- |' * (1 + len(columns))}",
    ]
    for name in rows[0].curves if rows else ():
        means = map(geometric_mean, zip(*(row.curves[name] for row in rows), strict=True))
        lines.append(f"| {name} | {' | '.join(f'{mean:.2f}x' for mean in means)} |")
    return "\n".join(lines)
