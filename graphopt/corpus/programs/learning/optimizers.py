"""Optimizers over trees of parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, mlp

OPTIMIZER = Family("optimizer")
FAMILIES = (OPTIMIZER,)


# Optimizers over a tree of parameters, moments near zero as early in training.


def _weights(draws: Draws, scale: float = 1.0) -> Tree:
    shapes = ((256, 128), (128,), (128, 128), (128,), (3, 3, 16, 32), (32,), (512, 48), (48,))
    return {f"p{i}": draws.normal(*shape, scale=scale) for i, shape in enumerate(shapes)}


def _update(optimizer: Any, seed: int) -> Built:
    draws = Draws(seed)
    params, grads = _weights(draws), _weights(draws, 0.1)

    def step(grads: Tree, state: Tree, params: Tree) -> Tree:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    abstract = jax.eval_shape(optimizer.init, params)

    def fill(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return np.full(leaf.shape, 3, leaf.dtype)
        return (0.01 + np.abs(draws.normal(*leaf.shape, scale=0.1))).astype(leaf.dtype)

    return step, (grads, jax.tree.map(fill, abstract), params)


@OPTIMIZER.program(
    "adamw_clip_schedule", "AdamW with global clipping and a warm-up cosine schedule, 8 arrays"
)
def _adamw_clip_schedule() -> Built:
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 100, 1000)
    return _update(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule)), 16)


@OPTIMIZER.program("lamb_update", "LAMB with trust ratios per array, 8 arrays")
def _lamb_update() -> Built:
    return _update(optax.lamb(1e-3), 17)


@OPTIMIZER.program("adafactor_update", "Adafactor with factored second moments, 8 arrays")
def _adafactor_update() -> Built:
    return _update(optax.adafactor(1e-3, min_dim_size_to_factor=32), 18)


@OPTIMIZER.program("lion_update", "Lion, 8 arrays")
def _lion_update() -> Built:
    return _update(optax.lion(1e-3), 19)


@OPTIMIZER.program(
    "nesterov_lookahead_ema", "Nesterov momentum, weight decay and an average of the weights"
)
def _nesterov_lookahead_ema() -> Built:
    chain = (
        optax.add_decayed_weights(1e-4),
        optax.sgd(0.1, momentum=0.9, nesterov=True),
        optax.ema(0.99),
    )
    return _update(optax.chain(*chain), 20)


@OPTIMIZER.program("amsgrad_centralized", "centralized gradients, noise-free AMSGrad, 8 arrays")
def _amsgrad_centralized() -> Built:
    return _update(optax.chain(optax.centralize(), optax.amsgrad(1e-3)), 21)


@OPTIMIZER.program(
    "muon_orthogonal_update",
    "momentum, orthogonalized by five Newton-Schulz steps, f32[128,96]",
    loops=True,
)
def _muon_orthogonal_update() -> Built:
    draws = Draws(22)

    def step(weights: Array, momentum: Array, grad: Array) -> Tree:
        momentum = 0.95 * momentum + grad
        x = grad + 0.95 * momentum
        x = x / (jnp.linalg.norm(x) + 1e-6)

        def newton(_: Array, x: Array) -> Array:
            gram = x.T @ x
            return 3.4445 * x + x @ (-4.775 * gram + 2.0315 * gram @ gram)

        x = lax.fori_loop(0, 5, newton, x)
        return weights - 0.02 * x, momentum

    return step, tuple(draws.normal(128, 96) for _ in range(3))


@OPTIMIZER.program(
    "lbfgs_two_loop", "L-BFGS direction from ten stored pairs of f32[32768]", loops=True
)
def _lbfgs_two_loop() -> Built:
    draws = Draws(23)

    def direction(grad: Array, steps: Array, changes: Array) -> Array:
        rho = 1.0 / jnp.sum(steps * changes, axis=1)

        def down(q: Array, now: Tree) -> tuple[Array, Array]:
            s, y, r = now
            alpha = r * jnp.sum(s * q)
            return q - alpha * y, alpha

        q, alphas = lax.scan(down, grad, (steps, changes, rho), reverse=True)
        q = q * jnp.sum(steps[-1] * changes[-1]) / jnp.sum(changes[-1] ** 2)

        def up(q: Array, now: Tree) -> tuple[Array, None]:
            s, y, r, alpha = now
            return q + s * (alpha - r * jnp.sum(y * q)), None

        return -lax.scan(up, q, (steps, changes, rho, alphas))[0]

    steps = draws.normal(10, 32768)
    return direction, (draws.normal(32768), steps, 2.0 * steps + draws.normal(10, 32768, scale=0.1))


@OPTIMIZER.program(
    "sgd_epoch_scan",
    "40 minibatch Adam steps on a two-layer network as one scan",
    gradient=True,
    loops=True,
)
def _sgd_epoch_scan() -> Built:
    draws = Draws(24)

    def epoch(params: Tree, xs: Array, ys: Array) -> Tree:
        def loss(params: Tree, x: Array, y: Array) -> Array:
            return jnp.mean((mlp(params, x, jnp.tanh) - y) ** 2)

        def step(carry: Tree, batch: Tree) -> tuple[Tree, Array]:
            params, first, second = carry
            value, grads = jax.value_and_grad(loss)(params, *batch)
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
            second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
            params = jax.tree.map(
                lambda p, m, v: p - 0.01 * m * lax.rsqrt(v + 1e-6), params, first, second
            )
            return (params, first, second), value

        zeros = jax.tree.map(jnp.zeros_like, params)
        return lax.scan(step, (params, zeros, zeros), (xs, ys))

    xs = draws.normal(40, 16, 12)
    return epoch, (draws.layers(12, 32, 1), xs, np.sin(xs[..., :1]))
