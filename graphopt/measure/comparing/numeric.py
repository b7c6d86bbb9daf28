"""Do two results agree? Tolerances per dtype, stated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE: Final[dict[str, float]] = {
    "float64": 1e-11, "complex128": 1e-11, "float32": 2e-5, "complex64": 2e-5,
    "bfloat16": 4e-2, "float16": 6e-3, "float8": 0.3,
}  # fmt: skip
"""Largest difference relative to the array's largest magnitude. Integers and booleans must be equal."""


@dataclass(frozen=True)
class Difference:
    """How far two results are apart.

    Attributes:
        relative: largest difference over all leaves, relative to the leaf's largest magnitude; inf
            where integers differ or NaN and infinities do not coincide.
        equal: True if every leaf is within its dtype's tolerance.
        leaf: key path of the worst leaf.
    """

    relative: float
    equal: bool
    leaf: str = ""


def compare_outputs(reference: Any, result: Any, *, slack: float = 1.0) -> Difference:
    """Compares two pytrees of arrays of one structure.

    Args:
        reference: result of XLA's default.
        result: result of the candidate.
        slack: factor on the floating-point tolerances, for programs that amplify rounding.
    """
    left = jax.tree_util.tree_flatten_with_path(reference)[0]
    right = jax.tree_util.tree_flatten_with_path(result)[0]
    if [path for path, _ in left] != [path for path, _ in right]:
        return Difference(np.inf, False, "structure")
    worst = Difference(0.0, True)
    equal = True
    for (path, a), (_, b) in zip(left, right, strict=True):
        relative, within = _compare_leaf(_host(a), _host(b), slack)
        equal &= within
        if relative > worst.relative or (not within and worst.equal):
            worst = Difference(relative, within, jax.tree_util.keystr(path))
    return Difference(worst.relative, equal, worst.leaf)


def _host(leaf: Any) -> np.ndarray[Any, Any]:
    return np.asarray(jax.random.key_data(leaf) if is_prng_key(leaf) else leaf)


def is_prng_key(leaf: Any) -> bool:
    """True for an array of typed random keys, which numpy cannot hold."""
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def tolerance_name(dtype: np.dtype[Any]) -> str:
    """Row of `TOLERANCE` for a dtype; its own name where there is none."""
    return "float8" if dtype.name.startswith("float8") else str(dtype.name)


def _compare_leaf(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], slack: float
) -> tuple[float, bool]:
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf, False
    name = tolerance_name(a.dtype)
    if name not in TOLERANCE:
        return (0.0, True) if np.array_equal(a, b) else (np.inf, False)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    finite = np.isfinite(x)
    if not np.array_equal(finite, np.isfinite(y)):
        return np.inf, False
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return np.inf, False
    if not finite.any():
        return 0.0, True
    scale = float(np.abs(x[finite]).max())
    error = float(np.abs(x[finite] - y[finite]).max())
    if error == 0.0:
        return 0.0, True
    relative = error / max(scale, float(np.finfo(np.float32).tiny))
    return relative, relative <= TOLERANCE[name] * slack
