"""Tiers: which way a graph is run this time, and the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

import jax
import numpy as np

from graphopt.lazy.core import metrics, source_lines
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import ExecutionError
from graphopt.lazy.record import recorder
from graphopt.lazy.record.settings import settings
from graphopt.lazy.runtime import compiling, devices, donation, executors, optimizer
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.executors import Failure
from graphopt.lazy.runtime.trace import Trace, make_plan

SLOW_S: Final = 0.1
"""A graph that takes longer op by op waits for its compile instead of running beside it."""

MANY_COMPILES: Final = 6
"""Op by op is pointless for a graph with more operations than this that need a compile each."""

_plain_types: Final[set[type]] = {np.ndarray}
"""Types of values that no jax transformation traces."""


def traced(arrays: Sequence[Any]) -> bool:
    """Whether a jax transformation is tracing any of these."""
    if _plain_types.issuperset(map(type, arrays)):
        return False
    for array in arrays:
        kind = type(array)
        if kind in _plain_types:
            continue
        if isinstance(array, jax.core.Tracer):
            return True
        _plain_types.add(kind)
    return False


def run_traced(trace: Trace, arrays: list[Any], scalars: list[Any]) -> tuple[list[Any], Any]:
    """Runs a graph's operations as part of the jax transformation that traces its leaves."""
    plan = make_plan(trace)
    numbers = [
        np.asarray(value, aval.dtype.np)
        for value, aval in zip(scalars, plan.scalar_avals, strict=True)
    ]
    with jax.enable_x64(True):
        values, _ = executors.replay(plan, arrays, numbers)
    return values, None


def run_entry(
    entry: Entry,
    leaves: list[Node],
    arrays: list[Any],
    scalars: list[Any],
    unused: donation.Unused,
) -> tuple[list[Any], Any, str]:
    """Runs a graph op by op or compiled.

    Args:
        entry: the graph.
        leaves: what it is computed from.
        arrays: their values.
        scalars: its scalar parameters.
        unused: leaves that nobody can ask for after the run.

    Returns:
        One value or `Failure` per root, index flags or None, and ``op by op`` or ``compiled``.
    """
    entry.sightings += 1
    if entry.state != "ready":
        _advance(entry, unused)
    elif unused.nodes and not (entry.giving.settled or entry.giving.pairing.leaves):
        _reconsider(entry, unused)
    elif entry.waiting.compiled is not entry.waiting.wanted:
        _reconsider_waiting(entry)
    if entry.state == "ready":
        values, flags = _run_compiled(entry, leaves, arrays, scalars, unused)
        return values, flags, "compiled"
    start = perf_counter()
    values = executors.run_op_by_op(entry.plan, arrays, scalars)
    entry.op_by_op_s = perf_counter() - start
    metrics.spent("op by op", entry.op_by_op_s)
    return values, None, "op by op"


def _reconsider(entry: Entry, unused: donation.Unused) -> None:
    """Compiles a graph anew once it is clear that there are buffers to give to it."""
    if entry.giving.look(unused):
        policy, check = _policy(entry), optimizer.checked_mode()
        pairing = _pairing(entry, unused, policy, check)
        entry.giving.settled = True
        if pairing.leaves:
            compiling.compile_entry(entry, policy, check, pairing)


def _reconsider_waiting(entry: Entry) -> None:
    """Compiles a graph anew once it is clear that its callers wait for it, or do no longer."""
    if entry.default is not None or devices.several() or not entry.waiting.changes_now(entry.plan):
        return
    policy = optimizer.current()
    if optimizer.for_waiting_callers(policy) is not policy:
        compiling.compile_entry(entry, _policy(entry), pairing=entry.giving.pairing)


def _policy(entry: Entry) -> Any:
    """What optimizes a graph that is compiled now."""
    entry.waiting.compiled = entry.waiting.wanted
    policy = optimizer.current()
    return optimizer.for_waiting_callers(policy) if entry.waiting.wanted else policy


def _pairing(entry: Entry, unused: donation.Unused, policy: Any, check: bool) -> donation.Pairing:
    """What a graph compiled now takes; its inputs are needed where it runs more than once."""
    if not unused.nodes or check or devices.several() or not optimizer.keeps_donation(policy):
        return donation.NONE
    return donation.pair(entry.plan, unused.nodes)


def _advance(entry: Entry, unused: donation.Unused) -> None:
    """Compiles the graph, starts compiling it, or leaves it for later."""
    if settings.tier == "op-by-op" or entry.state == "failed":
        return
    now = settings.tier == "compiled" or _needs_many_compiles(entry)
    if not now and not entry.known and entry.sightings < settings.compile_after:
        return
    waits = now or recorder.state.now.step is not None or not settings.background
    waits = waits or entry.op_by_op_s > SLOW_S
    if entry.state == "cold":
        policy, check = _policy(entry), optimizer.checked_mode()
        pairing = _pairing(entry, unused, policy, check)
        if waits:
            compiling.compile_entry(entry, policy, check, pairing)
        else:
            compiling.background.submit(entry, policy, check, pairing)
    elif waits:  # a background compile is under way
        entry.done.wait()


def _needs_many_compiles(entry: Entry) -> bool:
    host = entry.plan.device.platform == "cpu"
    alone = {
        step.instr
        for step in entry.plan.steps
        if step.instr.jitted is None and not (host and step.instr.op.np is not None)
    }
    return len(alone) > MANY_COMPILES


def _run_compiled(
    entry: Entry,
    leaves: list[Node],
    arrays: list[Any],
    scalars: list[Any],
    unused: donation.Unused,
) -> tuple[list[Any], Any]:
    roots, giving = len(entry.plan.root_slots), entry.giving
    try:
        if giving.pairing.leaves:
            arrays = _give(entry, arrays, unused)
        if np.ndarray in map(type, arrays):
            for k, array in enumerate(arrays):
                if type(array) is np.ndarray:
                    arrays[k] = leaves[k].data = put(array, entry.plan.device)
        packs = _packs(entry, scalars)
        values = _called(entry, arrays, packs)
    except Exception as error:
        return [Failure(_explained(entry, error))] * roots, None
    if giving.pairing.leaves:
        values = donation.in_order(values, giving.pairing)
    if len(values) > roots:
        return values[:-1], values[-1]
    return values, None


def _called(entry: Entry, arrays: list[Any], packs: list[Any]) -> Any:
    """The results of the compiled program, compared with the default's in checked runs."""
    plain = entry.placed and entry.default is None and type(entry.executable) is jax.stages.Compiled
    if plain and np.ndarray not in map(type, packs):
        return entry.executable(*arrays, *packs)  # types of jax arrays do not depend on the setting
    with jax.enable_x64(True):
        if not entry.placed:
            devices.try_placing(entry, arrays, packs)
        values = entry.executable(*arrays, *packs)
        if entry.default is not None:
            values = _compared(entry, values, entry.default(*arrays, *packs))
    return values


def _give(entry: Entry, arrays: list[Any], unused: donation.Unused) -> list[Any]:
    """Inputs that the executable may take; if too many are in use, it is one that takes none."""
    if entry.giving.copies > donation.PATIENCE:
        entry.giving.settled = True
        entry.giving.copies = 0
        compiling.compile_entry(entry, _policy(entry), optimizer.checked_mode())
    if not entry.giving.pairing.leaves:
        return arrays
    metrics.count("donated")
    return entry.giving.prepare(arrays, unused, entry.plan.device)


def _packs(entry: Entry, scalars: list[Any]) -> Any:
    """The scalar vectors; those of a run with the same numbers as before are on the device already."""
    if scalars != entry.last_values or not entry.last_packs:
        entry.last_values, entry.last_packs = scalars, entry.packing.pack(scalars)
    elif type(entry.last_packs[0]) is np.ndarray:
        entry.last_packs = [put(x, entry.plan.device) for x in entry.last_packs]
    return entry.last_packs


def put(array: Any, device: Any) -> Any:
    """A jax array on a device; the NumPy array must not be written to afterwards."""
    with jax.enable_x64(True):
        return jax.device_put(array, device)


def _explained(entry: Entry, error: Exception) -> ExecutionError:
    last = entry.plan.steps[-1]
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    failed = ExecutionError(
        what=f"graph {entry.name} of {len(entry.plan.steps)} operations failed: {reason}",
        where=f"last recorded at {source_lines.line_of(last.src)}",
        fix="Its tensors stay pending: free memory or change the device and observe them again.",
    )
    failed.__cause__ = error
    return failed


def _compared(entry: Entry, optimized: Any, default: Any) -> Any:
    """The optimized results, or the default ones where the two differ by more than rounding."""
    from graphopt.measure import compare_outputs

    metrics.count("checked")
    difference = compare_outputs(default, optimized)
    if difference.equal:
        return optimized
    metrics.outcome("differs from the default")
    metrics.fallback(f"checked: {entry.name} differs from XLA's default")
    entry.executable, entry.default = entry.default, None
    entry.outcome = "fell back: results differ"
    return default
