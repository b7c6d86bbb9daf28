"""Products and factorisations, indexing, shapes, transforms, images and random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.ndimage
from jax import lax

from benchmarks.operations.row import Maker, Row, integers, normal, planes, three, vectors

SQUARES = ((32, 32), (256, 256), (1024, 1024))
MATRICES = ((8, 8), (64, 64), (512, 512))
BATCHES = ((16, 4, 4), (1024, 8, 8), (16384, 16, 16))
IMAGES = ((1, 16, 16, 8), (4, 64, 64, 32), (8, 128, 128, 32))


def definite(*shapes: tuple[int, ...]) -> Maker:
    """Symmetric positive definite matrices."""

    def make(rng: np.random.Generator) -> list[Any]:
        found = [rng.normal(size=shape) for shape in shapes]
        return [
            (a @ np.swapaxes(a, -1, -2) / a.shape[-1] + np.eye(a.shape[-1])).astype(np.float32)
            for a in found
        ]

    return make


def _distances(x: Any, y: Any) -> Any:
    return jnp.sum((x[:, None] - y[None]) ** 2, -1)


def _half(x: Any, y: Any) -> Any:
    return jnp.matmul(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))


PRODUCTS: tuple[Row, ...] = (
    Row("products.matmul", jnp.matmul, three(normal, SQUARES, 2), lambda T, x, y: x @ y),
    Row("products.matmul, double", jnp.matmul, three(normal, SQUARES, 2, dtype="float64"),
        lambda T, x, y: x @ y),
    Row("products.matmul, bfloat16", _half, three(normal, SQUARES, 2),
        lambda T, x, y: x.bfloat16() @ y.bfloat16()),
    Row("products.matmul, integers", jnp.matmul, three(integers, MATRICES, 2, high=50),
        lambda T, x, y: x @ y),
    Row("products.x @ y.T", lambda x, y: x @ y.T, three(normal, SQUARES, 2),
        lambda T, x, y: x @ y.T),
    Row("products.matrix by vector", lambda x, y: x @ y[0], planes(2), lambda T, x, y: x @ y[0]),
    Row("products.vector by matrix", lambda x, y: y[:, 0] @ x, planes(2),
        lambda T, x, y: y[:, 0] @ x),
    Row("products.dot", jnp.dot, vectors(2), lambda T, x, y: T.dot(x, y)),
    Row("products.outer", jnp.outer, three(normal, (64, 512, 2048), 2),
        lambda T, x, y: T.outer(x, y)),
    Row("products.thin", lambda x, y: x @ y.T[:, :4], planes(2), lambda T, x, y: x @ y.T[:, :4]),
    Row("products.batch", jnp.matmul, three(normal, BATCHES, 2), lambda T, x, y: x @ y),
    Row("products.einsum bij,bjk,bkl->bil",
        lambda x, y: jnp.einsum("bij,bjk,bkl->bil", x, y, x), three(normal, BATCHES, 2),
        lambda T, x, y: T.einsum("bij,bjk,bkl->bil", x, y, x)),
    Row("products.squared distances", _distances, three(normal, ((32, 3), (512, 8), (2048, 16)), 2),
        lambda T, x, y: T.cdist(x, y) ** 2),
    Row("products.kron", jnp.kron, three(normal, ((4, 4), (16, 16), (48, 48)), 2),
        lambda T, x, y: T.kron(x, y)),
    Row("products.cross", jnp.cross, three(normal, ((64, 3), (4096, 3), (262_144, 3)), 2),
        lambda T, x, y: T.linalg.cross(x, y)),
    Row("products.matrix power", lambda x: jnp.linalg.matrix_power(x * 0.01, 5),
        three(normal, MATRICES), lambda T, x: T.linalg.matrix_power(x * 0.01, 5)),
)  # fmt: skip

FACTORS: tuple[Row, ...] = (
    Row("factors.cholesky", jnp.linalg.cholesky, three(definite, MATRICES),
        lambda T, x: T.linalg.cholesky(x)),
    Row("factors.cholesky of a batch", jnp.linalg.cholesky, three(definite, BATCHES),
        lambda T, x: T.linalg.cholesky(x)),
    Row("factors.solve", lambda a: jnp.linalg.solve(a, a[0]), three(definite, MATRICES),
        lambda T, a: T.linalg.solve(a, a[0])),
    Row("factors.solve of a batch", lambda a: jnp.linalg.solve(a, a[:, :1].mT),
        three(definite, BATCHES), lambda T, a: T.linalg.solve(a, a[:, :1].mT)),
    Row("factors.triangular solve", lambda a: jax.scipy.linalg.solve_triangular(a, a, lower=True),
        three(definite, MATRICES),
        lambda T, a: T.linalg.solve_triangular(a, a, upper=False)),
    Row("factors.inverse", jnp.linalg.inv, three(definite, MATRICES),
        lambda T, x: T.linalg.inv(x)),
    Row("factors.determinant of a batch", jnp.linalg.det, three(definite, BATCHES),
        lambda T, x: T.linalg.det(x)),
    Row("factors.qr", lambda x: jnp.linalg.qr(x)[1], three(definite, MATRICES),
        lambda T, x: T.linalg.qr(x)[1]),
    Row("factors.singular values", lambda x: jnp.linalg.svd(x, compute_uv=False),
        three(definite, ((8, 8), (64, 64), (256, 256))), lambda T, x: T.linalg.svdvals(x)),
    Row("factors.eigenvalues", jnp.linalg.eigvalsh,
        three(definite, ((8, 8), (64, 64), (256, 256))), lambda T, x: T.linalg.eigvalsh(x)),
    Row("factors.exponential", jax.scipy.linalg.expm,
        three(definite, ((8, 8), (64, 64), (256, 256))), lambda T, x: T.linalg.matrix_exp(x)),
)  # fmt: skip


def _table(rows: int, width: int, count: int) -> Maker:
    """A table, and indices of rows of it."""
    return lambda rng: [
        rng.normal(size=(rows, width)).astype(np.float32), rng.integers(0, rows, count)
    ]  # fmt: skip


TABLES = (_table(100, 16, 64), _table(10_000, 64, 4096), _table(100_000, 128, 65_536))


def _segments(torch: Any, x: Any, i: Any, reduce: str) -> Any:
    picked = x[i]
    index = (i % 64)[:, None].expand_as(picked)
    return torch.zeros(64, x.shape[1]).scatter_reduce(0, index, picked, reduce)


INDEXING: tuple[Row, ...] = (
    Row("indexing.rows of a table", lambda x, i: x[i], TABLES, lambda T, x, i: x[i]),
    Row("indexing.rows of a table, gradient",
        lambda x, i: jax.grad(lambda x: jnp.sum(x[i] ** 2))(x), TABLES,
        lambda T, x, i: T.zeros_like(x).index_add_(0, i, 2 * x[i])),
    Row("indexing.take_along_axis", lambda x, i: jnp.take_along_axis(x, (i % 16)[:, None], 1),
        tuple(_table(n, 64, n) for n in (100, 10_000, 100_000)),
        lambda T, x, i: T.gather(x, 1, (i % 16)[:, None])),
    Row("indexing.scatter of rows", lambda x, i: x.at[i].set(1.0), TABLES,
        lambda T, x, i: x.clone().index_fill_(0, i, 1.0)),
    Row("indexing.scatter of sums", lambda x, i: x.at[i].add(x[i]), TABLES,
        lambda T, x, i: x.clone().index_add_(0, i, x[i])),
    Row("indexing.segment sum", lambda x, i: jax.ops.segment_sum(x[i], i % 64, 64), TABLES,
        lambda T, x, i: _segments(T, x, i, "sum")),
    Row("indexing.segment maximum", lambda x, i: jax.ops.segment_max(x[i], i % 64, 64), TABLES,
        lambda T, x, i: _segments(T, x, i, "amax")),
    Row("indexing.one_hot", lambda x, i: jax.nn.one_hot(i % 64, 64), TABLES,
        lambda T, x, i: T.nn.functional.one_hot(i % 64, 64).float()),
    Row("indexing.interp", lambda x: jnp.interp(x, jnp.linspace(-3, 3, 64), jnp.arange(64.0)),
        vectors(), numpy=lambda x: np.interp(x, np.linspace(-3, 3, 64), np.arange(64.0))),
)  # fmt: skip

SHAPES: tuple[Row, ...] = (
    Row("shapes.transpose", lambda x: x.T, planes(), lambda T, x: x.T.contiguous()),
    Row("shapes.channels first", lambda x: jnp.moveaxis(x, -1, 1), three(normal, IMAGES),
        lambda T, x: T.movedim(x, -1, 1).contiguous()),
    Row("shapes.flip rows", lambda x: jnp.flip(x, 1), planes(), lambda T, x: T.flip(x, (1,))),
    Row("shapes.roll", lambda x: jnp.roll(x, 3, 1), planes(), lambda T, x: T.roll(x, 3, 1)),
    Row("shapes.rot90", jnp.rot90, planes(), lambda T, x: T.rot90(x).contiguous()),
    Row("shapes.concatenate", lambda x, y: jnp.concatenate([x, y], 1), planes(2),
        lambda T, x, y: T.cat([x, y], 1)),
    Row("shapes.stack", lambda x, y: jnp.stack([x, y], -1), planes(2),
        lambda T, x, y: T.stack([x, y], -1)),
    Row("shapes.pad", lambda x: jnp.pad(x, 1), planes(),
        lambda T, x: T.nn.functional.pad(x, (1, 1, 1, 1))),
    Row("shapes.pad, reflected", lambda x: jnp.pad(x, 2, "reflect"), planes(),
        lambda T, x: T.nn.functional.pad(x[None], (2, 2, 2, 2), "reflect")[0]),
    Row("shapes.repeat", lambda x: jnp.repeat(x, 2, 0), planes(),
        lambda T, x: T.repeat_interleave(x, 2, 0)),
    Row("shapes.tile", lambda x: jnp.tile(x, (1, 2)), planes(), lambda T, x: T.tile(x, (1, 2))),
    Row("shapes.tril", jnp.tril, planes(), lambda T, x: T.tril(x)),
    Row("shapes.diagonal", jnp.diagonal, planes(), lambda T, x: T.diagonal(x).contiguous()),
    Row("shapes.vander", lambda x: jnp.vander(x, 8), three(normal, (64, 4096, 262_144)),
        lambda T, x: T.linalg.vander(x, N=8)),
    Row("shapes.slices", lambda x: x[::2, 1::2], planes(), lambda T, x: x[::2, 1::2].contiguous()),
    Row("shapes.to integers", lambda x: x.astype(jnp.int32), planes(), lambda T, x: x.int()),
    Row("shapes.to bfloat16", lambda x: x.astype(jnp.bfloat16), planes(),
        lambda T, x: x.bfloat16()),
)  # fmt: skip

TRANSFORMS: tuple[Row, ...] = (
    Row("transforms.fft of rows", jnp.fft.fft, planes(), lambda T, x: T.fft.fft(x)),
    Row("transforms.rfft of rows", jnp.fft.rfft, planes(), lambda T, x: T.fft.rfft(x)),
    Row("transforms.fft2", jnp.fft.fft2, planes(), lambda T, x: T.fft.fft2(x)),
    Row("transforms.irfft of rows", lambda x: jnp.fft.irfft(x.astype(jnp.complex64)), planes(),
        lambda T, x: T.fft.irfft(x.to(T.complex64))),
    Row("transforms.bilinear resize", lambda x: jax.image.resize(
        x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "bilinear"),
        three(normal, IMAGES),
        lambda T, x: T.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
        arranged=lambda x: [np.ascontiguousarray(np.moveaxis(x, -1, 1))]),
    Row("transforms.nearest resize", lambda x: jax.image.resize(
        x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest"),
        three(normal, IMAGES),
        lambda T, x: T.nn.functional.interpolate(x, scale_factor=2),
        arranged=lambda x: [np.ascontiguousarray(np.moveaxis(x, -1, 1))]),
    Row("transforms.map_coordinates", lambda x: jax.scipy.ndimage.map_coordinates(
        x, [jnp.abs(x) * 5, jnp.abs(x) * 7], 1), planes(),
        numpy=lambda x: scipy.ndimage.map_coordinates(x, [np.abs(x) * 5, np.abs(x) * 7], order=1)),
    Row("transforms.toeplitz", jax.scipy.linalg.toeplitz, three(normal, (32, 512, 2048)),
        numpy=scipy.linalg.toeplitz),
)  # fmt: skip


def _draw(name: str, fn: Any, torch: Any = None, numpy: Any = None) -> Row:
    """A draw of as many numbers as the input has; the key is its last argument."""
    return Row(
        f"random.{name}", lambda x: fn(jax.random.wrap_key_data(lax.bitcast_convert_type(
            x.ravel()[:2], jnp.uint32)), x), planes(), torch, numpy,
    )  # fmt: skip


RANDOM: tuple[Row, ...] = (
    _draw("bits", lambda k, x: jax.random.bits(k, x.shape),
          lambda T, x: T.randint(0, 1 << 31, x.shape, dtype=T.int32)),
    _draw("uniform", lambda k, x: jax.random.uniform(k, x.shape), lambda T, x: T.rand(x.shape)),
    _draw("normal", lambda k, x: jax.random.normal(k, x.shape), lambda T, x: T.randn(x.shape)),
    _draw("randint", lambda k, x: jax.random.randint(k, x.shape, 0, 100),
          lambda T, x: T.randint(0, 100, x.shape)),
    _draw("bernoulli", lambda k, x: jax.random.bernoulli(k, 0.3, x.shape),
          lambda T, x: T.empty(x.shape).bernoulli_(0.3)),
    _draw("exponential", lambda k, x: jax.random.exponential(k, x.shape),
          lambda T, x: T.empty(x.shape).exponential_()),
    _draw("truncated normal", lambda k, x: jax.random.truncated_normal(k, -2, 2, x.shape),
          lambda T, x: T.nn.init.trunc_normal_(T.empty(x.shape))),
    _draw("gumbel", lambda k, x: jax.random.gumbel(k, x.shape),
          lambda T, x: -T.log(T.empty(x.shape).exponential_())),
    _draw("laplace", lambda k, x: jax.random.laplace(k, x.shape),
          lambda T, x: T.distributions.Laplace(0.0, 1.0).sample(x.shape)),
    _draw("cauchy", lambda k, x: jax.random.cauchy(k, x.shape),
          lambda T, x: T.empty(x.shape).cauchy_()),
    _draw("gamma", lambda k, x: jax.random.gamma(k, 2.0, (x.size // 16,)),
          lambda T, x: T.distributions.Gamma(2.0, 1.0).sample((x.numel() // 16,))),
    _draw("beta", lambda k, x: jax.random.beta(k, 2.0, 3.0, (x.size // 16,)),
          lambda T, x: T.distributions.Beta(2.0, 3.0).sample((x.numel() // 16,))),
    _draw("poisson", lambda k, x: jax.random.poisson(k, 3.0, (x.size // 16,)),
          lambda T, x: T.poisson(T.full((x.numel() // 16,), 3.0))),
    _draw("categorical of rows", lambda k, x: jax.random.categorical(k, x),
          lambda T, x: T.multinomial(T.softmax(x, -1), 1)),
    _draw("permutation", lambda k, x: jax.random.permutation(k, x.size // 4),
          lambda T, x: T.randperm(x.numel() // 4)),
    _draw("choice", lambda k, x: jax.random.choice(k, x.ravel(), (1000,)),
          lambda T, x: x.ravel()[T.randint(0, x.numel(), (1000,))]),
    _draw("dropout", lambda k, x: jnp.where(jax.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0.0),
          lambda T, x: T.nn.functional.dropout(x, 0.1)),
    _draw("split", lambda k, x: jax.random.key_data(jax.random.split(k, x.shape[0])),
          numpy=lambda x: np.random.SeedSequence(1).generate_state(2 * x.shape[0])),
)  # fmt: skip

ROWS = (*PRODUCTS, *FACTORS, *INDEXING, *SHAPES, *TRANSFORMS, *RANDOM)
