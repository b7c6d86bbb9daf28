"""``python -m benchmarks tasks``: what tasks find in so many seconds, and how well it composes.

The search task by task predicts a gain of the whole program beside the heuristic; the composed decisions are
then measured whole, in turn with the heuristic's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from graphopt.corpus.workloads import build_program, builtin_programs
from graphopt.errors import GraphOptError
from graphopt.hlo import build_graph
from graphopt.learn.tune.by_tasks import search_by_tasks
from graphopt.learn.tune.subject import make_subject
from graphopt.tasks import Duels

PROGRAMS = (
    "hmc_chain",
    "cartpole_rollout",
    "gnmt_4_forward",
    "multigrid_v_cycle",
    "lstm_stack_grad",
)


@dataclass(frozen=True)
class Row:
    """One program.

    Attributes:
        name: of the program.
        nodes: of its graph.
        tasks: different tasks searched.
        duels: held.
        seconds: spent.
        predicted: log gain beside the heuristic by shares and gains of tasks.
        measured: the same of the whole program.
        low: lower end of its 95 % interval.
        high: upper end.
    """

    name: str
    nodes: int
    tasks: int
    duels: int
    seconds: float
    predicted: float
    measured: float
    low: float
    high: float


def composed(name: str, budget_s: float) -> Row:
    """Searches one program task by task and measures what comes of it whole.

    Raises:
        MeasureError: the program cannot be measured.
    """
    data, inputs = make_subject(*build_program(builtin_programs()[name], name)).modules[0]
    graph = build_graph(data, allow_donation=True)
    begin = time.perf_counter()
    result = search_by_tasks(graph, inputs, None, begin + budget_s)
    seconds = time.perf_counter() - begin
    with Duels(data, inputs, look_s=0.3, timeout_s=120.0) as duels:
        whole = duels.duel(result.base, result.composed.decisions, looks=3, most=5)
    return Row(
        name, len(graph), len(result.found), result.duels, seconds,
        result.predicted, whole.log_ratio, whole.low, whole.high,
    )  # fmt: skip


def bench_tasks(console: Console, budget_s: float, names: Sequence[str] = ()) -> list[Row]:
    """Prints a row per program, then how well predictions hold."""
    table = Table(
        "program", "nodes", "tasks", "duels", "duels/min", "predicted", "measured", "95 %"
    )
    rows = []
    for name in names or PROGRAMS:
        try:
            row = composed(name, budget_s)
        except GraphOptError as error:
            console.print(f"{name}: {error.what}")
            continue
        rows.append(row)
        table.add_row(
            row.name, str(row.nodes), str(row.tasks), str(row.duels),
            f"{60 * row.duels / row.seconds:.0f}", f"{np.exp(row.predicted):.3f}x",
            f"{np.exp(row.measured):.3f}x", f"{np.exp(row.low):.3f} to {np.exp(row.high):.3f}",
        )  # fmt: skip
    console.print(table)
    if len(rows) > 1:
        off = np.array([row.predicted - row.measured for row in rows])
        console.print(
            f"predicted - measured: mean {off.mean():+.3f}, mean size {abs(off).mean():.3f} (logs)"
        )
    return rows
