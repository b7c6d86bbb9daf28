"""Machine learning without deep networks, and meta-learning."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, mlp

CLASSICAL = Family("classical-learning")
FAMILIES = (CLASSICAL,)


@CLASSICAL.program(
    "gaussian_mixture_em",
    "25 rounds of expectation-maximization, 8 clusters, f32[512,4]",
    loops=True,
)
def _gaussian_mixture_em() -> Built:
    def run(x: Array, means: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            means, spread, weight = carry
            gap = (x[:, None] - means) ** 2
            logs = jnp.log(weight) - 0.5 * jnp.sum(gap / spread + jnp.log(spread), axis=-1)
            share = jax.nn.softmax(logs)
            count = jnp.sum(share, axis=0) + 1e-3
            means = share.T @ x / count[:, None]
            spread = jnp.einsum("nk,nkd->kd", share, gap) / count[:, None] + 1e-2
            total = jnp.mean(jax.nn.logsumexp(logs, axis=1))
            return (means, spread, count / jnp.sum(count)), total

        start = (means, jnp.ones(means.shape), jnp.full(means.shape[0], 1.0 / means.shape[0]))
        return lax.scan(step, start, length=25)

    draws = Draws(7)
    return run, (draws.normal(512, 4), draws.normal(8, 4))


@CLASSICAL.program(
    "soft_kmeans", "30 rounds of soft k-means with cooling, 16 centres, f32[1024,3]", loops=True
)
def _soft_kmeans() -> Built:
    def run(x: Array, centres: Array) -> Tree:
        def step(centres: Array, heat: Array) -> tuple[Array, Array]:
            gap = jnp.sum(x**2, 1)[:, None] - 2.0 * x @ centres.T + jnp.sum(centres**2, 1)
            share = jax.nn.softmax(-gap / heat)
            fresh = share.T @ x / (jnp.sum(share, axis=0)[:, None] + 1e-3)
            return fresh, jnp.sum(share * gap)

        return lax.scan(step, centres, jnp.linspace(2.0, 0.5, 30))

    draws = Draws(8)
    return run, (draws.normal(1024, 3), draws.normal(16, 3))


@CLASSICAL.program(
    "gaussian_process_fit",
    "kernel matrix, conjugate-gradient solve and gradient of the fit, 128 points",
    gradient=True,
    loops=True,
)
def _gaussian_process_fit() -> Built:
    def loss(logs: Array, x: Array, y: Array) -> Array:
        scale, size, noise = jnp.exp(logs)
        gap = jnp.sqrt(jnp.sum((x[:, None] - x[None]) ** 2, axis=-1) + 1e-4) / scale
        kernel = size * (1.0 + gap) * jnp.exp(-gap) + noise * jnp.eye(x.shape[0])

        def step(carry: Tree, _: None) -> tuple[Tree, None]:
            w, r, p = carry
            q = kernel @ p
            alpha = r @ r / (p @ q + 1e-6)
            w, fresh = w + alpha * p, r - alpha * q
            return (w, fresh, fresh + fresh @ fresh / (r @ r + 1e-6) * p), None

        (w, _, _), _ = lax.scan(step, (jnp.zeros_like(y), y, y), length=12)
        return 0.5 * y @ w + 0.5 * jnp.sum(jnp.log(jnp.diagonal(kernel)))

    draws = Draws(9)
    return jax.value_and_grad(loss), (
        np.log(np.array([1.0, 1.0, 2.0], np.float32)),
        draws.normal(128, 3),
        draws.normal(128),
    )


@CLASSICAL.program(
    "boosted_trees_predict",
    "50 oblivious trees of depth 5 on u8[1024,16] by index gathers",
    loops=True,
)
def _boosted_trees_predict() -> Built:
    def run(x: Array, features: Array, cuts: Array, leaves: Array) -> Array:
        def tree(total: Array, now: Tree) -> tuple[Array, None]:
            feature, cut, leaf = now
            bits = (x[:, feature] > cut).astype(jnp.int32)
            place = bits @ (2 ** jnp.arange(5, dtype=jnp.int32))
            return total + 0.1 * leaf[place], None

        return jax.nn.sigmoid(lax.scan(tree, jnp.zeros(x.shape[0]), (features, cuts, leaves))[0])

    draws = Draws(10)
    bins = draws.integers(256, 1024, 16, dtype=np.uint8)
    return run, (
        bins,
        draws.integers(16, 50, 5),
        draws.integers(256, 50, 5, dtype=np.uint8),
        draws.normal(50, 32),
    )


@CLASSICAL.program(
    "kernel_svm_dual", "60 projected-gradient steps on an SVM's dual, 160 points", loops=True
)
def _kernel_svm_dual() -> Built:
    def run(x: Array, y: Array) -> Tree:
        square = jnp.sum(x**2, axis=1)
        kernel = jnp.exp(-0.3 * (square[:, None] + square[None] - 2.0 * x @ x.T))
        signed = y[:, None] * y[None] * kernel

        def step(_: Array, alpha: Array) -> Array:
            return jnp.clip(alpha + 0.01 * (1.0 - signed @ alpha), 0.0, 1.0)

        alpha = lax.fori_loop(0, 60, step, jnp.full(x.shape[0], 0.5))
        return alpha, kernel @ (alpha * y)

    draws = Draws(11)
    return run, (draws.normal(160, 4), np.sign(draws.normal(160)))


@CLASSICAL.program(
    "factorization_machine_grad",
    "gradient of a factorization machine on 256 rows of 12 categories",
    gradient=True,
)
def _factorization_machine_grad() -> Built:
    draws = Draws(12)

    def loss(params: Tree, rows: Array, labels: Array) -> Array:
        vectors = params["vectors"][rows]
        total = jnp.sum(vectors, axis=1)
        pairs = 0.5 * jnp.sum(total**2 - jnp.sum(vectors**2, axis=1), axis=-1)
        logits = params["bias"] + jnp.sum(params["linear"][rows], axis=1) + pairs
        decay = 1e-3 * jnp.sum(params["vectors"] ** 2)
        return jnp.mean(jax.nn.softplus(logits) - labels * logits) + decay

    params = {
        "vectors": draws.normal(800, 16, scale=0.1),
        "linear": draws.normal(800),
        "bias": np.float32(0.0),
    }
    labels = draws.integers(2, 256).astype(np.float32)
    return jax.value_and_grad(loss), (params, draws.integers(800, 256, 12), labels)


@CLASSICAL.program(
    "maml_outer_grad",
    "gradient through three inner steps of 8 sine tasks (second order)",
    gradient=True,
)
def _maml_outer_grad() -> Built:
    draws = Draws(13)

    def outer(params: Tree, x: Array, y: Array) -> Array:
        def loss(params: Tree, x: Array, y: Array) -> Array:
            return jnp.mean((mlp(params, x, jnp.tanh) - y) ** 2)

        def task(x: Array, y: Array) -> Array:
            adapted = params
            for _ in range(3):
                slope = jax.grad(loss)(adapted, x[:10], y[:10])
                adapted = jax.tree.map(lambda p, s: p - 0.05 * s, adapted, slope)
            return loss(adapted, x[10:], y[10:])

        return jnp.mean(jax.vmap(task)(x, y))

    x = draws.uniform(8, 20, 1, low=-3.0, high=3.0)
    phase = draws.uniform(8, 1, 1, high=3.0)
    return jax.value_and_grad(outer), (draws.layers(1, 24, 1), x, np.sin(x + phase))
