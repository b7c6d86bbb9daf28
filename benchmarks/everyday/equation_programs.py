"""Differential equations, ordinary and stochastic, and gradients through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax, random

from benchmarks.everyday.common import Program, Sizes, a_key, normal

RK_A: Final = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)


RK_E: Final = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def dormand_prince(f: Callable[..., Any], y: jax.Array, end: float, tol: float = 1e-4) -> Any:
    def going(state):
        t, _, _, n = state
        return (t < end) & (n < 5000)

    def step(state):
        t, y, h, n = state
        h = jnp.minimum(h, end - t)
        ks = []
        for row in RK_A:
            ks.append(
                f(y + h * sum((a * k for a, k in zip(row, ks, strict=False)), jnp.zeros_like(y)))
            )
        new = y + h * sum(a * k for a, k in zip(RK_A[-1], ks, strict=False))
        error = h * sum(e * k for e, k in zip(RK_E, ks, strict=False))
        scale = tol + tol * jnp.maximum(jnp.abs(y), jnp.abs(new))
        ratio = jnp.sqrt(jnp.mean((error / scale) ** 2))
        accept = ratio <= 1
        factor = jnp.clip(0.9 * (ratio + 1e-10) ** -0.2, 0.2, 5.0)
        return jnp.where(accept, t + h, t), jnp.where(accept, new, y), h * factor, n + 1

    _t, y, _, n = lax.while_loop(going, step, (jnp.float32(0.0), y, jnp.float32(1e-2), 0))
    return y, n


def rk45(size: int, end: int) -> Program:
    """Adaptive Runge-Kutta of a reaction along a line."""

    def run(y: jax.Array) -> Any:
        def f(y):
            lap = jnp.roll(y, 1) - 2 * y + jnp.roll(y, -1)
            return 5.0 * lap + y * (1 - y) * (y - 0.2)

        return dormand_prince(f, y, float(end))

    return run, (jnp.abs(normal(size)),)


def adaptive_ensemble(size: int, end: int) -> Program:
    """The same solver vmapped over rates of predators and prey."""

    def run(y: jax.Array, rates: jax.Array) -> Any:
        def solve(y, rates):
            a, b, c, d = rates

            def f(y):
                return jnp.array([a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]])

            return dormand_prince(f, y, float(end))

        return jax.vmap(solve)(y, rates)

    return run, (jnp.abs(normal(size, 2)) + 0.5, 0.5 + jnp.abs(normal(size, 4, seed=1)))


def implicit_van_der_pol(size: int, steps: int) -> Program:
    """Implicit Euler of a stiff Van der Pol's oscillator, Newton by `jacfwd`, many stiffnesses."""

    def solve(y: jax.Array, mu: jax.Array) -> jax.Array:
        def f(y):
            return jnp.array([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

        def step(y, _):
            def residual(z):
                return z - y - 0.01 * f(z)

            def newton(_, z):
                return z - jnp.linalg.solve(jax.jacfwd(residual)(z), residual(z))

            y = lax.fori_loop(0, 4, newton, y)
            return y, y

        return lax.scan(step, y, None, length=steps)[1]

    mu = jnp.linspace(1.0, 100.0, size)
    return jax.vmap(solve), (jnp.stack([jnp.full(size, 2.0), jnp.zeros(size)], 1), mu)


def stochastic_volatility(size: int, steps: int) -> Program:
    """Euler and Maruyama's paths of a price and its variance, a key split every step."""

    def run(key: jax.Array, s: jax.Array, v: jax.Array) -> Any:
        dt, kappa, theta, xi, rho = 1 / 252, 2.0, 0.04, 0.3, -0.7

        def step(state, _):
            s, v, key = state
            key, k1, k2 = random.split(key, 3)
            z1 = random.normal(k1, s.shape)
            z2 = rho * z1 + jnp.sqrt(1 - rho**2) * random.normal(k2, s.shape)
            root = jnp.sqrt(jnp.maximum(v, 0.0) * dt)
            s = s * jnp.exp(-0.5 * jnp.maximum(v, 0.0) * dt + root * z1)
            v = v + kappa * (theta - jnp.maximum(v, 0.0)) * dt + xi * root * z2
            return (s, v, key), s.mean()

        (s, _, _), means = lax.scan(step, (s, v, key), None, length=steps)
        return jnp.maximum(s - 1.0, 0.0).mean(), means

    return run, (a_key(), jnp.ones(size), jnp.full(size, 0.04))


def lorenz(size: int, steps: int) -> Program:
    """An ensemble of Lorenz's systems, Runge-Kutta of order four."""

    def f(state):
        x, y, z = state[..., 0], state[..., 1], state[..., 2]
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=-1)

    def run(state: jax.Array) -> Any:
        def step(s, _):
            k1 = f(s)
            k2 = f(s + 0.005 * k1)
            k3 = f(s + 0.005 * k2)
            k4 = f(s + 0.01 * k3)
            s = s + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return s, (s.mean(0), s.std(0))

        return lax.scan(step, state, None, length=steps)

    return run, (normal(size, 3),)


def kepler(size: int, steps: int) -> Program:
    """Bodies under gravity, kick, drift and kick, energies kept."""

    def run(x: jax.Array, v: jax.Array, m: jax.Array) -> Any:
        def acceleration(x):
            d = x[None, :, :] - x[:, None, :]
            r2 = jnp.sum(d**2, -1) + 0.01
            return jnp.sum(m[None, :, None] * d * r2[..., None] ** -1.5, axis=1)

        def step(state, _):
            x, v, a = state
            v = v + 0.5e-3 * a
            x = x + 1e-3 * v
            a = acceleration(x)
            v = v + 0.5e-3 * a
            return (x, v, a), 0.5 * jnp.sum(m * jnp.sum(v**2, -1))

        (x, v, _), kinetic = lax.scan(step, (x, v, acceleration(x)), None, length=steps)
        return x, v, kinetic

    return run, (normal(size, 3), 0.1 * normal(size, 3, seed=1), jnp.abs(normal(size, seed=2)))


def pendulums(size: int, steps: int) -> Program:
    """A chain of pendulums from its Lagrangian: mass matrix solved each step."""

    def run(q: jax.Array, v: jax.Array) -> Any:
        n = q.shape[0]
        mass = n - jnp.maximum(jnp.arange(n)[:, None], jnp.arange(n)[None, :]).astype(jnp.float32)

        def f(q, v):
            d = q[:, None] - q[None, :]
            m = mass * jnp.cos(d) + 1e-3 * jnp.eye(n)
            force = -(mass * jnp.sin(d)) @ v**2 - 9.81 * (n - jnp.arange(n)) * jnp.sin(q)
            return jnp.linalg.solve(m, force - 0.1 * v)

        def step(state, _):
            q, v = state
            v = v + 1e-3 * f(q, v)
            q = q + 1e-3 * v
            return (q, v), jnp.stack([jnp.sin(q).sum(), -jnp.cos(q).sum()])

        return lax.scan(step, (q, v), None, length=steps)

    return run, (0.3 * normal(size), jnp.zeros(size))


def adjoint(size: int, steps: int) -> Program:
    """Gradient of a fit of a neural differential equation, through a scan with a checkpoint."""

    def loss(params: Any, y0: jax.Array, target: jax.Array) -> jax.Array:
        def f(y):
            h = jnp.tanh(y @ params[0] + params[1])
            return h @ params[2] + params[3]

        @jax.checkpoint
        def step(y, _):
            k1 = f(y)
            k2 = f(y + 0.025 * k1)
            return y + 0.05 * k2, y

        y, _ = lax.scan(step, y0, None, length=steps)
        return jnp.mean((y - target) ** 2)

    params = (0.3 * normal(2, 32), jnp.zeros(32), 0.2 * normal(32, 2, seed=1), jnp.zeros(2))
    return jax.value_and_grad(loss), (params, normal(size, 2), normal(size, 2, seed=2))


SIZES: Final[Sizes] = {
    ("rk45", rk45): ((32, 100), (1000, 40), (10_000, 5)),
    ("adaptive-ensemble", adaptive_ensemble): ((16, 200), (100, 50), (2000, 30)),
    ("van-der-pol", implicit_van_der_pol): ((4, 300), (32, 200), (256, 50)),
    ("stochastic-volatility", stochastic_volatility): ((100, 252), (1000, 252), (10_000, 40)),
    ("lorenz", lorenz): ((10, 1000), (300, 500), (10_000, 50)),
    ("kepler", kepler): ((8, 1000), (32, 300), (128, 50)),
    ("pendulums", pendulums): ((3, 500), (10, 300), (40, 50)),
    ("adjoint", adjoint): ((16, 100), (128, 100), (1024, 30)),
}
