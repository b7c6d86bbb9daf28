"""``python -m benchmarks tasks``: how well gains of tasks compose, and what a search by tasks finds.

First the heuristic's decisions, task by task in duels with XLA's default: shares of the cost model and gains
of tasks predict a gain of the program, which is then measured whole. Then the search: what it predicts beside
the heuristic, and what the whole program says. The thread that runs a program is the same on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.progress import counted
from graphopt.corpus.workloads import build_program, builtin_programs
from graphopt.costs.model import CostModel
from graphopt.errors import GraphOptError
from graphopt.hlo import build_graph
from graphopt.learn.tune.by_tasks import as_called, search_by_tasks
from graphopt.learn.tune.subject import make_subject
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.tasks import Duels, compose, cut
from graphopt.tasks.composing import restrict
from graphopt.tasks.cutting import distinct
from graphopt.tasks.inputs import Recorder
from graphopt.tasks.running import ModuleRunner

PROGRAMS = (
    "hmc_chain",
    "cartpole_rollout",
    "gnmt_4_forward",
    "multigrid_v_cycle",
    "lstm_stack_grad",
)

COMPOSED = ("viterbi", "scan_grad", "shared_zeros", "safe_newton", "stack_machine", "keys_in_loops")


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


@dataclass(frozen=True)
class Composition:
    """The heuristic's decisions of one program, by its tasks and whole.

    Attributes:
        name: of the program.
        tasks: different tasks measured.
        share: of the program's estimated time that they take.
        predicted: log gain over XLA's default by shares and gains of tasks.
        measured: the same of the whole program, with what they compose to.
        low: lower end of its 95 % interval.
        high: upper end.
    """

    name: str
    tasks: int
    share: float
    predicted: float
    measured: float
    low: float
    high: float


def composition(name: str) -> Composition:
    """Measures the heuristic's decisions in every task of a program, and composed in the whole.

    Raises:
        MeasureError: the program cannot be measured.
    """
    data, inputs = make_subject(*build_program(builtin_programs()[name], name)).modules[0]
    graph = build_graph(data, allow_donation=True)
    wanted = heuristic_steps(graph, STEPS, CostModel(graph))
    groups = list(distinct(cut(graph)).values())
    with ModuleRunner() as run:
        recorder = Recorder(graph.source.module, inputs or [], run)
        given = recorder.of_each([equal[0] for equal in groups])
    chosen, saved, share = [], 0.0, 0.0
    for equal, values in zip(groups, given, strict=True):
        before, after = (
            as_called(equal[0].graph, restrict(equal[0], d)) for d in (graph.default, wanted)
        )
        with Duels(equal[0].data, values) as duels:
            duel = duels.duel(before, after, looks=2, most=2)
        if duel.ok:
            part = sum(task.share for task in equal)
            share += part
            saved += part * (1.0 - np.exp(-duel.log_ratio))
            chosen += [(task, before, after) for task in equal]
    with Duels(data, inputs, look_s=0.3, timeout_s=120.0) as duels:
        base = as_called(graph, graph.default)
        whole = duels.duel(base, compose(graph, base, chosen).decisions, looks=2, most=2)
    predicted = -float(np.log(max(1.0 - saved, 1e-6)))
    return Composition(name, len(groups), share, predicted, whole.log_ratio, whole.low, whole.high)


def bench_composition(console: Console, names: Sequence[str] = COMPOSED) -> list[Composition]:
    """Prints a row per program, then how well predictions hold."""
    table = Table("program", "tasks", "share", "predicted", "measured", "95 %")
    rows = []
    with counted(names, "programs composed") as rest:
        for name in rest:
            try:
                row = composition(name)
            except GraphOptError as error:
                console.print(f"{name}: {error.what}")
                continue
            rows.append(row)
            table.add_row(
                row.name, str(row.tasks), f"{row.share:.0%}", f"{np.exp(row.predicted):.2f}x",
                f"{np.exp(row.measured):.2f}x", f"{np.exp(row.low):.2f} to {np.exp(row.high):.2f}",
            )  # fmt: skip
    console.print(table)
    if len(rows) > 2:
        told = np.array([row.predicted for row in rows])
        true = np.array([row.measured for row in rows])
        console.print(
            f"predicted - measured in logs: mean {(told - true).mean():+.3f}, mean size "
            f"{abs(told - true).mean():.3f}; correlation {np.corrcoef(told, true)[0, 1]:.2f}"
        )
    return rows


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
    """Prints how the heuristic's decisions compose, then a row per program searched."""
    bench_composition(console)
    table = Table(
        "program", "nodes", "tasks", "duels", "duels/min", "predicted", "measured", "95 %"
    )
    rows = []
    with counted(names or PROGRAMS, "programs searched") as rest:
        for name in rest:
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
    return rows
