"""The hand-written heuristic: what a careful engineer would change in XLA:CPU's decisions, as a table.

Each row is a step that looks at a graph under the decisions of the steps before it and says what it would
change, what that saves, and why. Where no step expects a gain, XLA's decisions stand. A step is added as one
module beside this one and one row here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from graphopt.costs.model import CostModel
from graphopt.errors import PolicyError, message
from graphopt.hlo import Decisions, Graph
from graphopt.policy.heuristic import (
    batched_products,
    caller_thread,
    little_kernels,
    loop_kernels,
    one_core,
    one_pass_outputs,
    packed_functions,
    sequential_kernels,
    small_products,
    small_runs,
)
from graphopt.policy.heuristic.loops import (
    ahead_of_loops,
    loop_invariants,
    loops_over_cores,
    native_loops,
    short_loops,
)
from graphopt.policy.heuristic.memory import (
    carried_copies,
    keep_in_memory,
    slices_apart,
    updates,
    views,
)
from graphopt.policy.heuristic.reduce import (
    column_reductions,
    library_normalisations,
    reductions,
    scalar_reductions,
    short_reductions,
)
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.step import Applied, Step

TABLE: Final[tuple[Step, ...]] = (
    short_loops.STEP,
    loops_over_cores.STEP,
    native_loops.STEP,
    ahead_of_loops.STEP,
    carried_copies.STEP,
    small_runs.STEP,
    slices_apart.STEP,
    small_products.STEP,
    loop_invariants.STEP,
    reductions.STEP,
    scalar_reductions.STEP,
    views.STEP,
    updates.STEP,
    keep_in_memory.STEP,
    library_normalisations.STEP,
    column_reductions.STEP,
    batched_products.STEP,
    one_pass_outputs.STEP,
    one_core.STEP,
    short_reductions.STEP,
    little_kernels.STEP,
    loop_kernels.STEP,
    packed_functions.STEP,
    sequential_kernels.STEP,
    caller_thread.STEP,
)
"""All steps, in the order in which they are applied."""

_logger = logging.getLogger("graphopt")

STEPS: Final = tuple(step.name for step in TABLE)
"""Names of the steps, in order."""


@dataclass(frozen=True)
class Decided:
    """What the heuristic decides for a graph.

    Attributes:
        decisions: inside the graph's masks.
        steps: the steps that changed something, in order.
        name: who decided, for reports.
        speedup: always 0: the steps' estimates are good for comparing forms, not for a promise.
        failed: steps that raised and were passed over, each with its error.
    """

    decisions: Decisions
    steps: tuple[Applied, ...]
    failed: tuple[str, ...] = ()
    name: str = "heuristic"
    speedup: float = 0.0


def check_table(table: tuple[Step, ...]) -> None:
    """Checks that names are unique and that every step stands below those that it builds on.

    Raises:
        PolicyError: the table is wrong.
    """
    seen: set[str] = set()
    for step in table:
        missing = [name for name in step.after if name not in seen]
        if step.name in seen or missing:
            what = f"needs {', '.join(missing)} above it" if missing else "is there twice"
            raise PolicyError(
                what=f"step {step.name!r} {what}",
                where="heuristic",
                fix="Move its row in the table.",
            )
        seen.add(step.name)


check_table(TABLE)


def heuristic(graph: Graph) -> Decisions | None:
    """Decisions for one graph, or None where no gain is expected."""
    decided = choose(graph)
    return None if decided is None else decided.decisions


def choose(graph: Graph) -> Decided | None:
    """The same with the steps behind the decisions."""
    model = CostModel(graph)
    if caller_thread.is_negligible(graph, model):
        return None
    decided = decide(graph, STEPS, model, tolerant=True)
    return decided if decided.failed or not decided.decisions.same_as(graph.default) else None


def heuristic_steps(
    graph: Graph, steps: Collection[str], model: CostModel | None = None
) -> Decisions:
    """Decisions of some of the steps only, for searches that try them apart (see `decide`)."""
    return decide(graph, steps, model).decisions


def decide(
    graph: Graph,
    steps: Collection[str] = STEPS,
    model: CostModel | None = None,
    tolerant: bool = False,
) -> Decided:
    """Applies some of the steps to XLA's decisions, in the order of the table.

    An edit counts if it saves more than its step's threshold.

    Args:
        graph: of the program.
        steps: some of `STEPS`.
        model: the graph's costs, if they are known already.
        tolerant: a step that raises is passed over and named in the result, as in a user's compile.

    Raises:
        PolicyError: there is no step of such a name.
    """
    unknown = sorted(set(steps) - set(STEPS))
    if unknown:
        raise PolicyError(
            what=f"there is no step {', '.join(map(repr, unknown))}",
            where="heuristic",
            fix=f"Use some of {', '.join(STEPS)}.",
        )
    context = Context(graph, CostModel(graph) if model is None else model, graph.default)
    applied, failed = [], []
    for step in TABLE:
        if step.name not in steps:
            continue
        try:
            edit = step.apply(context)
        except Exception as error:
            if not tolerant:
                raise
            _logger.exception("a step of the heuristic failed; the others decide")
            failed.append(f"{step.name}: {message(error)}")
            continue
        if edit is None or not edit.saved_ns > step.least_ns(context.program_ns):
            continue
        applied.append(Applied(step.name, edit))
        context = context.after(edit.applied_to(context.decisions))
    return Decided(context.decisions.copy(), tuple(applied), tuple(failed))
