"""Index checks of compiled graphs: flags computed beside the results, read when a result is observed.

A compiled program cannot raise. Instead it returns, for every operation that reads or writes at
computed positions, whether all of them were in range; whoever looks at a value that such a graph made,
or that was computed from one, sees the error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.node import Instr
from graphopt.lazy.core.source_lines import Source
from graphopt.lazy.errors import LazyIndexError
from graphopt.lazy.runtime.trace import Plan


class Check:
    """The outcome of the index checks that one result depends on, possibly still being computed.

    Attributes:
        flags: bool [K], jax; True where operation k met an index out of range. None once read.
        places: (operation name, source) of each of the K operations.
        chosen: which of them the result depends on.
        error: what was wrong; None if nothing, or not known yet.
        inherited: checks of the graphs that the operands came from.
    """

    __slots__ = ("chosen", "error", "flags", "inherited", "places")

    def __init__(
        self,
        flags: Any,
        places: tuple[tuple[str, Source | None], ...],
        chosen: tuple[int, ...] = (),
    ) -> None:
        self.flags = flags
        self.places = places
        self.chosen = chosen
        self.error: LazyIndexError | None = None
        self.inherited: tuple[Check, ...] = ()

    def settled(self, wait: bool) -> bool:
        """Whether the outcome is known; `wait` for it if asked to."""
        self.inherited = tuple(c for c in self.inherited if not c.settled(wait) or c.error)
        for check in self.inherited:
            self.error = self.error or check.error
        if self.flags is not None and (wait or self.flags.is_ready()):
            self._read()
        return self.error is not None or (self.flags is None and not self.inherited)

    def _read(self) -> None:
        bad = np.asarray(self.flags)
        for k in self.chosen:
            if bad[k] and self.error is None:
                self.error = out_of_range(*self.places[k])
        self.flags = None


Dependency = tuple[tuple[int, ...], frozenset[int]]
"""Numbers of the checked operations and of the buffers that a value depends on."""


def dependencies(plan: Plan) -> tuple[Dependency, ...]:
    """Per root: numbers of the checked operations and of the leaves that it depends on."""
    checked: dict[int, int] = {}  # sets of small numbers as bits
    leaves = {slot: 1 << k for k, slot in enumerate(plan.leaf_slots)}
    number = 0
    for step in plan.steps:
        ops = used = 0
        for slot in step.inputs:
            ops |= checked.get(slot, 0)
            used |= leaves.get(slot, 0)
        if step.instr.op.has_index:
            ops |= 1 << number
            number += 1
        checked[step.out], leaves[step.out] = ops, used
    return tuple(
        (
            tuple(k for k in range(number) if checked.get(slot, 0) >> k & 1),
            frozenset(k for k in range(len(plan.leaf_slots)) if leaves.get(slot, 0) >> k & 1),
        )
        for slot in plan.root_slots
    )


def out_of_range(name: str, src: Source | None) -> LazyIndexError:
    """The error of an operation that met an index out of range."""
    return LazyIndexError(
        what=f"{name}: an index is out of range",
        where=source_lines.line_of(src),
        fix="Indices must lie between minus the length of their axis and the length less 1.",
    )


def flag(instr: Instr, arrays: tuple[Any, ...]) -> Any:
    """Whether an operation's index arrays leave their range: a traced bool []."""
    import jax.numpy as jnp

    operand, *rest = arrays
    if instr.op.name in ("take", "take_along_axis"):
        limits = [(rest[0], operand.shape[instr.params[0]])]
    else:
        items = instr.params[-1]
        indices = rest[1:] if instr.op.name.startswith("scatter") else rest
        limits = list(zip(indices, _lengths(items, operand.shape), strict=True))
    bad = jnp.zeros((), bool)
    for index, length in limits:
        if np.dtype(index.dtype).kind == "b" or 0 in index.shape:
            continue
        low, high = jnp.min(index), jnp.max(index)
        wide = np.int64 if np.dtype(index.dtype).kind == "i" else np.uint64
        bad = bad | (high.astype(wide) >= length)
        if wide is np.int64:
            bad = bad | (low.astype(wide) < -length)
    return bad


def _lengths(items: Any, shape: tuple[int, ...]) -> list[int]:
    """Length of the axis that each index array selects from."""
    axis, found = 0, []
    for item in items:
        if item[0] == "n":
            continue
        if item[0] == "a":
            found.append(shape[axis])
        axis += 1
    return found
