"""``python -m benchmarks bank-corpus``: the additive score against all that was measured whole.

Nothing is measured here. For every program of the train and validation splits the decision vectors in the
user's store are scored by the kernel bank of the same store; predicted and measured speed-ups over XLA's
default are compared. Some of the vectors were profiled into the bank, most were not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.bank import spearman
from benchmarks.progress import counted
from graphopt.corpus import load_corpus
from graphopt.hlo import DecisionBatch, Graph
from graphopt.measure.bank.predictor import KernelModel, model_of
from graphopt.measure.bank.scorer import BankScorer
from graphopt.store import Store
from graphopt.store.encoding import decode_known
from graphopt.store.winners import evaluations

SPLITS: Final = ("train", "validation")
FEWEST: Final = 4
"""Programs with fewer measured vectors say nothing about ranks."""

CLEAR: Final = 0.05
"""Log speed-up from which a vector clearly gains or loses."""


@dataclass(frozen=True)
class CorpusRow:
    """One program.

    Attributes:
        program: its name.
        nodes: of its graph.
        predicted: float64 [V]; log speed-ups over XLA's default by the bank.
        measured: float64 [V]; measured log speed-ups of whole modules.
    """

    program: str
    nodes: int
    predicted: NDArray[np.float64]
    measured: NDArray[np.float64]


def compare_program(
    program: str, graph: Graph, store: Store, model: KernelModel
) -> CorpusRow | None:
    """Predicted against measured speed-ups of one program; None where the store knows too few."""
    found = decode_known(graph, evaluations(store, graph.fingerprint))
    if len(found) < FEWEST:
        return None
    scorer = BankScorer(graph, store, model)
    for decisions, _ in found:
        scorer.recall(decisions)
    seconds = scorer.score(DecisionBatch.stack([d for d, _ in found])).seconds
    usable = np.isfinite(seconds)
    predicted = np.log(scorer.default_s / seconds[usable])
    measured = np.log([ratio for _, ratio in found])[usable]
    return CorpusRow(program, len(graph), predicted, measured)


def bench_bank_corpus(console: Console, budget_s: float) -> None:
    """Prints a line per program and the summary; `budget_s` is not needed."""
    store = Store.of(None)
    model = model_of(store)
    rows = []
    entries = [entry for split in SPLITS for entry in load_corpus(split)]
    with counted(entries, "programs compared") as rest:
        for entry in rest:
            row = compare_program(entry.name, entry.graphs[0], store, model)
            if row is not None:
                rows.append(row)
                console.print(_line(row), highlight=False)
    if not rows:
        console.print("the store knows no measured decisions: run graphopt fill first")
        return
    console.print(summary(rows), highlight=False)


def _line(row: CorpusRow) -> str:
    error = float(np.median(np.abs(np.expm1(row.predicted - row.measured))))
    return (
        f"{row.program}: {row.nodes} nodes, {len(row.measured)} vectors, rank correlation "
        f"{spearman(row.predicted, row.measured):.2f}, median error {error:.0%}"
    )


def summary(rows: Sequence[CorpusRow]) -> str:
    """Pooled figures over all vectors of all programs, and the median program."""
    predicted = np.concatenate([row.predicted for row in rows])
    measured = np.concatenate([row.measured for row in rows])
    clear = np.abs(measured) > CLEAR
    right = (np.sign(predicted) == np.sign(measured))[clear].mean()
    within = np.median([spearman(row.predicted, row.measured) for row in rows])
    error = np.median(np.abs(np.expm1(predicted - measured)))
    return (
        f"{len(measured)} vectors of {len(rows)} programs: rank correlation of speed-ups "
        f"{spearman(predicted, measured):.3f} over all, {within:.2f} within the median program; median "
        f"relative error {error:.0%}; gain or loss is right for {right:.0%} of the {clear.sum()} vectors "
        f"that change the time by more than {CLEAR:.0%}"
    )
