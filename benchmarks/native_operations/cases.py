"""What the loops compute: one operation a case, at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Case:
    """One operation.

    Attributes:
        name: group and operation, such as ``sorts.sort``.
        sizes: elements of its array; every case is run at each.
        fn: the operation on an array; the loop writes its whole result in every iteration.
        make: (generator, elements) -> the array.
    """

    name: str
    sizes: tuple[int, ...]
    fn: Callable[[Any], Any]
    make: Callable[[np.random.Generator, int], np.ndarray[Any, Any]]


SMALL: Final = (16, 128, 1024)
USUAL: Final = (64, 1024, 16_384)


def vector(rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    """Uniform numbers in (0.1, 1), f32 [n]."""
    return rng.uniform(0.1, 1.0, n).astype(np.float32)


def rows(width: int) -> Callable[[np.random.Generator, int], np.ndarray[Any, Any]]:
    """The same as f32 [n / width, width]."""
    return lambda rng, n: vector(rng, n).reshape(-1, width)


def square(rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    """The same as f32 [m, m], m the root of n."""
    m = round(n**0.5)
    return vector(rng, m * m).reshape(m, m)


def integers(rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    """Integers below 1,000, s32 [n]."""
    return rng.integers(1, 1000, n).astype(np.int32)


def places(x: Any) -> Any:
    """Indices into `x` that its values decide, s32 [n]."""
    return jnp.abs((x * 7919.0).astype(jnp.int32)) % x.shape[0]


def _group(
    name: str, sizes: tuple[int, ...], make: Any, operations: dict[str, Callable[[Any], Any]]
) -> tuple[Case, ...]:
    return tuple(Case(f"{name}.{key}", sizes, fn, make) for key, fn in operations.items())


def _updated(x: Any, update: Any) -> Any:
    return lax.dynamic_update_slice(x, update, (places(x)[0],) + (0,) * (x.ndim - 1))


ELEMENTWISE: Final = {
    "chain of sums": lambda x: (x * 1.1 + x) * x - 0.5 * x,
    "exponential": lambda x: jnp.exp(-x),
    "logarithm": lambda x: jnp.log(x + 1.0),
    "sine": lambda x: jnp.sin(x),
    "power": lambda x: jnp.power(x * x + 0.1, 0.7),
    "arc tangent": lambda x: jnp.arctan2(x, x + 0.5),
    "error function": lambda x: jax.scipy.special.erf(x),
    "hyperbolic tangent": lambda x: jnp.tanh(x),
    "choice": lambda x: jnp.where(x > 0.5, x, 2.0 * x),
    "division": lambda x: 1.0 / (x + 2.0),
    "bf16": lambda x: (x.astype(jnp.bfloat16) * jnp.bfloat16(1.5) + 1).astype(jnp.float32),
    "gamma's logarithm": lambda x: jax.scipy.special.gammaln(x + 1.0),
}
INTEGERS: Final = {
    "sums": lambda x: x * 3 + 7,
    "division": lambda x: (x + 99) // 7,
    "remainder": lambda x: x % 97,
    "bits": lambda x: (x << 3) ^ (x >> 2),
    "ones": lambda x: lax.population_count(x),
}
REDUCTIONS: Final = {
    "sum": lambda x: jnp.sum(x)[None],
    "maximum": lambda x: jnp.max(x)[None],
    "place of the maximum": lambda x: jnp.argmax(x)[None],
    "mean and variance": lambda x: (x - x.mean()) / jnp.sqrt(x.var() + 1e-3),
    "softmax": lambda x: jax.nn.softmax(x),
    "norm": lambda x: x / jnp.linalg.norm(x),
    "any": lambda x: jnp.any(x > 2.0)[None],
}
ROWS: Final = {
    "sums of rows": lambda x: x.sum(1),
    "sums of columns": lambda x: x.sum(0),
    "places of maxima": lambda x: jnp.argmax(x, 1),
    "softmax of rows": lambda x: jax.nn.softmax(x, -1),
    "transposed": lambda x: x.T * 1.5,
    "reversed": lambda x: x[:, ::-1] * 1.5,
    "sorted rows": lambda x: jnp.sort(x, 1),
    "largest four of rows": lambda x: lax.top_k(x, 4)[0],
    "cumulative sums": lambda x: jnp.cumsum(x, 1),
}
MOVES: Final = {
    "rolled": lambda x: jnp.roll(x, 1) * 0.9,
    "padded": lambda x: jnp.pad(x, 2)[2:-1] * 0.9,
    "joined": lambda x: jnp.concatenate([x[1:], x[:1] * 0.5]),
    "three neighbours": lambda x: jnp.roll(x, 1) + jnp.roll(x, -1) - 2.0 * x,
    "interleaved": lambda x: jnp.stack([x[::2], x[1::2]], 1).reshape(-1),
    "one element set": lambda x: x.at[places(x)[0]].set(0.5),
    "a quarter set": lambda x: _updated(x, x[: max(1, x.shape[0] // 4)] * 0.9),
    "gathered": lambda x: x[places(x)] * 0.9,
    "one read": lambda x: x[places(x)[0]][None] * 0.9,
}
CELLS: Final = {
    "cells gathered": lambda x: x[_cells(x, 0), _cells(x, 1)] * 0.9,
    "four cells gathered": lambda x: _four_cells(x).mean(0),
    "cells mixed": lambda x: x + 0.1 * jnp.tanh(x[_cells(x, 0), _cells(x, 1)]),
}
WHOLE_ROWS: Final = {
    "rows gathered": lambda x: x[places(x[:, 0])],
    "rows joined": lambda x: jnp.concatenate([x[1:], x[:1]]),
    "one row set": lambda x: x.at[places(x[:, 0])[0]].set(x[0] * 0.5),
    "rows chosen": lambda x: jnp.where((x[:, 0] > 0.5)[:, None], x, x[:1]),
    "queue": lambda x: jnp.concatenate([x[1:], (x[0] * 0.5)[None]]),
    "one column set": lambda x: x.at[:, places(x[:, 0])[0] % x.shape[1]].set(0.5),
    "a read per row": lambda x: jnp.take_along_axis(x, places(x[:, 0])[:, None] % x.shape[1], 1),
}
SCATTERS: Final = {
    "elements added": lambda x: jnp.zeros_like(x).at[places(x)].add(x),
    "elements set": lambda x: x.at[places(x)].set(0.5),
    "eight added": lambda x: x.at[places(x)[:8]].add(0.1),
    "segments": lambda x: jax.ops.segment_sum(x, places(x) % 16, 16),
    "counted": lambda x: jnp.bincount(places(x) % 32, length=32),
}
ROW_SCATTERS: Final = {
    "rows added": lambda x: jnp.zeros_like(x).at[places(x[:, 0])].add(x),
    "rows set": lambda x: x.at[places(x[:, 0])].set(x * 0.5),
    "a set per row": lambda x: x.at[jnp.arange(x.shape[0]), places(x[:, 0]) % x.shape[1]].set(0.5),
}
SORTS: Final = {
    "sort": lambda x: jnp.sort(x),
    "places": lambda x: jnp.argsort(x),
    "median": lambda x: jnp.median(x)[None],
    "largest four": lambda x: lax.top_k(x, 4)[0],
    "searched": lambda x: jnp.searchsorted(jnp.cumsum(x), x),
    "interpolated": lambda x: jnp.interp(x, jnp.linspace(0, 1, 32), jnp.linspace(0, 1, 32) ** 2),
    "cumulative sum": lambda x: jnp.cumsum(x),
    "cumulative product": lambda x: jnp.cumprod(x),
}
PRODUCTS: Final = {
    "matrix by vector": lambda x: x @ x[0],
    "vector by matrix": lambda x: x[0] @ x,
    "matrix by matrix": lambda x: x @ x,
    "by its transpose": lambda x: x @ x.T,
    "by eight columns": lambda x: x @ x[:, :8],
    "outer": lambda x: jnp.outer(x[0], x[1]),
    "form": lambda x: (x[0] @ x @ x[1])[None],
    "solved": lambda x: jnp.linalg.solve(x + jnp.eye(x.shape[0]) * x.shape[0], x[0]),
    "factors": lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(x.shape[0])),
}
THIN: Final = {
    "rows by a square": lambda x: x @ x[: x.shape[1]],
    "rows by its transpose": lambda x: x @ x[: x.shape[1]].T,
    "square by turned rows": lambda x: x[: x.shape[1]] @ x.T,
    "rows by rows": lambda x: x.T @ x,
    "rows by a vector": lambda x: x @ x[0],
}
BATCHES: Final = {
    "products of 3 by 3": lambda x: x.reshape(-1, 3, 3) @ x.reshape(-1, 3, 3),
    "3 by 3 by vectors": lambda x: jnp.einsum("bij,bj->bi", x.reshape(-1, 3, 3), x[:, :3]),
    "products of rows": lambda x: jnp.einsum("bi,bi->b", x, x),
    "distances": lambda x: ((x[:, None, :3] - x[None, :, :3]) ** 2).sum(-1),
}
RANDOM: Final = {
    "uniform": lambda x: jax.random.uniform(_key(x), x.shape),
    "normal": lambda x: jax.random.normal(_key(x), x.shape),
    "categorical": lambda x: jax.random.categorical(_key(x), x)[None],
    "permutation": lambda x: jax.random.permutation(_key(x), x),
    "choice": lambda x: jax.random.choice(_key(x), x, (8,)),
    "bernoulli": lambda x: jax.random.bernoulli(_key(x), 0.3, x.shape),
}
WINDOWS: Final = {
    "sums of 3 by 3": lambda x: _window(x, 0.0, lax.add, 3, 3),
    "maxima of 3 by 3": lambda x: _window(x, -jnp.inf, lax.max, 3, 3),
    "sums of 5 by 5": lambda x: _window(x, 0.0, lax.add, 5, 5),
    "maxima of 9 in rows": lambda x: _window(x, -jnp.inf, lax.max, 1, 9),
    "sums of 3 in columns": lambda x: _window(x, 0.0, lax.add, 3, 1),
    "cells alive": lambda x: _window((x > 0.5).astype(jnp.int32), 0, lax.add, 3, 3),
    "minima so far in rows": lambda x: lax.cummin(x, axis=1),
    "sums so far in columns": lambda x: jnp.cumsum(x, axis=0),
    "sums behind in rows": lambda x: lax.cumsum(x, axis=1, reverse=True),
}
CONTROL: Final = {
    "branch": lambda x: lax.cond(x[0] > 0.3, lambda y: y * 1.1, lambda y: jnp.cumsum(y), x),
    "inner loop": lambda x: lax.fori_loop(0, 8, lambda i, y: y * 0.9 + y[i], x),
    "scan over elements": lambda x: lax.scan(lambda c, y: (c * 0.9 + y, c), x[0], x)[1],
}


def _cells(x: Any, seed: int) -> Any:
    """Rows or columns of a square, s32 of the shape of `x`; always the same."""
    return np.random.default_rng(seed).integers(0, x.shape[0], x.shape).astype(np.int32)


def _four_cells(x: Any) -> Any:
    """A stack of four squares, each of other cells of `x`."""
    rows, columns = (np.stack([_cells(x, 2 * k + axis) for k in range(4)]) for axis in (0, 1))
    return x[rows, columns]


def _window(x: Any, start: Any, combine: Any, *size: int) -> Any:
    return lax.reduce_window(x, np.array(start, x.dtype), combine, size, (1, 1), "SAME")


def _key(x: Any) -> Any:
    return jax.random.wrap_key_data(lax.bitcast_convert_type(x[:2], jnp.uint32))


CASES: Final[tuple[Case, ...]] = (
    *_group("elementwise", USUAL, vector, ELEMENTWISE),
    *_group("integers", USUAL, integers, INTEGERS),
    *_group("reductions", USUAL, vector, REDUCTIONS),
    *_group("rows of 16", USUAL, rows(16), ROWS),
    *_group("rows of 64", (1024, 16_384), rows(64), ROWS),
    *_group("moves", USUAL, vector, MOVES),
    *_group("squares", (256, 1024, 16_384), square, CELLS),
    *_group("rows of 8", USUAL, rows(8), WHOLE_ROWS),
    *_group("rows of 128", (1024, 16_384), rows(128), WHOLE_ROWS),
    *_group("scatters", SMALL, vector, SCATTERS),
    *_group("scatters of 8", USUAL, rows(8), ROW_SCATTERS),
    *_group("sorts", SMALL, vector, SORTS),
    *_group("products", (256, 1024, 4096, 16_384), square, PRODUCTS),
    *_group("thin of 6", (48, 384, 1536), rows(6), THIN),
    *_group("thin of 16", (512, 4096), rows(16), THIN),
    *_group("batches of 9", (72, 1152), rows(9), BATCHES),
    *_group("random", SMALL, vector, RANDOM),
    *_group("control", SMALL, vector, CONTROL),
    *_group("windows", (256, 4096, 36_864), square, WINDOWS),
)
