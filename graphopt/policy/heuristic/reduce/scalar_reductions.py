"""Functions that a reduction of several arrays reads are computed ahead of it.

A reduction of pairs, such as a maximum with its place, is scalar code, and so is what is fused into it. A
logarithm takes many times as long there as in a kernel of its own, where it is vector code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.costs.elements import element_ns
from graphopt.hlo.module.opcodes import OpKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.in_memory import memory_ns, set_parts
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    scalar: float = limit(4.0, "times", "what a function takes longer in scalar code")


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Writes operands of such reductions to memory where functions are behind them."""
    graph, wanted = context.graph, context.decisions.copy()
    saved = 0.0
    for node, op in enumerate(graph.ops):
        operands = graph.operand_lists[node]
        if op.name != "reduce" or len(operands) < 4 or context.is_inside_native(node):
            continue
        for value in operands[: len(operands) // 2]:
            if not wanted.fuse[value] or not context.masks.fuse[value, 0]:
                continue
            ns = _saved_ns(context, node, value)
            if ns > 0.0:
                wanted.fuse[value] = False
                set_parts(context, wanted, value, ns / float(graph.elements[value]))
                saved += ns * context.executions(node)
    return context.edit(wanted, saved, "functions ahead of reductions of several arrays")


def _saved_ns(context: Context, reduction: int, value: int) -> float:
    """Nanoseconds that one core saves where a value is written to memory instead of fused."""
    graph, costs = context.graph, context.costs
    if graph.ops[value].kind is not OpKind.ELEMENTWISE or graph.user_lists[value] != [reduction]:
        return 0.0
    functions = sum(
        float(graph.elements[node]) * element_ns(graph, node, costs=costs)
        for node in context.model.members(context.decisions.fuse, value)
        if graph.ops[node].name in costs.function_ns
    )
    memory = memory_ns(costs, int(graph.nbytes[value]), readers=1)
    return functions * (LIMITS.scalar - 1.0) - memory - costs.thunk_ns


STEP: Final = Step(
    name="scalar reductions",
    summary="Functions that reductions of several arrays read, which are scalar code, are computed ahead.",
    apply=apply,
    after=("native loops",),
    min_saved_ns=1000.0,
    min_saved_share=0.01,
    limits=LIMITS,
)
