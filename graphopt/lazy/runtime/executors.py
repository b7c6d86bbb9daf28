"""The two ways to run a plan: operation by operation, and as one compiled program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.infer import struct
from graphopt.lazy.core.node import Instr
from graphopt.lazy.errors import ExecutionError, LazyError
from graphopt.lazy.runtime import index_checks
from graphopt.lazy.runtime.trace import Plan, Step


@dataclass(frozen=True)
class Failure:
    """Stands for a value that could not be computed.

    Attributes:
        error: why, naming the operation and its source line.
    """

    error: LazyError


def run_op_by_op(plan: Plan, leaves: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
    """Runs a plan one operation at a time, on NumPy where the device is a CPU.

    Nothing is compiled but operations that NumPy does not have, each alone and once per avals.

    Args:
        plan: what to run.
        leaves: buffers, jax or NumPy.
        scalars: Python numbers.

    Returns:
        One value per root: a NumPy or jax array, or a `Failure`.
    """
    env: list[Any] = [None] * plan.slots
    host = plan.device.platform == "cpu"
    for slot, value in zip(plan.leaf_slots, leaves, strict=True):
        env[slot] = value
    for slot, aval, value in zip(plan.scalar_slots, plan.scalar_avals, scalars, strict=True):
        env[slot] = np.asarray(value, aval.dtype.np)
    for slot, value in zip(plan.const_slots, plan.const_values, strict=True):
        env[slot] = value
    with np.errstate(all="ignore"), jax.enable_x64(True):
        for step in plan.steps:
            env[step.out] = _run_step(step, [env[k] for k in step.inputs], host)
            for slot in step.free:
                env[slot] = None
    return [
        _owned(env[slot], aval) for slot, aval in zip(plan.root_slots, plan.root_avals, strict=True)
    ]


def _run_step(step: Step, inputs: list[Any], host: bool) -> Any:
    instr = step.instr
    for value in inputs:
        if type(value) is Failure:
            return value
    try:
        if host and instr.op.np is not None:
            arrays = [x if isinstance(x, (tuple, list)) else np.asarray(x) for x in inputs]
            return instr.run_numpy(*arrays)
        return compiled_alone(instr)(*inputs)
    except IndexError:
        return Failure(index_checks.out_of_range(instr.op.name, step.src))
    except LazyError as error:
        return Failure(error)
    except Exception as error:
        return Failure(_explained(instr, step, error))


def _explained(instr: Instr, step: Step, error: Exception) -> ExecutionError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    failed = ExecutionError(
        what=f"{instr!r} failed: {reason}",
        where=source_lines.line_of(step.src),
        fix="Other tensors stay usable; check the values that this operation received.",
    )
    failed.__cause__ = error
    return failed


def _owned(value: Any, aval: Any) -> Any:
    """A result that shares no memory with anything else and cannot be written to."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value, aval.dtype.np)
    if array.base is not None or not array.flags.owndata or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    array.flags.writeable = False
    return array


def compiled_alone(instr: Instr) -> Any:
    """One operation as a compiled function (made at the first call)."""
    if instr.jitted is None:
        instr.jitted = jax.jit(instr.run_jax)
    return instr.jitted


def replay(plan: Plan, leaves: Sequence[Any], scalars: Sequence[Any]) -> tuple[list[Any], Any]:
    """Runs a plan on jax values, tracers included.

    Returns:
        The roots, and the index flags (bool [K]) of its `checked_places`; None if there are none.
    """
    import jax.numpy as jnp

    env: list[Any] = [None] * plan.slots
    for slot, value in zip(
        (*plan.leaf_slots, *plan.scalar_slots), (*leaves, *scalars), strict=True
    ):
        env[slot] = value
    for slot, value in zip(plan.const_slots, plan.const_values, strict=True):
        env[slot] = value
    flags = []
    for step in plan.steps:
        instr = step.instr
        inputs = tuple([env[k] for k in step.inputs])
        if instr.op.has_index:
            flags.append(index_checks.flag(instr, inputs))
        env[step.out] = instr.run_jax(*map(_as_jax, inputs))
        for slot in step.free:
            env[slot] = None
    roots = [jnp.asarray(env[slot]) for slot in plan.root_slots]
    return roots, jnp.stack(flags) if flags else None


def _as_jax(value: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value


def checked_places(plan: Plan) -> tuple[tuple[str, Any], ...]:
    """Operations of a plan whose indices are checked at run time."""
    return tuple((s.instr.op.name, s.src) for s in plan.steps if s.instr.op.has_index)


@dataclass(frozen=True)
class Packing:
    """How scalar parameters travel: one vector per dtype instead of one argument per number.

    Attributes:
        dtypes: NumPy dtype of each vector.
        members: indices of the scalar parameters in each vector.
    """

    dtypes: tuple[Any, ...]
    members: tuple[tuple[int, ...], ...]

    def pack(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """The vectors for these numbers."""
        return [
            np.array([values[k] for k in group], dtype)
            for dtype, group in zip(self.dtypes, self.members, strict=True)
        ]

    def unpack(self, vectors: Sequence[Any]) -> list[Any]:
        """The numbers, as values [], from the vectors."""
        values: list[Any] = [None] * sum(map(len, self.members))
        for vector, group in zip(vectors, self.members, strict=True):
            for position, k in enumerate(group):
                values[k] = vector[position]
        return values


def packing_of(plan: Plan) -> Packing:
    """The packing of a plan's scalar parameters."""
    groups: dict[Any, list[int]] = {}
    for k, aval in enumerate(plan.scalar_avals):
        groups.setdefault(aval.dtype.np, []).append(k)
    return Packing(tuple(groups), tuple(tuple(group) for group in groups.values()))


def as_function(plan: Plan, packing: Packing) -> Any:
    """A plan as a function of its leaves and scalar vectors, traceable by jax.

    It returns the tuple of roots, followed by the index flags if there are any.
    """

    def run(leaves: tuple[Any, ...], packs: tuple[Any, ...]) -> tuple[Any, ...]:
        roots, flags = replay(plan, leaves, packing.unpack(packs))
        return tuple(roots) if flags is None else (*roots, flags)

    return run


@functools.lru_cache(maxsize=4096)
def _dtype_struct(length: int, dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((length,), dtype)


def abstract_arguments(plan: Plan, packing: Packing) -> tuple[Any, Any]:
    """What `as_function` takes, as shapes and dtypes on the plan's device."""
    packs = tuple(
        _dtype_struct(len(group), dtype)
        for dtype, group in zip(packing.dtypes, packing.members, strict=True)
    )
    return tuple(map(struct, plan.leaf_avals)), packs
