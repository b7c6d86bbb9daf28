"""Loops over small tensors become native code: there, dispatch of tiny kernels dominates.

What keeps a loop from that, such as a scatter or a call into LAPACK, is replaced. Loops that XLA makes native
itself, most of them from jaxlib 0.12 on, get the forms that are fast there: XLA leaves what is inside as it
was for kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.costs.model import LoopCosts, trips
from graphopt.policy.heuristic.support.chains import Chain, decided_chains
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import (
    around_loops_taken_apart,
    make_native,
    open_inside,
)
from graphopt.policy.heuristic.support.step import Step, limit

MAX_NATIVE_CODE: Final = 2800.0
"""Largest loop (`LoopCosts.code`), inner ones included, compiled as one function: compile time grows
faster than size. At this size it is about 1.5 times that of XLA's default; regions inside the loop
are cut to a length where it is not longer than the default's."""


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    In an iteration of less than `short_ns` by XLA's default, native code counts with `short_margin` times the
    work that both do alike, and so on. Below 1 for short iterations, because one function also saves what the
    estimate does not know, such as arrays that stay in the caches; with longer ones there is less to save,
    and two cores to lose. That credit does not make up for what is known to be lost, such as the library's
    reductions, or products and scatters that take longer. As much work as the matrix products take counts in
    full, and so does what XLA splits over cores: they save nothing there.
    """

    short_ns: float = limit(50_000.0, "ns", "longest short iteration")
    short_margin: float = limit(
        0.7, "ratio", "estimated gain from which a short one becomes native"
    )
    middle_ns: float = limit(200_000.0, "ns", "longest middling iteration")
    middle_margin: float = limit(1.0, "ratio", "the same for middling ones")
    long_margin: float = limit(1.2, "ratio", "the same for longer ones")
    max_code: float = limit(MAX_NATIVE_CODE, "operations", "largest loop compiled as one function")
    short_code: float = limit(
        600.0, "operations", "what a compile takes that compiles next to nothing"
    )
    costly_gain: float = limit(
        0.2,
        "of the program",
        "what a loop of more code than that and the whole program's must save",
    )

    def margin(self, iteration_ns: float) -> float:
        """The margin for an iteration that takes so long."""
        rows = ((self.short_ns, self.short_margin), (self.middle_ns, self.middle_margin))
        found = (margin for longest, margin in rows if iteration_ns <= longest)
        return next(found, self.long_margin)


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Makes loops native, outermost first, and changes the inside of those that are."""
    model, allowed = context.model, context.masks.unit[:, context.native]
    wanted, chains = context.decisions.copy(), decided_chains(context)
    inside: set[int] = set()
    chosen = []
    saved = 0.0
    kept = around_loops_taken_apart(context)
    for node in sorted(model.callees, reverse=True):  # callers before callees
        if node in kept:
            continue
        if int(context.graph.computation[node]) in inside:
            inside.update(model.callees[node])
            continue
        cost = model.control(node)
        if wanted.unit[node] == context.native:
            inside.update(model.callees[node])
            if cost.code <= LIMITS.max_code:
                open_inside(context, wanted, node)
            continue
        if context.graph.ops[node].name != "while" or not allowed[node]:
            continue
        if wanted.restructure[node]:  # it is no loop any more
            continue
        if cost.code <= LIMITS.max_code and _pays(context, node, cost, chains):
            make_native(context, wanted, node)
            inside.update(model.callees[node])
            chosen.append(node)
            saved += (cost.default_ns(model.cores) - cost.native_ns()) * context.executions(node)
    what = f"{len(chosen)} loops as native functions" if chosen else "forms inside native loops"
    return context.edit(wanted, saved, what)


def _pays(context: Context, loop: int, cost: LoopCosts, chains: list[Chain]) -> bool:
    model = context.model
    default, work = cost.default_ns(model.cores), cost.work_ns
    around, within = context.graph.computation, context.inside([loop]) if chains else ()
    for chain in chains:
        if int(around[chain.loop]) not in within:
            continue
        times = context.executions(chain.loop) / max(context.executions(loop), 1.0)
        default -= chain.saved_ns * times
        work -= (model.control(chain.loop).work_ns - chain.single_ns) * times
    iterations = trips(context.graph, model.callees[loop][0])
    margin = LIMITS.margin(default / max(iterations, 1.0))
    known = cost.native_dot_ns + cost.reduced_ns
    rest = max(0.0, work - cost.native_dot_ns - cost.parallel_ns)
    credit = (1.0 - margin) * rest
    if credit > 0.0:
        credit = max(0.0, credit - max(0.0, cost.reduced_ns))
    gain = default - (known + work - credit + context.costs.loop_ns)
    if gain <= max(0.0, min(credit, cost.lost_ns)):  # the credit makes up for no such losses
        return False
    if cost.code > max(model.own_code, LIMITS.short_code):
        return gain * context.executions(loop) > LIMITS.costly_gain * context.program_ns
    return True


STEP: Final = Step(
    name="native loops",
    summary="Loops over small tensors become one native function each, in the forms that are fast there.",
    apply=apply,
    after=("short loops",),
    limits=LIMITS,
)
