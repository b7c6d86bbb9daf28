"""Slices that native code reads at a varying place: they are read before loops whose functions hinder that.

XLA's emitter for native code has LLVM compute the place of such a slice for every element of the loop around
it, and LLVM moves that out of the loop again, and reads rows as vectors. It does not where the loop calls a
function that it knows only by name, such as ``xla.tanh.f32``, whose polynomial XLA writes in after loops are
optimised: that call might write to memory. Then a place is loaded and clamped, and an element fetched by
itself, each time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from graphopt.hlo import Graph
from graphopt.hlo.module.proto import DType
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit

NAMED_FUNCTIONS: Final = {
    "tanh": frozenset({DType.F32, DType.F64}),
    "rsqrt": frozenset({DType.F32, DType.F64}),
    "log-plus-one": frozenset({DType.F32, DType.F64}),
    "exponential-minus-one": frozenset({DType.F32, DType.F64}),
    "erf": frozenset({DType.F32}),
    "exponential": frozenset({DType.F64}),
    "logistic": frozenset({DType.F64}),
}
"""Operation -> types in which XLA's native code calls it by name until loops are optimised."""


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    least_elements: int = limit(
        32, "elements", "shortest loop; LLVM writes out shorter ones, and reads each place once"
    )
    element_ns: float = limit(
        1.0, "ns per element", "what a place computed for each of a loop's elements takes"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Writes such slices to memory, in front of the loop."""
    graph, decisions = context.graph, context.decisions
    wanted = decisions.copy()
    chosen, saved = set[int](), 0.0
    for root in range(len(graph)):
        if decisions.fuse[root] or graph.elements[root] < LIMITS.least_elements:
            continue
        if not (context.in_native[root] or decisions.unit[root] == context.native):
            continue
        members = context.model.members(decisions.fuse, root)
        if not _calls_by_name(graph, members):
            continue
        for slice_ in _varying_slices(context, root, members):
            chosen.add(slice_)
            if context.masks.unit[slice_, decisions.unit[root]]:  # of one region with the loop
                wanted.unit[slice_] = decisions.unit[root]
            ns = LIMITS.element_ns * float(graph.elements[root])
            saved += max(0.0, ns - _written_ns(context, slice_)) * context.executions(root)
    wanted.fuse[sorted(chosen)] = False
    return context.edit(wanted, saved, f"{len(chosen)} slices read ahead of loops of native code")


def _calls_by_name(graph: Graph, members: Collection[int]) -> bool:
    """True for a loop that holds one of `NAMED_FUNCTIONS`, or rounds to bf16, which XLA calls likewise."""
    for node in members:
        name, dtype = graph.ops[node].name, graph.dtype[node]
        if dtype in NAMED_FUNCTIONS.get(name, ()):
            return True
        if name == "convert" and dtype == DType.BF16:
            return True
    return False


def _varying_slices(context: Context, root: int, members: Collection[int]) -> list[int]:
    """Fused slices of a loop whose place is no constant, no larger than the loop, that may be written."""
    graph = context.graph
    return [
        node
        for node in members
        if node != root
        and graph.ops[node].name == "dynamic-slice"
        and context.decisions.fuse[node]
        and context.masks.fuse[node, 0]
        and graph.elements[node] <= graph.elements[root]
        and any(graph.ops[start].name != "constant" for start in graph.operand_lists[node][1:])
    ]


def _written_ns(context: Context, node: int) -> float:
    costs = context.costs
    return (
        costs.native_kernel_ns + 2.0 * float(context.graph.nbytes[node]) / costs.cached_bytes_per_ns
    )


STEP: Final = Step(
    name="slices apart",
    summary="Slices at varying places are read ahead of native loops whose functions hinder LLVM.",
    apply=apply,
    after=("native loops", "small runs"),
    min_saved_ns=200.0,
    min_saved_share=0.005,
    limits=LIMITS,
)
