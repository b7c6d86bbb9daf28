"""Reductions, cumulative operations, sorts and selections."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.operations.row import Maker, Row, integers, normal, planes, three, uniform, vectors

CUBES = ((8, 16, 8), (32, 256, 32), (64, 1024, 64))


def _rows(name: str, fn: Any, torch: Any, **options: Any) -> Row:
    return Row(f"reductions.{name}", fn, planes(), torch, **options)


REDUCTIONS: tuple[Row, ...] = (
    _rows("sum", jnp.sum, lambda T, x: T.sum(x)),
    _rows("sum of rows", lambda x: jnp.sum(x, 1), lambda T, x: T.sum(x, 1)),
    _rows("sum of columns", lambda x: jnp.sum(x, 0), lambda T, x: T.sum(x, 0)),
    Row("reductions.sum of the middle", lambda x: jnp.sum(x, 1), three(normal, CUBES),
        lambda T, x: T.sum(x, 1)),
    Row("reductions.sum of both sides", lambda x: jnp.sum(x, (0, 2)), three(normal, CUBES),
        lambda T, x: T.sum(x, (0, 2))),
    _rows("mean of rows", lambda x: jnp.mean(x, 1), lambda T, x: T.mean(x, 1)),
    _rows("variance of rows", lambda x: jnp.var(x, 1), lambda T, x: T.var(x, 1, correction=0)),
    _rows("variance of columns", lambda x: jnp.var(x, 0), lambda T, x: T.var(x, 0, correction=0)),
    _rows("standard deviation", jnp.std, lambda T, x: T.std(x, correction=0)),
    _rows("maximum", jnp.max, lambda T, x: T.amax(x)),
    _rows("maximum of rows", lambda x: jnp.max(x, 1), lambda T, x: T.amax(x, 1)),
    _rows("maximum of columns", lambda x: jnp.max(x, 0), lambda T, x: T.amax(x, 0)),
    _rows("argmax of rows", lambda x: jnp.argmax(x, 1), lambda T, x: T.argmax(x, 1)),
    _rows("argmax of columns", lambda x: jnp.argmax(x, 0), lambda T, x: T.argmax(x, 0)),
    _rows("argmin", jnp.argmin, lambda T, x: T.argmin(x)),
    _rows("product of rows", lambda x: jnp.prod(x, 1), lambda T, x: T.prod(x, 1)),
    _rows("logsumexp of rows", lambda x: jax.nn.logsumexp(x, 1), lambda T, x: T.logsumexp(x, 1)),
    _rows("norm of rows", lambda x: jnp.linalg.norm(x, axis=1),
          lambda T, x: T.linalg.vector_norm(x, dim=1)),
    _rows("any of rows", lambda x: jnp.any(x > 3, 1), lambda T, x: T.any(x > 3, 1)),
    _rows("all", lambda x: jnp.all(x < 9), lambda T, x: T.all(x < 9)),
    _rows("count_nonzero", lambda x: jnp.count_nonzero(x > 0),
          lambda T, x: T.count_nonzero(x > 0)),
    _rows("nansum of rows", lambda x: jnp.nansum(x, 1), lambda T, x: T.nansum(x, 1)),
    _rows("nanmean of rows", lambda x: jnp.nanmean(x, 1), lambda T, x: T.nanmean(x, 1)),
    _rows("sum of rows, bfloat16", lambda x: jnp.sum(x.astype(jnp.bfloat16), 1),
          lambda T, x: T.sum(x.bfloat16(), 1)),
    Row("reductions.sum of rows, integers", lambda x: jnp.sum(x, 1), planes(make=integers),
        lambda T, x: T.sum(x, 1, dtype=T.int32)),
    Row("reductions.bincount", lambda x: jnp.bincount(x, length=1000), vectors(make=integers),
        lambda T, x: T.bincount(x, minlength=1000)),
    Row("reductions.histogram", lambda x: jnp.histogram(x, 50, (-3, 3))[0], vectors(),
        lambda T, x: T.histc(x, 50, -3, 3)),
)  # fmt: skip

CUMULATIVE: tuple[Row, ...] = (
    Row("cumulative.sum", jnp.cumsum, vectors(), lambda T, x: T.cumsum(x, 0)),
    Row("cumulative.sum, integers", jnp.cumsum, vectors(make=integers),
        lambda T, x: T.cumsum(x, 0, dtype=T.int32)),
    Row("cumulative.sum of rows", lambda x: jnp.cumsum(x, 1), planes(),
        lambda T, x: T.cumsum(x, 1)),
    Row("cumulative.sum of columns", lambda x: jnp.cumsum(x, 0), planes(),
        lambda T, x: T.cumsum(x, 0)),
    Row("cumulative.sum of rows, backwards", lambda x: lax.cumsum(x, 1, reverse=True), planes(),
        lambda T, x: T.flip(T.cumsum(T.flip(x, (1,)), 1), (1,))),
    Row("cumulative.product of rows", lambda x: jnp.cumprod(x, 1),
        planes(make=uniform, low=0.9, high=1.1), lambda T, x: T.cumprod(x, 1)),
    Row("cumulative.maximum of rows", lambda x: lax.cummax(x, 1), planes(),
        lambda T, x: T.cummax(x, 1)[0]),
    Row("cumulative.maximum of columns", lambda x: lax.cummax(x, 0), planes(),
        lambda T, x: T.cummax(x, 0)[0]),
    Row("cumulative.minimum", lambda x: lax.cummin(x, 0), vectors(),
        lambda T, x: T.cummin(x, 0)[0]),
    Row("cumulative.logsumexp of rows", lambda x: lax.cumlogsumexp(x, 1), planes(),
        lambda T, x: T.logcumsumexp(x, 1)),
    Row("cumulative.associative scan of rows", lambda x: lax.associative_scan(jnp.add, x, axis=1),
        planes(), lambda T, x: T.cumsum(x, 1)),
    Row("cumulative.linear recurrence", lambda a, b: lax.associative_scan(
        lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b), axis=0)[1],
        planes(2, uniform, low=0.1, high=0.9)),
    Row("cumulative.gradient of sums of rows",
        lambda x, y: jax.vjp(lambda x: jnp.cumsum(x, 1), x)[1](y)[0], planes(2),
        lambda T, x, y: T.flip(T.cumsum(T.flip(y, (1,)), 1), (1,))),
    Row("cumulative.differences of rows", lambda x: jnp.diff(x, axis=1), planes(),
        lambda T, x: T.diff(x, dim=1)),
    Row("cumulative.trapezoid", lambda x: jnp.trapezoid(x, axis=1), planes(),
        lambda T, x: T.trapezoid(x, dim=1)),
)  # fmt: skip


def _sorted_and_not(size: int) -> Maker:
    return lambda rng: [np.sort(rng.random(size)).astype(np.float32),
                        rng.random(size).astype(np.float32)]  # fmt: skip


SORTING: tuple[Row, ...] = (
    Row("sorting.sort", jnp.sort, vectors(), lambda T, x: T.sort(x)[0]),
    Row("sorting.sort, integers", jnp.sort, vectors(make=integers, high=1 << 30),
        lambda T, x: T.sort(x)[0]),
    Row("sorting.sort, double", jnp.sort, vectors(dtype="float64"), lambda T, x: T.sort(x)[0]),
    Row("sorting.sort rows", lambda x: jnp.sort(x, 1), planes(), lambda T, x: T.sort(x, 1)[0]),
    Row("sorting.sort columns", lambda x: jnp.sort(x, 0), planes(), lambda T, x: T.sort(x, 0)[0]),
    Row("sorting.sort rows, descending", lambda x: jnp.sort(x, 1, descending=True), planes(),
        lambda T, x: T.sort(x, 1, descending=True)[0]),
    Row("sorting.argsort", jnp.argsort, vectors(), lambda T, x: T.argsort(x, stable=True)),
    Row("sorting.argsort rows", lambda x: jnp.argsort(x, 1), planes(),
        lambda T, x: T.argsort(x, dim=1, stable=True)),
    Row("sorting.sort pairs", lambda k, v: lax.sort((k, v), num_keys=1), vectors(2),
        lambda T, k, v: (lambda s: (s[0], v[s[1]]))(T.sort(k, stable=True))),
    Row("sorting.lexsort", lambda a, b: jnp.lexsort((a, b)), vectors(2, integers, high=50),
        numpy=lambda a, b: np.lexsort((a, b))),
    Row("sorting.top 10 of rows", lambda x: lax.top_k(x, 10)[0], planes(),
        lambda T, x: T.topk(x, 10)[0]),
    Row("sorting.top 10", lambda x: lax.top_k(x, 10)[0], vectors(),
        lambda T, x: T.topk(x, 10)[0]),
    Row("sorting.median", jnp.median, vectors(), lambda T, x: T.median(x)),
    Row("sorting.median of rows", lambda x: jnp.median(x, 1), planes(),
        lambda T, x: T.median(x, 1)[0]),
    Row("sorting.quantiles of rows", lambda x: jnp.quantile(x, jnp.array([0.1, 0.9]), axis=1),
        planes(), lambda T, x: T.quantile(x, T.tensor([0.1, 0.9]), 1)),
    Row("sorting.percentile", lambda x: jnp.percentile(x, 99), vectors(),
        lambda T, x: T.quantile(x, 0.99)),
    Row("sorting.partition", lambda x: jnp.partition(x, 10), vectors(),
        numpy=lambda x: np.partition(x, 10), compared=False),
    Row("sorting.unique", lambda x: jnp.unique(x, size=1000), vectors(make=integers),
        lambda T, x: T.unique(x)),
    Row("sorting.searchsorted", jnp.searchsorted,
        tuple(_sorted_and_not(n) for n in (1_000, 65_536, 1_000_000)),
        lambda T, a, v: T.searchsorted(a, v)),
    Row("sorting.nonzero", lambda x: jnp.nonzero(x > 1, size=100)[0], vectors(),
        lambda T, x: T.nonzero(x > 1)),
    Row("sorting.isin", lambda x, y: jnp.isin(x, y[:100]), vectors(2, integers),
        lambda T, x, y: T.isin(x, y[:100])),
    Row("sorting.digitize", lambda x: jnp.digitize(x, jnp.linspace(-3, 3, 64)), vectors(),
        lambda T, x: T.bucketize(x, T.linspace(-3, 3, 64), right=True)),
)  # fmt: skip

ROWS = (*REDUCTIONS, *CUMULATIVE, *SORTING)
