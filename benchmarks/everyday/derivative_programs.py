"""Second derivatives, derivatives for each example, and optimizers that use them."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.everyday.common import Program, Sizes, integers, layers_of, mlp, normal


def lbfgs(size: int, steps: int) -> Program:
    """L-BFGS by the two-loop recursion over a rolling history, halving its steps, on Rosenbrock's valley."""
    history = 8

    def f(x: jax.Array) -> jax.Array:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def direction(g: jax.Array, s: jax.Array, y: jax.Array) -> jax.Array:
        dots = jnp.sum(s * y, axis=1)
        rho = jnp.where(dots > 1e-10, 1.0 / jnp.where(dots > 1e-10, dots, 1.0), 0.0)

        def backward(q: jax.Array, item: Any) -> Any:
            s, y, rho = item
            alpha = rho * jnp.vdot(s, q)
            return q - alpha * y, alpha

        def forward(r: jax.Array, item: Any) -> Any:
            s, y, rho, alpha = item
            return r + s * (alpha - rho * jnp.vdot(y, r)), None

        q, alphas = lax.scan(backward, g, (s, y, rho), reverse=True)
        gamma = jnp.where(rho[-1] > 0, dots[-1] / (jnp.vdot(y[-1], y[-1]) + 1e-12), 1e-3)
        return -lax.scan(forward, gamma * q, (s, y, rho, alphas))[0]

    def run(x: jax.Array) -> Any:
        def step(state: Any, _: None) -> Any:
            x, g, s, y = state
            d = direction(g, s, y)
            slope, value = jnp.vdot(g, d), f(x)
            t, _ = lax.while_loop(
                lambda c: (f(x + c[0] * d) > value + 1e-4 * c[0] * slope) & (c[1] < 15),
                lambda c: (0.5 * c[0], c[1] + 1),
                (jnp.float32(1.0), 0),
            )
            new = x + t * d
            g_new = jax.grad(f)(new)
            s = jnp.roll(s, -1, axis=0).at[-1].set(new - x)
            y = jnp.roll(y, -1, axis=0).at[-1].set(g_new - g)
            return (new, g_new, s, y), value

        empty = jnp.zeros((history, size))
        (x, *_), values = lax.scan(step, (x, jax.grad(f)(x), empty, empty), None, length=steps)
        return x, values

    return run, (normal(size, scale=0.3),)


def newton_cg(features: int, samples: int) -> Program:
    """Newton's steps for softmax regression, solved by conjugate gradients on Hessian-vector products."""

    def run(w: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        def loss(w: jax.Array) -> jax.Array:
            logits = x @ w
            picked = jnp.take_along_axis(logits, y[:, None], axis=1)[:, 0]
            return jnp.mean(jax.nn.logsumexp(logits, axis=1) - picked) + 1e-3 * jnp.sum(w**2)

        def step(w: jax.Array, _: None) -> Any:
            value, g = jax.value_and_grad(loss)(w)

            def hvp(v: jax.Array) -> jax.Array:
                return jax.jvp(jax.grad(loss), (w,), (v,))[1]

            def cg(_: Any, state: Any) -> Any:
                d, r, p, rr = state
                hp = hvp(p)
                alpha = rr / (jnp.vdot(p, hp) + 1e-12)
                r = r - alpha * hp
                new = jnp.vdot(r, r)
                return d + alpha * p, r, r + new / (rr + 1e-12) * p, new

            d, *_ = lax.fori_loop(0, 8, cg, (jnp.zeros_like(w), -g, -g, jnp.vdot(g, g)))
            return w + d, value

        return lax.scan(step, w, None, length=4)

    return run, (
        jnp.zeros((features, 5), jnp.float32),
        normal(samples, features),
        integers(5, samples),
    )


def per_example(batch: int, width: int) -> Program:
    """Private gradients: one per example, each clipped, their sum with noise."""

    def loss_fn(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum((mlp(params, x, jnp.tanh) - y) ** 2)

    def update(params: Any, x: jax.Array, y: jax.Array, seed: jax.Array) -> Any:
        grads = jax.vmap(jax.grad(loss_fn), in_axes=(None, 0, 0))(params, x, y)
        squares = [jnp.sum(g.reshape(batch, -1) ** 2, axis=1) for g in jax.tree.leaves(grads)]
        norms = jnp.sqrt(sum(squares))
        factor = jnp.minimum(1.0, 1.0 / (norms + 1e-6))
        summed = jax.tree.map(lambda g: jnp.einsum("b,b...->...", factor, g), grads)
        leaves, tree = jax.tree.flatten(summed)
        keys = jax.random.split(jax.random.PRNGKey(seed), len(leaves))
        noisy = [g + 0.5 * jax.random.normal(k, g.shape) for g, k in zip(leaves, keys, strict=True)]
        grads = jax.tree.unflatten(tree, noisy)
        return jax.tree.map(lambda p, g: p - 0.1 * g / batch, params, grads), jnp.mean(norms)

    return update, (
        layers_of(16, width, width, 3),
        normal(batch, 16),
        normal(batch, 3, seed=1),
        jnp.int32(0),
    )


def network_derivatives(points: int, width: int) -> Program:
    """A physics-informed loss: the Hessian of a net at each point, in the heat equation; and its gradient."""

    def net(params: Any, z: jax.Array) -> jax.Array:
        return mlp(params, z, jnp.tanh)[0]

    def loss_fn(params: Any, z: jax.Array) -> jax.Array:
        def residual(z: jax.Array) -> jax.Array:
            slopes = jax.grad(net, argnums=1)(params, z)
            curves = jax.hessian(net, argnums=1)(params, z)
            return slopes[2] - 0.1 * (curves[0, 0] + curves[1, 1]) + jnp.sin(jnp.pi * z[0])

        return jnp.mean(jax.vmap(residual)(z) ** 2)

    return jax.value_and_grad(loss_fn), (layers_of(3, width, width, 1), normal(points, 3))


SIZES: Final[Sizes] = {
    ("lbfgs", lbfgs): ((200, 150), (10_000, 30)),
    ("newton-cg", newton_cg): ((20, 800), (50, 4_000)),
    ("per-example", per_example): ((128, 48), (256, 64), (512, 128)),
    ("network-derivatives", network_derivatives): ((400, 16), (1_000, 32), (4_000, 64)),
}
