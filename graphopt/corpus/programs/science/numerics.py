"""Linear algebra, and low-precision programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, mlp

LINEAR_ALGEBRA = Family("linear-algebra")
LOW_PRECISION = Family("low-precision")
FAMILIES = (LINEAR_ALGEBRA, LOW_PRECISION)


def _spd(draws: Draws, size: int) -> Tree:
    half = draws.normal(size, size, scale=size**-0.5)
    return (half @ half.T + np.eye(size)).astype(np.float32)


@LINEAR_ALGEBRA.program(
    "conjugate_gradient",
    "40 steps of conjugate gradients with a Jacobi preconditioner, f32[256,256]",
    loops=True,
)
def _conjugate_gradient() -> Built:
    def run(a: Array, b: Array) -> Tree:
        inverse = 1.0 / jnp.diagonal(a)

        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            x, r, p, rz = carry
            ap = a @ p
            alpha = rz / (p @ ap + 1e-12)
            x, r = x + alpha * p, r - alpha * ap
            z = inverse * r
            fresh = r @ z
            return (x, r, z + fresh / (rz + 1e-12) * p, fresh), x[0]

        z = inverse * b
        (x, _, _, _), trace = lax.scan(step, (jnp.zeros_like(b), b, z, b @ z), length=40)
        return x, trace

    draws = Draws(0)
    return run, (_spd(draws, 256), draws.normal(256))


@LINEAR_ALGEBRA.program(
    "gram_schmidt_qr", "modified Gram-Schmidt of f32[96,32] column by column", loops=True
)
def _gram_schmidt_qr() -> Built:
    def run(a: Array) -> Tree:
        def column(k: Array, carry: Tree) -> Tree:
            q, r = carry
            length = jnp.sqrt(jnp.sum(q[:, k] ** 2))
            unit = q[:, k] / length
            row = jnp.where(jnp.arange(32) > k, unit @ q, 0.0)
            q = (q - unit[:, None] * row).at[:, k].set(unit)
            return q, r.at[k].set(row.at[k].set(length))

        return lax.fori_loop(0, 32, column, (a, jnp.zeros((32, 32))))

    return run, (Draws(1).normal(96, 32),)


@LINEAR_ALGEBRA.program(
    "blocked_cholesky_loop", "right-looking Cholesky of f32[64,64] by rank-one updates", loops=True
)
def _blocked_cholesky_loop() -> Built:
    def run(a: Array) -> Tree:
        place = jnp.arange(64)

        def column(k: Array, carry: Tree) -> Tree:
            a, low = carry
            values = jnp.where(place >= k, a[:, k], 0.0) * lax.rsqrt(a[k, k])
            return a - values[:, None] * values[None], low.at[:, k].set(values)

        low = lax.fori_loop(0, 64, column, (a, jnp.zeros_like(a)))[1]
        return low, 2.0 * jnp.sum(jnp.log(jnp.diagonal(low)))

    return run, (_spd(Draws(2), 64),)


@LINEAR_ALGEBRA.program(
    "jacobi_rotations", "four sweeps of Jacobi rotations on 64 matrices f32[4,4]", loops=True
)
def _jacobi_rotations() -> Built:
    def run(a: Array) -> Tree:
        def sweep(_: Array, a: Array) -> Array:
            for p in range(4):
                for q in range(p + 1, 4):
                    angle = 0.5 * jnp.arctan2(2.0 * a[p, q], a[q, q] - a[p, p])
                    c, s = jnp.cos(angle), jnp.sin(angle)
                    a = a.at[p].set(c * a[p] - s * a[q]).at[q].set(s * a[p] + c * a[q])
                    a = (
                        a.at[:, p]
                        .set(c * a[:, p] - s * a[:, q])
                        .at[:, q]
                        .set(s * a[:, p] + c * a[:, q])
                    )
            return a

        return jax.vmap(lambda a: jnp.sort(jnp.diagonal(lax.fori_loop(0, 4, sweep, a))))(a)

    half = Draws(3).normal(64, 4, 4)
    return run, (half + half.swapaxes(1, 2),)


@LINEAR_ALGEBRA.program(
    "subspace_iteration",
    "12 rounds of orthogonal iteration for 4 eigenvectors, f32[192,192]",
    loops=True,
)
def _subspace_iteration() -> Built:
    def run(a: Array, q: Array) -> Tree:
        def step(_: Array, q: Array) -> Array:
            z = a @ q
            columns: list[Array] = []
            for k in range(4):
                v = z[:, k] - sum((c * (c @ z[:, k]) for c in columns), jnp.zeros(192))
                columns.append(v * lax.rsqrt(jnp.sum(v**2) + 1e-9))
            return jnp.stack(columns, axis=1)

        q = lax.fori_loop(0, 12, step, q)
        return jnp.sum(q * (a @ q), axis=0)

    draws = Draws(4)
    return run, (_spd(draws, 192), draws.normal(192, 4))


@LINEAR_ALGEBRA.program(
    "sinkhorn_transport_grad",
    "gradient of a transport cost through 30 Sinkhorn rounds, f32[64,48]",
    gradient=True,
    loops=True,
)
def _sinkhorn_transport_grad() -> Built:
    def cost(left: Array, right: Array) -> Array:
        gap = jnp.sum((left[:, None] - right[None]) ** 2, axis=-1)

        def step(carry: Tree, _: None) -> tuple[Tree, None]:
            f, g = carry
            f = -0.5 * (jax.nn.logsumexp((g[None] - gap) / 0.5, axis=1) + np.log(64.0))
            g = -0.5 * (jax.nn.logsumexp((f[:, None] - gap) / 0.5, axis=0) + np.log(48.0))
            return (f, g), None

        (f, g), _ = lax.scan(step, (jnp.zeros(64), jnp.zeros(48)), length=30)
        return jnp.sum(jnp.exp((f[:, None] + g[None] - gap) / 0.5) * gap)

    draws = Draws(5)
    return jax.value_and_grad(cost), (
        draws.normal(64, 2, scale=0.5),
        draws.normal(48, 2, scale=0.5),
    )


@LINEAR_ALGEBRA.program(
    "matrix_exponential_taylor", "scaling and squaring of f32[64,24,24] with ten Taylor terms"
)
def _matrix_exponential_taylor() -> Built:
    def run(a: Array) -> Array:
        a = a / 16.0
        total = term = jnp.broadcast_to(jnp.eye(24), a.shape)
        for order in range(1, 11):
            term = term @ a / order
            total = total + term
        for _ in range(4):
            total = total @ total
        return total

    return run, (Draws(6).normal(64, 24, 24, scale=0.2),)


def _halved(tree: Tree, dtype: Tree = jnp.bfloat16) -> Tree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)


@LOW_PRECISION.program(
    "bf16_mlp_master_weights",
    "bf16 gradient of an MLP, f32 master weights and loss scale",
    gradient=True,
)
def _bf16_mlp_master_weights() -> Built:
    draws = Draws(14)

    def step(params: Tree, x: Array, y: Array) -> Tree:
        def loss(half: Tree) -> Array:
            out = mlp(half, x.astype(jnp.bfloat16), jax.nn.gelu).astype(jnp.float32)
            return 128.0 * jnp.mean((out - y) ** 2)

        value, grads = jax.value_and_grad(loss)(_halved(params))
        fresh = jax.tree.map(lambda p, g: p - 1e-3 * g.astype(jnp.float32) / 128.0, params, grads)
        return fresh, value / 128.0

    return step, (draws.layers(48, 96, 96, 8), draws.normal(64, 48), draws.normal(64, 8))


@LOW_PRECISION.program(
    "bf16_attention_block", "bf16 attention with an f32 softmax, bf16[4,8,128,32]"
)
def _bf16_attention_block() -> Built:
    draws = Draws(15)

    def run(query: Array, key: Array, value: Array) -> Array:
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key).astype(jnp.float32) / 5.7
        allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        weights = jax.nn.softmax(jnp.where(allowed, scores, -1e9)).astype(jnp.bfloat16)
        return jnp.einsum("bhqk,bhkd->bhqd", weights, value)

    parts = [draws.normal(4, 8, 128, 32) for _ in range(3)]
    return lambda *parts: run(*_halved(parts)), tuple(parts)


@LOW_PRECISION.program(
    "int8_quantized_mlp", "dynamic int8 quantization around three integer products, f32[128,96]"
)
def _int8_quantized_mlp() -> Built:
    draws = Draws(16)

    def run(layers: Tree, x: Array) -> Array:
        for weights, scale in layers:
            top = jnp.max(jnp.abs(x), axis=-1, keepdims=True) / 127.0 + 1e-6
            # A grid that is coarser than rounding differences, so that none flips a level.
            levels = jnp.round(jnp.clip(x / top, -127.0, 127.0) / 8.0).astype(jnp.int8)
            total = lax.dot(levels, weights, preferred_element_type=jnp.int32)
            x = jax.nn.relu(total.astype(jnp.float32) * (8.0 * top) * scale)
        return x

    layers = [
        (draws.integers(127, 96, 96, low=-127, dtype=np.int8), draws.uniform(96) * 2e-3)
        for _ in range(3)
    ]
    return run, (layers, draws.normal(128, 96))


@LOW_PRECISION.program(
    "fp16_scaled_residual_grad",
    "f16 residual layers with a dynamic loss scale: gradient",
    gradient=True,
)
def _fp16_scaled_residual_grad() -> Built:
    draws = Draws(17)

    def loss(weights: Array, x: Array, scale: Array) -> Array:
        hidden = x.astype(jnp.float16)
        for layer in weights.astype(jnp.float16):
            hidden = hidden + jnp.tanh(hidden @ layer) * jnp.float16(0.1)
        return scale * jnp.mean(hidden.astype(jnp.float32) ** 2)

    def step(weights: Array, x: Array, scale: Array) -> Tree:
        value, grads = jax.value_and_grad(loss)(weights, x, scale)
        fine = jnp.all(jnp.isfinite(grads))
        scale_after = jnp.where(fine, scale * 2.0, scale * 0.5)
        return jnp.where(fine, weights - 1e-3 * grads / scale, weights), value, scale_after

    return step, (draws.normal(4, 64, 64, scale=0.1), draws.normal(64, 64), np.float32(64.0))


@LOW_PRECISION.program(
    "bf16_moments_adam", "Adam with bf16 moments stored as error-compensated pairs, f32[512,256]"
)
def _bf16_moments_adam() -> Built:
    draws = Draws(18)

    def step(param: Array, grad: Array, first: Array, second: Array, carry: Array) -> Tree:
        m = 0.9 * first.astype(jnp.float32) + carry.astype(jnp.float32) + 0.1 * grad
        v = 0.99 * second.astype(jnp.float32) + 0.01 * grad**2
        low = m.astype(jnp.bfloat16)
        lost = (m - low.astype(jnp.float32)).astype(jnp.bfloat16)
        return param - 0.01 * m / (jnp.sqrt(v) + 1e-4), low, v.astype(jnp.bfloat16), lost

    arrays = [draws.normal(512, 256) for _ in range(2)]
    moments = [
        draws.normal(512, 256, scale=0.1),
        draws.uniform(512, 256),
        draws.normal(512, 256, scale=1e-3),
    ]
    return step, (*arrays, *_halved(moments))
