"""Small programs whose loops compute the same from what they keep, in every iteration."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from graphopt.corpus.inputs import normal
from graphopt.corpus.program import Built, ProgramSet

SHARED = ProgramSet()


@SHARED.register(
    "regressions", family="loop", description="slopes of f32[40,6] in loops and branches, 30 times"
)
def _regressions() -> Built:
    def fn(x: Array, y: Array, b: Array) -> tuple[Array, Array]:
        def slope(b: Array) -> Array:
            return x.T @ (jax.nn.sigmoid(x @ b) - y) / 40

        def descend(_: Array, b: Array) -> Array:
            return b - 0.3 * slope(b)

        def step(b: Array, i: Array) -> tuple[Array, Array]:
            b = lax.fori_loop(0, 3, descend, b)
            b = lax.cond(i % 3 == 0, lambda b: b * 0.9 + 0.1 * slope(b), lambda b: b, b)
            return b, (x @ b).sum()

        out: tuple[Array, Array] = lax.scan(step, b, jnp.arange(30))
        return out

    return fn, (normal(40, 6), normal(40, seed=1), normal(6, seed=2))


@SHARED.register(
    "parts", family="loop", description="three f32[24,24] of one array, turned, 12 times"
)
def _parts() -> Built:
    def fn(weights: Array, v: Array) -> Array:
        def step(_: Array, v: Array) -> Array:
            for i in range(3):
                v = jnp.tanh(v @ weights[i].T * 0.2)
            return v + weights[0, :5] * 0.1

        out: Array = lax.fori_loop(0, 12, step, v)
        return out

    return fn, (normal(3, 24, 24), normal(5, 24, seed=1))


@SHARED.register(
    "chains",
    family="loop",
    description="four chains of slopes of f32[40,6], with their losses, 20 times",
)
def _chains() -> Built:
    def fn(x: Array, y: Array, b: Array) -> tuple[Array, Array]:
        def loss(b: Array, y: Array) -> Array:
            scores = x @ b
            return jnp.sum(y * scores - jnp.logaddexp(0.0, scores))

        def step(b: Array, _: None) -> tuple[Array, Array]:
            value, slope = jax.vmap(jax.value_and_grad(loss), (0, None))(b, y)
            return b + 0.01 * slope - 0.1 * b, value

        out: tuple[Array, Array] = lax.scan(step, b, None, length=20)
        return out

    return fn, (normal(40, 6), normal(40, seed=1), normal(4, 6, seed=2))


@SHARED.register(
    "actors", family="loop", description="a network of two layers for three f32[5] states, 30 times"
)
def _actors() -> Built:
    def fn(inner: Array, outer: Array, bias: Array, state: Array) -> tuple[Array, Array]:
        def act(state: Array) -> Array:
            return outer @ jnp.tanh(inner @ state + bias)

        def step(state: Array, _: None) -> tuple[Array, Array]:
            action = jax.vmap(act)(state)
            return 0.9 * state + 0.1 * jnp.tanh(action), action.mean()

        out: tuple[Array, Array] = lax.scan(step, state, None, length=30)
        return out

    return fn, (normal(64, 5), normal(5, 64, seed=1), normal(64, seed=2), normal(3, 5, seed=3))


@SHARED.register(
    "gates",
    family="loop",
    description="gradients of a gated recurrent cell for three f32[7] states",
)
def _gates() -> Built:
    def fn(state_w: Array, input_w: Array, state: Array, inputs: Array) -> tuple[Array, Array]:
        def cell(state: Array, x: Array) -> tuple[Array, None]:
            keep, reset, new = jnp.split(input_w @ x, 3)
            gates = jax.nn.sigmoid(state_w[:14] @ state + jnp.concatenate([keep, reset]))
            fresh = jnp.tanh(new + gates[7:] * (state_w[14:] @ state))
            return gates[:7] * state + (1.0 - gates[:7]) * fresh, None

        def loss(state: Array, inputs: Array) -> Array:
            return jnp.sum(lax.scan(cell, state, inputs)[0] ** 2)

        out: tuple[Array, Array] = jax.vmap(jax.value_and_grad(loss))(state, inputs)
        return out

    weights = 0.3 * normal(21, 7), 0.3 * normal(21, 5, seed=1)
    return fn, (*weights, normal(3, 7, seed=2), normal(3, 9, 5, seed=3))
