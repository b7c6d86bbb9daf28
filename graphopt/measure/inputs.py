"""Inputs for modules: recorded from a program, or made up; kept in plain ``.npz`` files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

from graphopt import jax_private
from graphopt.errors import MeasureError
from graphopt.measure.comparing.numeric import is_prng_key

Array = np.ndarray[Any, Any]

Ends = tuple[float, float]
"""Smallest and largest value of an array."""

_WIDE_INTS: Final = (np.uint32, np.uint64)
"""Unsigned words are random keys and hashes more often than indices: the full range is valid."""


def recorded_inputs(compiled: Any, args: tuple[Any, ...]) -> list[Array] | None:
    """What jax passes to an executable's module for these arguments, in parameter order.

    Args:
        compiled: a ``jax.stages.Compiled``.
        args: its positional arguments.

    Returns:
        Host copies, or None where jax does not say which arguments the module kept.
    """
    kept = jax_private.kept_arguments(compiled)
    if kept is None:
        return None
    constants, indices = kept
    leaves = [*constants, *jax.tree.leaves(args)]
    if any(i >= len(leaves) for i in indices):
        return None
    return [host_array(leaves[i]) for i in indices]


def host_array(leaf: Any) -> Array:
    """A host copy of one argument, with the type that jax would give it."""
    if is_prng_key(leaf):
        leaf = jax.random.key_data(leaf)
    if not hasattr(leaf, "dtype") or isinstance(leaf, np.ndarray | np.generic):
        leaf = jnp.asarray(leaf)
    return np.array(leaf)


def made_up_inputs(
    parameters: Sequence[jax.ShapeDtypeStruct], seed: int = 0, ranges: Sequence[Ends | None] = ()
) -> list[Array]:
    """Inputs of the right types and a sane range: no denormals, indices that exist.

    Where no range is given, floating point is uniform in [0.25, 1.25), which logarithms, divisions and square
    roots bear; signed integers are 0 or 1, valid indices of nearly everything; unsigned words are arbitrary.

    Args:
        parameters: of a module.
        seed: other seeds make other values.
        ranges: smallest and largest value of each parameter, both included, or None; empty for none.
    """
    rng = np.random.default_rng(seed)
    known = ranges if len(ranges) == len(parameters) else [None] * len(parameters)
    return [
        _made_up(rng, p.shape, np.dtype(p.dtype), ends)
        for p, ends in zip(parameters, known, strict=True)
    ]


def _made_up(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], ends: Ends | None
) -> Array:
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if ends is not None and np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        low, high = (min(max(int(end), limits.min), limits.max) for end in ends)
        return np.asarray(rng.integers(low, high, shape, dtype, endpoint=True))
    if dtype.type in _WIDE_INTS:
        return np.asarray(rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True))
    if np.issubdtype(dtype, np.integer):
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    if ends is not None and dtype.kind != "c":
        low_end, high_end = ends
        return np.asarray(low_end + (high_end - low_end) * rng.random(shape)).astype(dtype)
    real = rng.random(shape) + 0.25
    return np.asarray(real + 1j * rng.random(shape) if dtype.kind == "c" else real).astype(dtype)


def save_inputs(path: Path, inputs: Sequence[Array]) -> None:
    """Writes inputs to a ``.npz`` file; types that numpy cannot name are stored as bytes."""
    arrays: dict[str, Array] = {}
    for i, value in enumerate(inputs):
        if value.dtype.kind == "V" or value.dtype.name not in np.sctypeDict:
            arrays[f"{i:05d}:{value.dtype.name}:{','.join(map(str, value.shape))}"] = np.frombuffer(
                np.ascontiguousarray(value).tobytes(), np.uint8
            )
        else:
            arrays[f"{i:05d}"] = value
    np.savez(path, **arrays)  # type: ignore[arg-type]


def load_inputs(path: Path) -> list[Array]:
    """Reads what `save_inputs` wrote.

    Raises:
        MeasureError: the file is damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            return [_restore(name, data[name]) for name in sorted(data.files)]
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise MeasureError(
            what=f"inputs cannot be read: {error}", where=str(path), fix="Record them again."
        ) from error


def _restore(name: str, value: Array) -> Array:
    if ":" not in name:
        return value
    _, dtype, shape = name.split(":")
    dims = tuple(int(d) for d in shape.split(",") if d)
    return np.frombuffer(value.tobytes(), jnp.dtype(dtype)).reshape(dims)
