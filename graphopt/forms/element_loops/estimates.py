"""How long loops take over whole arrays and block by block: nobody knows how many trips there will be."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from graphopt.forms.element_loops.loop import ElementLoop, element_loop
from graphopt.forms.form import Operation, Times
from graphopt.forms.traced.times import element_ns
from graphopt.machine import CpuCosts, probe

BLOCK: Final = 128
"""Elements of a block: some vectors, so that the state of a loop lies in the innermost cache."""

TRIPS: Final = 16
"""Trips that a loop is taken to need."""

SHARE: Final = 0.5
"""Of these, the share that the elements of a block need."""


def times(operation: Operation, costs: CpuCosts) -> Times:
    """Passes over whole arrays on all cores; blocks on one."""
    loop = element_loop(operation)
    size = loop.batch.size
    work = sum(_work_ns(part, loop, costs) for part in (loop.condition.element, loop.body)) * size
    held = [x.bytes if loop.batch.found(x.dims) is not None else 0 for x in operation.operands]
    given = sum(loop.given)
    moved = 2 * sum(held[given:]) + sum(held[:given])
    cores = max(1, min(probe().cores, moved // costs.part_bytes))
    memory = moved / (
        costs.cached_bytes_per_ns if moved < costs.cached_bytes else costs.bytes_per_ns
    )
    blocks = -(-size // BLOCK)
    return Times(
        TRIPS * (work / cores + memory),
        TRIPS * SHARE * (work + blocks * costs.short_loop_ns) + moved / costs.bytes_per_ns,
    )


def _work_ns(function: Any, loop: ElementLoop, costs: CpuCosts) -> float:
    """Nanoseconds of one element of the batch."""
    total = 0.0
    for equation in function.jaxpr.eqns:
        for result in equation.outvars:
            if loop.batch.found(result.aval.shape) is not None:
                count = prod(result.aval.shape) / loop.batch.size
                total += count * element_ns(equation.primitive.name, result.aval.dtype, costs)
    return total
