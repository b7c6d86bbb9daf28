"""Programs whose loops Python unrolled: the same few kernels again and again, in straight code.

XLA compiles equal kernels once; native code holds each as often as it runs. `benchmarks.compile_times`
measures what that costs, and what it gains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

Built = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and what it is called with."""


def _random(*sizes: int) -> Any:
    return np.random.default_rng(0).normal(size=sizes).astype(np.float32)


def sinkhorn() -> Built:
    """Thirty rounds of optimal transport between 40 points and 40."""

    def transport(cost: Any) -> Any:
        rows, columns = jnp.zeros(40), jnp.zeros(40)
        for _ in range(30):
            rows = -logsumexp(cost + columns[None], axis=1)
            columns = -logsumexp(cost + rows[:, None], axis=0)
        return rows, columns

    return transport, (_random(40, 40),)


def logistic_descent() -> Built:
    """Twenty steps of gradient descent on a logistic regression."""

    def descend(weights: Any, data: Any, labels: Any) -> Any:
        for _ in range(20):
            error = jax.nn.sigmoid(data @ weights) - labels
            weights = weights - 0.1 * (data.T @ error) / len(labels)
        return weights

    return descend, (np.zeros(20, np.float32), _random(100, 20), np.ones(100, np.float32))


def adam_of_leaves() -> Built:
    """Adam's update of forty small arrays."""

    def update(values: Any, means: Any, squares: Any, gradients: Any) -> Any:
        new = []
        for value, mean, square, gradient in zip(values, means, squares, gradients, strict=True):
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient * gradient
            new.append((value - 1e-3 * mean / (jnp.sqrt(square) + 1e-8), mean, square))
        return new

    leaves = [np.ones((16, 16) if i % 2 else 16, np.float32) for i in range(40)]
    return update, (leaves, leaves, leaves, leaves)


def norms_of_leaves() -> Built:
    """Forty small gradients, clipped by their common norm."""

    def clip(gradients: Any) -> Any:
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients))
        return [jnp.where(norm < 1, g, g / norm) for g in gradients]

    return clip, ([_random(30 + i % 3, 20) for i in range(40)],)


def sums_of_chains() -> Built:
    """Sixteen arrays, six times through a tanh and a sum each."""

    def chains(arrays: Any) -> Any:
        for i in range(6):
            arrays = [jnp.tanh(x) * 1.1 + jnp.sum(x) * 1e-6 + i for x in arrays]
        return arrays

    return chains, ([_random(500) for _ in range(16)],)


def layers() -> Built:
    """Sixteen layers of width 32."""

    def apply(weights: Any, x: Any) -> Any:
        for weight, bias in weights:
            x = jnp.tanh(x @ weight + bias)
        return x

    weights = [(_random(32, 32) / 6, np.zeros(32, np.float32)) for _ in range(16)]
    return apply, (weights, _random(4, 32))


def recurrent() -> Built:
    """Twenty steps of a recurrent network of width 16."""

    def apply(state: Any, weights: Any, inputs: Any) -> Any:
        found = []
        for x in inputs:
            state = jnp.tanh(state @ weights[0] + x @ weights[1])
            found.append(state)
        return jnp.stack(found)

    return apply, (_random(8, 16), _random(2, 16, 16) / 4, _random(20, 8, 16))


def gated_gradient() -> Built:
    """The gradient of twelve steps of a gated recurrent unit."""

    def loss(weights: Any, inputs: Any) -> Any:
        state = jnp.zeros((8, 16))
        for x in inputs:
            update = jax.nn.sigmoid(x @ weights[0] + state @ weights[1])
            reset = jax.nn.sigmoid(x @ weights[2] + state @ weights[3])
            new = jnp.tanh(x @ weights[4] + (reset * state) @ weights[5])
            state = (1 - update) * new + update * state
        return jnp.sum(state * state)

    return jax.grad(loss), (_random(6, 16, 16) / 4, _random(12, 8, 16))


def kalman() -> Built:
    """Fifteen steps of a Kalman filter of four states."""

    def filtered(measured: Any) -> Any:
        state, covariance = jnp.zeros(4), jnp.eye(4)
        found = []
        for value in measured:
            state, covariance = 0.9 * state, 0.81 * covariance + 0.01 * jnp.eye(4)
            seen = covariance[:2]
            gain = seen.T @ jnp.linalg.inv(seen[:, :2] + 0.1 * jnp.eye(2))
            state = state + gain @ (value - state[:2])
            covariance = covariance - gain @ seen
            found.append(state)
        return jnp.stack(found)

    return filtered, (_random(15, 2),)


def random_walk() -> Built:
    """Ten steps of a walk by random numbers."""

    def walk(key: Any, x: Any) -> Any:
        for _ in range(10):
            key, now = jax.random.split(key)
            x = 0.95 * x + 0.1 * jax.random.normal(now, x.shape)
        return x

    return walk, (jax.random.PRNGKey(0), np.zeros(200, np.float32))


UNROLLED: Final[dict[str, Callable[[], Built]]] = {
    "sinkhorn": sinkhorn,
    "logistic descent": logistic_descent,
    "Adam of leaves": adam_of_leaves,
    "norms of leaves": norms_of_leaves,
    "sums of chains": sums_of_chains,
    "layers": layers,
    "recurrent network": recurrent,
    "gated unit, gradient": gated_gradient,
    "Kalman filter": kalman,
    "random walk": random_walk,
}
"""Name -> what builds the program."""
