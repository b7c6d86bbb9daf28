"""The place of a maximum or minimum, by whole numbers that vector code compares.

XLA:CPU reduces pairs of a value and its place. Where the values are floats, of which any may be no number, or
rows do not lie together in memory, that is scalar code. Floats have whole numbers in the same order. Along
long rows those are reduced with their places, in vector code. Everywhere else the extreme comes first, and
then the first place that holds it: two plain reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

RULES: Final = {
    "places-type": "elements are neither floating-point numbers of 16 to 64 bits nor whole numbers",
    "places-empty": "there is nothing to look through, or more than 32 bits can count",
    "places-axes": "more than one dimension is looked through",
    "places-short": "XLA writes so few elements out, in vector code",
}

WRITTEN_OUT: Final = 24
"""Along fewer elements LLVM unrolls XLA's loop and computes many rows at once."""

LONG_ROW: Final = 32
"""Elements from which rows that lie together are reduced with their places."""

_FLOATS: Final = ("bfloat16", "float16", "float32", "float64")


def forbids(operation: Operation) -> str | None:
    """Why the place is left to XLA."""
    (x,) = operation.operands
    if x.dtype.name not in _FLOATS and x.dtype.kind not in "iu":
        return "places-type"
    if len(operation.params["axes"]) != 1:
        return "places-axes"
    if x.dims[operation.params["axes"][0]] < WRITTEN_OUT:
        return "places-short"
    return "places-empty" if not 0 < x.size < 2**31 else None


def times(operation: Operation, costs: CpuCosts) -> Times:
    """Pairs in scalar code; whole numbers in one pass or two."""
    (x,), (axis,) = operation.operands, operation.params["axes"]
    floats, ns = x.dtype.name in _FLOATS, costs.place_ns
    memory = x.bytes / costs.bytes_per_ns if x.bytes > costs.cached_bytes else 0.0
    if _in_rows(operation):
        kept = ns["floats"] if floats else ns["keys"]
        return Times(x.size * kept + memory, x.size * ns["keys"] + memory)
    if prod(x.dims[axis + 1 :]) == 1:
        return Times(x.size * ns["short"] + memory, x.size * ns["short twice"] + 2 * memory)
    kept = ns["floats"] if floats else ns["across"]
    return Times(x.size * kept + memory, x.size * ns["twice"] + 2 * memory)


def _in_rows(operation: Operation) -> bool:
    """True for long rows that lie together in memory."""
    dims, (axis,) = operation.operands[0].dims, operation.params["axes"]
    return dims[axis] >= LONG_ROW and prod(dims[axis + 1 :]) == 1


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """The first place of the greatest or smallest element; of one that is no number, where there is one."""
    (axis,), greatest = operation.params["axes"], operation.primitive == "argmax"
    index_dtype = operation.results[0].dtype
    with jax.enable_x64(True):
        # The keys read it several times, and what computes it may keep them from vector code.
        x = operands[0] if operation.in_loop else lax.optimization_barrier(operands[0])
        keys = _keys(x, greatest)
        if _in_rows(operation):
            whole = lax.argmax if greatest else lax.argmin
            return [whole(keys, axis, index_dtype)]
        reduce = jnp.max if greatest else jnp.min
        held = keys == reduce(keys, axis, keepdims=True)
        places = lax.broadcasted_iota(np.int32, keys.shape, axis)
        first = jnp.min(jnp.where(held, places, np.int32(keys.shape[axis])), axis)
        return [lax.convert_element_type(first, index_dtype)]


def _keys(x: Any, greatest: bool) -> Any:
    """Whole numbers in the order of `x`, the first of which is what XLA would find.

    Zeros of both signs are equal, and so are denormal numbers, which XLA's code takes for zero; what is no
    number goes before all.
    """
    if x.dtype.name not in _FLOATS:
        return x
    if x.dtype.itemsize == 2:
        x = lax.convert_element_type(x, np.float32)
    facts, kind = jnp.finfo(x.dtype), np.int32 if x.dtype.itemsize == 4 else np.int64
    bits, zero, span = lax.bitcast_convert_type(x, kind), kind(0), np.iinfo(kind)
    magnitude = bits & kind(span.max)
    ordered = jnp.where(bits < zero, -magnitude, magnitude)
    least, most = (np.asarray(n, x.dtype).view(kind) for n in (facts.smallest_normal, np.inf))
    ordered = jnp.where(magnitude < least, zero, ordered)
    return jnp.where(magnitude > most, kind(span.max if greatest else span.min), ordered)


FORM: Final = Form(
    "extreme-places",
    ("argmax", "argmin"),
    "whole numbers in the order of the floats, reduced with their places or twice",
    forbids,
    times,
    compute,
    exact=True,
)
