"""The kernels of a computation as XLA's thunk executor sees them: how many, how many at once, how long."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.schedule import IN_ORDER_THUNKS
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import called_ns, is_root

FFT_NS: Final = 0.5
"""About what a Fourier transform of n numbers takes, by n log2 n; the model of costs does not know it."""


@dataclass(frozen=True)
class Sequence:
    """The kernels of a computation, as XLA's executor sees them; times are estimates per execution.

    Attributes:
        kernels: how many there are, a native region counted as one.
        ready: most that wait for the same number of kernels before them: about how many are ready at once.
        total_ns: of all kernels.
        longest_ns: of the longest kernel on one core.
        overlap_ns: of those that run on several cores.
        wide_ns: of kernels that are ready at once, so many that XLA hands out a part, beside the longest.
    """

    kernels: int
    ready: int
    total_ns: float
    longest_ns: float
    overlap_ns: float
    wide_ns: float

    @property
    def is_in_order(self) -> bool:
        """XLA runs the kernels in order by itself."""
        return self.kernels <= IN_ORDER_THUNKS

    @property
    def is_handed_out(self) -> bool:
        """XLA hands a part of the kernels to workers."""
        return self.ready > IN_ORDER_THUNKS

    @property
    def beside_ns(self) -> float:
        """What might run beside the longest kernel."""
        return self.total_ns - self.longest_ns


def is_gone(context: Context, index: int) -> bool:
    """True for a computation inside native code, or of a loop that is replaced."""
    caller = context.graph.computations[index].caller
    replaced = caller is not None and context.decisions.restructure[caller] != 0
    return bool(replaced or index in context.inside_native)


def sequence_of(context: Context, index: int) -> Sequence:
    """The kernels of a computation under the decisions so far."""
    regions = _regions(context, index)
    times = _times(context, [root for roots, _ in regions for root in roots])
    ready: dict[int, list[float]] = {}
    single, several = [0.0], [0.0]
    for roots, depth in regions:
        ns = sum(times[root] for root in roots)
        ready.setdefault(depth, []).append(ns)
        (several if uses_cores(context, roots[0]) else single).append(ns)
    wide = [sum(found) - max(found) for found in ready.values() if len(found) > IN_ORDER_THUNKS]
    return Sequence(
        kernels=len(regions),
        ready=max(map(len, ready.values()), default=0),
        total_ns=sum(single) + sum(several),
        longest_ns=max(single),
        overlap_ns=sum(several),
        wide_ns=max(wide, default=0.0),
    )


def _regions(context: Context, index: int) -> list[tuple[list[int], int]]:
    """Roots of each kernel, several for a native region, and how many kernels it waits for, one by one."""
    graph, decisions = context.graph, context.decisions
    computation = graph.computations[index]
    depth: dict[int, int] = {}
    found: list[tuple[list[int], int]] = []
    was_native = False
    for node in range(computation.first, computation.end):
        before = max((depth.get(o, 0) for o in graph.operand_lists[node]), default=0)
        depth[node] = before
        if decisions.join[node] or not _is_executed(context, node):
            continue
        depth[node] = before + 1
        native = bool(decisions.unit[node] == context.native)
        if native and was_native:
            found[-1][0].append(node)
        else:
            found.append(([node], before))
        was_native = native
    return found


def _times(context: Context, roots: list[int]) -> dict[int, float]:
    """Root -> nanoseconds of one execution of its kernel.

    What several kernels compute is counted once (`CostModel.evaluated_ns`), a part for each.
    """
    model, fuse = context.model, context.decisions.fuse
    times: dict[int, float] = {}
    members: dict[int, list[int]] = {}
    for root in roots:
        known = _known_ns(context, root)
        if known is None:
            members[root] = model.members(fuse, root)
        else:
            times[root] = known
    holders = Counter(node for held in members.values() for node in held)
    for root, held in members.items():
        products = (n for n in held if context.graph.ops[n].name == "dot")
        times[root] = sum(model.evaluated_ns(n) / holders[n] for n in held)
        times[root] += sum(model.product(n).plain_ns for n in products)
    return times


def _is_executed(context: Context, node: int) -> bool:
    """True for a loop or conditional, and for the root of a kernel that computes something."""
    return context.graph.ops[node].kind is OpKind.CONTROL or is_root(context, node)


def _is_product(context: Context, root: int) -> bool:
    """True for a matrix product that the library or the runtime computes."""
    decisions = context.decisions
    as_loops = decisions.unit[root] == context.native or decisions.restructure[root] != 0
    return context.graph.ops[root].name == "dot" and not as_loops


def uses_cores(context: Context, root: int) -> bool:
    """True for a kernel that runs on several cores."""
    graph = context.graph
    unit = graph.units[context.decisions.unit[root]]
    by_library = unit.kind is UnitKind.LIBRARY
    if unit.kind is UnitKind.LOOP and unit.threads > 1:
        return True
    if _is_product(context, root):
        sharing = context.model.product(root).sharing
        return sharing.by_library if by_library else sharing.by_runtime
    return by_library or graph.ops[root].name in ("convolution", "fft")


def _known_ns(context: Context, root: int) -> float | None:
    """Nanoseconds of convolutions, transforms, loops, walls and products; None for kernels of loops."""
    graph, model = context.graph, context.model
    native = context.decisions.unit[root] == context.native
    if graph.ops[root].name == "convolution" and not native:
        return math.inf  # unknown, and mostly long
    if graph.ops[root].name == "fft":
        elements = float(graph.elements[root])
        return elements * math.log2(max(elements, 2.0)) * FFT_NS
    if root in model.callees:
        return model.control(root).native_ns() if native else called_ns(context, root)
    if is_wall(graph, root):
        return wall_costs(graph, root, context.costs)[0]
    return model.product(root).library_ns if _is_product(context, root) else None
