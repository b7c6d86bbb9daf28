"""Compiles the segments of a cut program and runs them, devices in parallel.

One thread starts everything: jax returns from each call before the device has finished, and a device
starts a segment when its inputs are there. What is not known at compile time is decided by data
dependencies alone, and those form no cycle, so nothing can wait for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from graphopt import jax_private
from graphopt.devices.copies import PlacedCopies
from graphopt.devices.segments import Cut, Segment
from graphopt.errors import GraphOptError
from graphopt.placement.build import Traced
from graphopt.placement.flat import FlatProgram, evaluate


class PlacementError(GraphOptError):
    """Raised when no device is left that can run a program."""


@dataclass(frozen=True)
class _Step:
    """One segment, ready to run. Slots number the values that exist at run time, per device."""

    run: Callable[..., Any]
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    sends: tuple[tuple[Any, tuple[int, ...], tuple[int, ...]], ...]
    drops: tuple[int, ...]


class PlacedProgram:
    """An executable over several devices; takes and returns flat lists of arrays.

    Args:
        traced: the program.
        program: its cut.
        devices: jax devices; `Segment.device` indexes them; the first one is home.
        copies: of arguments, shared by all programs of one function.

    Raises:
        Exception: whatever XLA raises when it cannot compile a segment.
    """

    def __init__(
        self, traced: Traced, program: Cut, devices: Sequence[Any], copies: PlacedCopies
    ) -> None:
        self.cut = program
        self._flat = traced.program
        self._copies = copies
        self._shardings = [SingleDeviceSharding(d) for d in devices]
        self._slots: dict[tuple[int, int], int] = {}
        self._arguments = [
            (self._shardings[d], values, tuple(self._slot(v, d) for v in values))
            for d, values in program.arguments
        ]
        self._steps = [
            self._step(s, compile_segment(self._flat, s, self._shardings[s.device], n))
            for n, s in enumerate(program.segments)
        ]
        self._results = [self._slot(v, 0) if isinstance(v, int) else -1 for v in self._flat.outputs]
        self._literals = [
            None if isinstance(v, int) else _literal(v, self._shardings[0])
            for v in self._flat.outputs
        ]
        self._origin = self._origins()
        self._set_drops()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Starts a run; returns arrays on the home device, which may still be computed."""
        return self.run(arguments, None)

    def run(
        self, arguments: Sequence[Any], watch: Callable[[int, str, Any], None] | None
    ) -> list[Any]:
        """Like calling it; `watch` gets (segment number, ``run`` or ``copy``, new arrays)."""
        slots: list[Any] = [None] * len(self._slots)
        values = (*self._flat.constants, *arguments)
        for sharding, numbers, targets in self._arguments:
            placed = self._copies.on(sharding, [values[n] for n in numbers])
            for target, array in zip(targets, placed, strict=True):
                slots[target] = array
        for number, step in enumerate(self._steps):
            results = step.run(*[slots[s] for s in step.takes])
            for slot, array in zip(step.gives, results, strict=True):
                slots[slot] = array
            if watch is not None:
                watch(number, "run", results)
            for sharding, sources, targets in step.sends:
                moved = jax_private.copy_arrays([slots[s] for s in sources], sharding)
                for slot, array in zip(targets, moved, strict=True):
                    slots[slot] = array
                if watch is not None:
                    watch(number, "copy", moved)
            for slot in step.drops:
                slots[slot] = None
        return self._collect(slots)

    def _collect(self, slots: list[Any]) -> list[Any]:
        """Results at home; those made elsewhere are known there, if they come back as arguments."""
        for home, (sharding, elsewhere) in self._origin.items():
            self._copies.remember(slots[home], sharding, slots[elsewhere])
        return [
            slots[slot] if slot >= 0 else literal
            for slot, literal in zip(self._results, self._literals, strict=True)
        ]

    def _slot(self, value: int, device: int) -> int:
        return self._slots.setdefault((value, device), len(self._slots))

    def _step(self, segment: Segment, run: Callable[..., Any]) -> _Step:
        here = segment.device
        sends = tuple(
            (self._shardings[d], tuple(self._slot(v, here) for v in values),
             tuple(self._slot(v, d) for v in values))
            for d, values in segment.sends
        )  # fmt: skip
        takes = tuple(self._slot(v, here) for v in segment.inputs)
        gives = tuple(self._slot(v, here) for v in segment.outputs)
        return _Step(run, takes, gives, sends, ())

    def _origins(self) -> dict[int, tuple[Any, int]]:
        """Home slot of a result -> where else it is: (sharding, slot)."""
        results = {v for v in self._flat.outputs if isinstance(v, int)}
        return {
            self._slot(v, 0): (self._shardings[s.device], self._slot(v, s.device))
            for s in self.cut.segments if s.device
            for v in s.outputs if v in results
        }  # fmt: skip

    def _set_drops(self) -> None:
        """Lets go of every slot after its last use, so that its memory can be used again."""
        kept = {*self._results, *self._origin, *(slot for _, slot in self._origin.values())}
        seen: set[int] = set()
        for index in range(len(self._steps) - 1, -1, -1):
            step = self._steps[index]
            used = {*step.takes, *step.gives, *(s for send in step.sends for s in send[1])}
            drops = tuple(sorted(used - seen - kept))
            seen |= used
            self._steps[index] = _Step(step.run, step.takes, step.gives, step.sends, drops)


def _literal(literal: Any, sharding: Any) -> Any:
    """A result that is a constant of the program text, weakly typed if it was."""
    if literal.aval.weak_type:
        return jax.device_put(jnp.asarray(np.asarray(literal.val).item()), sharding)
    return jax.device_put(jnp.asarray(literal.val, literal.aval.dtype), sharding)


_shape: Any = jax.ShapeDtypeStruct  # its constructor is not annotated


def compile_segment(
    program: FlatProgram, segment: Segment, sharding: Any, number: int
) -> Callable[..., Any]:
    """An executable of one segment for one device: its inputs' arrays -> list of its outputs."""
    equations = [program.equations[n] for n in segment.equations]

    def run(*values: Any) -> list[Any]:
        env = dict(zip(segment.inputs, values, strict=True))
        evaluate(equations, env)
        return [env[v] for v in segment.outputs]

    run.__name__ = run.__qualname__ = f"{program.name}_device{segment.device}_{number}"
    types = [
        _shape(a.shape, a.dtype, sharding=sharding, weak_type=a.weak_type)
        for a in (program.avals[v] for v in segment.inputs)
    ]
    options = {} if types else {"out_shardings": sharding}
    compiled: Callable[..., Any] = jax.jit(run, **options).lower(*types).compile()
    return compiled
