"""Loops over arrays, of which only the recurrence stays a loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Final

import jax

from graphopt.forms.form import Form, Operation, Times
from graphopt.forms.scan_parts.parts import Parts, parts_of
from graphopt.forms.scan_parts.saving import saved_ns
from graphopt.forms.scan_parts.scan import Scan, counts_of
from graphopt.forms.scan_parts.writing import Writer
from graphopt.forms.traced.calls import flattened
from graphopt.machine import CpuCosts, own_costs

RULES: Final = {
    "scan-short": "the loop has few iterations",
    "scan-effects": "the loop has side effects",
    "scan-nothing": "every iteration needs all that the one before computes",
    "scan-memory": "what all iterations compute together takes too much memory",
}

FEWEST: Final = 4
"""Iterations of the shortest loop that is cut."""

MORE_BYTES: Final = 1 << 26
"""More memory than that is only taken where the loop takes as much twice by itself."""

PASSING: Final = 4
"""So much more may pass: most of it is fused, and never in memory."""


def forbids(operation: Operation) -> str | None:
    """Why a loop stays as it is."""
    if operation.params["length"] < FEWEST:
        return "scan-short"
    if operation.params["jaxpr"].effects:
        return "scan-effects"
    parts = _parts(operation)
    if not parts.moves:
        return "scan-nothing"
    own = sum(x.bytes for x in (*operation.operands, *operation.results))
    more = max(MORE_BYTES, own // 2)
    fits = parts.more_bytes <= more and parts.passing_bytes <= PASSING * more
    return None if fits else "scan-memory"


def times(operation: Operation, costs: CpuCosts) -> Times:
    """What the parts save, and what they take beside."""
    return Times(*saved_ns(_parts(operation), costs))


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """What stands ahead of the recurrence, the recurrence, and what stands behind it."""
    arrays = (*operation.operands, *operation.results)
    wide = any(x.dtype.itemsize > 4 for x in arrays)
    with jax.enable_x64(True) if wide else nullcontext():
        return Writer(_parts(operation), operands).run()


def _parts(operation: Operation) -> Parts:
    params = operation.params
    way = params["length"], params["reverse"], params["unroll"]
    return _found(params["jaxpr"], *counts_of(params), *way)


# Whether a loop may be cut, what that takes, and its parts are asked in turn.
@lru_cache(maxsize=4)
def _found(body: Any, consts: int, carry: int, trips: int, reverse: bool, unroll: int) -> Parts:
    return parts_of(Scan(flattened(body), consts, carry, trips, reverse, unroll), own_costs())


FORM: Final = Form(
    "scan-parts",
    ("scan",),
    "a loop of what each iteration needs of the one before; the rest for all iterations together",
    forbids,
    times,
    compute,
    exact=False,
    accuracy="the same operations; sums over the iterations are taken in another order",
    unlike=frozenset({"scan-nothing", "scan-short"}),
    of_program=True,
)
