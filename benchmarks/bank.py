"""``python -m benchmarks bank``: is the additive score true, and how fast is it?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.progress import counted
from graphopt.corpus.program import Program
from graphopt.corpus.workloads import builtin_programs, load_programs
from graphopt.hlo import DecisionBatch, Decisions
from graphopt.learn.collecting.fill import neighbours
from graphopt.learn.search.portfolio import portfolio
from graphopt.measure import compile_with
from graphopt.measure.bank.predictor import KernelModel, LinearModel
from graphopt.measure.bank.scorer import BankScorer
from graphopt.measure.children.runner import Runner
from graphopt.measure.inputs import recorded_inputs
from graphopt.store import Store
from graphopt.store.kernels import Kernel, all_kernels

FILL: Final = 12
"""Vectors profiled per program beside the portfolio."""

CHECK: Final = 16
"""Fresh vectors per program whose score is compared with a measurement of the whole module."""


@dataclass(frozen=True)
class BankRow:
    """One program.

    Attributes:
        name: program name.
        nodes: graph nodes.
        kernels: kernels profiled.
        fill_s: seconds to profile them.
        predicted: float64 [V]; scores of the fresh vectors, seconds.
        measured: float64 [V]; measured seconds.
        batch_rate: vectors scored per second, batches of 256, known clusters.
        single_rate: likewise one at a time.
    """

    name: str
    nodes: int
    kernels: int
    fill_s: float
    predicted: NDArray[np.float64]
    measured: NDArray[np.float64]
    batch_rate: float
    single_rate: float

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of score and measurement."""
        return spearman(self.predicted, self.measured)

    @property
    def error(self) -> float:
        """Median relative error of the score."""
        return float(np.median(np.abs(self.predicted / self.measured - 1.0)))


def spearman(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Rank correlation; 0 where one side is constant."""
    from scipy.stats import spearmanr

    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return 0.0
    return float(spearmanr(one, two).statistic)


CHOSEN = ("prefixes", "attention_grad", "conv_grad", "mlp_grad", "viterbi", "clustering")
LARGE = ("scan_many_carries_grad",)
"""Left out: 40 compiles of 2,360 nodes take longer than all others together."""


def bench_demo(console: Console, budget_s: float) -> None:
    """The check for the demo's programs and some small ones."""
    demo = [p for name, p in load_programs("demo").items() if name not in LARGE]
    bench_bank([*(builtin_programs()[name] for name in CHOSEN), *demo], console)


def bench_bank(programs: Sequence[Program], console: Console) -> list[BankRow]:
    """Fills a fresh bank from each program, then scores and measures vectors it has not seen."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "bank.sqlite")
        with counted(programs, "programs filled and scored") as rest:
            for program in rest:
                row = _one(program, store)
                rows.append(row)
                console.print(_line(row), highlight=False)
        summarise(rows, console)
        kernel_model_errors(all_kernels(store), console)
    return rows


def _one(program: Program, store: Store) -> BankRow:
    fn, args = program.build()
    compiled = compile_with(fn, args)
    data = max(compiled.modules, key=len)
    with Runner(data, recorded_inputs(compiled.executable, args), store) as runner:
        graph = runner.graph
        rng = np.random.default_rng(0)
        starts = [start.decisions for start in portfolio(graph)]
        runner.start()
        begin = time.perf_counter()
        filled = [*starts, *neighbours(graph, starts, rng, FILL)]
        fill = BankScorer(graph, store)
        kernels = sum(fill.profile(runner, vector) for vector in filled)
        seconds = time.perf_counter() - begin
        scorer = BankScorer(graph, store)
        for vector in filled:
            scorer.recall(vector)
        fresh = neighbours(graph, starts, rng, CHECK)
        times = [runner.measure(vector, budget_s=0.3) for vector in fresh]
        good = [i for i, t in enumerate(times) if t.ok]
        measured = np.array([times[i].seconds for i in good])
        predicted = scorer.score(DecisionBatch.stack([fresh[i] for i in good])).seconds
        batch_rate, single_rate = rates(scorer, fresh)
    return BankRow(
        program.name, len(graph), kernels, seconds, predicted, measured, batch_rate, single_rate
    )


def rates(scorer: BankScorer, vectors: Sequence[Decisions]) -> tuple[float, float]:
    """Vectors per second with known clusters: batched by 256, and one at a time."""
    repeated = [vectors[i % len(vectors)] for i in range(256)]
    batch = DecisionBatch.stack(repeated)
    scorer.score(batch)
    begin = time.perf_counter()
    for _ in range(8):
        scorer.score(batch)
    batched = 8 * 256 / (time.perf_counter() - begin)
    singles = [DecisionBatch.stack([v]) for v in repeated[:64]]
    begin = time.perf_counter()
    for single in singles:
        scorer.score(single)
    return batched, 64 / (time.perf_counter() - begin)


def _line(row: BankRow) -> str:
    return (
        f"| {row.name} | {row.nodes} | {row.kernels} | {row.fill_s:.1f} | {row.correlation:.2f} | "
        f"{row.error:.0%} | {row.batch_rate:,.0f} | {row.single_rate:,.0f} |"
    )


def summarise(rows: Sequence[BankRow], console: Console) -> None:
    """Pooled figures: over all vectors of all programs, and the median program."""
    predicted = np.concatenate([r.predicted for r in rows])
    measured = np.concatenate([r.measured for r in rows])
    relative = [r.measured / np.median(r.measured) for r in rows]
    shares = [r.predicted / np.median(r.predicted) for r in rows]
    console.print(
        f"columns: program, nodes, kernels profiled, seconds, rank correlation, median error, vectors "
        f"per second batched, one at a time\n{len(predicted)} vectors of {len(rows)} programs: rank "
        f"correlation {spearman(predicted, measured):.3f} over all, "
        f"{spearman(np.concatenate(shares), np.concatenate(relative)):.2f} over all within programs, "
        f"median program {np.median([r.correlation for r in rows]):.2f}; median relative error "
        f"{np.median(np.abs(predicted / measured - 1)):.0%}",
        highlight=False,
    )


def kernel_model_errors(kernels: list[Kernel], console: Console) -> None:
    """Trees against the linear form on held-out kernels: median error, and within a factor of two."""
    rng = np.random.default_rng(0)
    held = rng.random(len(kernels)) < 0.2
    train = [k for k, h in zip(kernels, held, strict=True) if not h]
    test = [k for k, h in zip(kernels, held, strict=True) if h]
    features = np.array([k.features for k in test])
    ns = np.array([k.ns for k in test])
    trees = KernelModel(train)
    linear = LinearModel.fit(np.array([k.features for k in train]), np.array([k.ns for k in train]))
    for name, predicted in (
        ("trees", trees.predict(features)[0]),
        ("linear", linear.predict(features)),
    ):
        error = np.abs(np.log(predicted / ns))
        console.print(
            f"kernel model {name}: {len(train)} kernels for training, {len(test)} held out: median "
            f"error {np.expm1(np.median(error)):.0%}, within a factor of two "
            f"{(error < np.log(2)).mean():.0%}, rank correlation {spearman(predicted, ns):.3f}",
            highlight=False,
        )
