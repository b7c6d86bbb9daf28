"""Programs after reported CPU slowdowns, written from their descriptions; they run under old and new jax.

Each builder returns ``(fn, args)``. Value and gradient are programs of their own. The issue that a
program follows is named by its number in the jax repository.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Built = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Reported:
    """One program.

    Attributes:
        name: for tables.
        origin: the report it follows.
        build: returns the function and its arguments.
        x64: runs with 64-bit types.
    """

    name: str
    origin: str
    build: Callable[[], Built]
    x64: bool = False


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _loss_and_gradient(loss: Callable[..., Any], *args: Any) -> tuple[Built, Built]:
    return (loss, args), (jax.value_and_grad(loss), args)


# Neuron simulator: compartments with Hodgkin-Huxley channels, implicit voltage step.

COMPARTMENTS = 8
NEURON_STEPS = 400


def _gate(v: Any, gate: Any, opening: Any, closing: Any, dt: float) -> Any:
    rate = opening + closing
    return opening / rate + (gate - opening / rate) * jnp.exp(-dt * rate)


def _neuron_loss(conductance: Any, current: Any, where: Any) -> Any:
    dt, coupling = 0.025, 0.7
    count = conductance.shape[1]

    def step(state: Any, stimulus: Any) -> Any:
        v, m, h, n = state
        m = _gate(v, m, 0.1 * (v + 40.1) / (1 - jnp.exp(-(v + 40.1) / 10)),
                  4 * jnp.exp(-(v + 65) / 18), dt)  # fmt: skip
        h = _gate(v, h, 0.07 * jnp.exp(-(v + 65) / 20), 1 / (1 + jnp.exp(-(v + 35) / 10)), dt)
        n = _gate(v, n, 0.01 * (v + 55.1) / (1 - jnp.exp(-(v + 55.1) / 10)),
                  0.125 * jnp.exp(-(v + 65) / 80), dt)  # fmt: skip
        sodium, potassium = conductance[0] * m**3 * h, conductance[1] * n**4
        leak = conductance[2]
        external = jnp.zeros(count).at[where].add(stimulus)
        right = v + dt * (sodium * 50 - potassium * 77 - leak * 54.3 + external)
        diagonal = 1 + dt * (sodium + potassium + leak) + dt * coupling * 2
        off = -dt * coupling

        def down(i: Any, carry: Any) -> Any:
            d, r = carry
            w = off / d[i - 1]
            return d.at[i].add(-w * off), r.at[i].add(-w * r[i - 1])

        diagonal, right = _unrolled(1, count, down, (diagonal, right))

        def up(i: Any, x: Any) -> Any:
            j = count - 1 - i
            return x.at[j].set((right[j] - off * x[j + 1]) / diagonal[j])

        x = jnp.zeros(count).at[count - 1].set(right[count - 1] / diagonal[count - 1])
        v = _unrolled(1, count, up, x)
        return (v, m, h, n), v[0]

    rest = jnp.full(count, -65.0)
    state = (rest, jnp.full(count, 0.05), jnp.full(count, 0.6), jnp.full(count, 0.32))
    return jnp.mean(lax.scan(step, state, current)[1])


def _unrolled(low: int, high: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    for i in range(low, high):
        carry = body(i, carry)
    return carry


def _neuron(part: int) -> Callable[[], Built]:
    def build() -> Built:
        conductance = jnp.asarray(np.outer([120.0, 36.0, 0.3], np.ones(COMPARTMENTS)))
        current = jnp.asarray(_rng().uniform(0, 10, (NEURON_STEPS, 2)))
        return _loss_and_gradient(_neuron_loss, conductance, current, np.array([0, 3]))[part]

    return build


# Robot dynamics: forward kinematics of a chain, mass matrix, a small positive definite solve.

JOINTS = 12


def _mass_matrix(q: Any) -> Any:
    eye = jnp.eye(4)
    world = jnp.zeros((JOINTS, 4, 4))
    axes = []
    for i in range(JOINTS):
        c, s = jnp.cos(q[i]), jnp.sin(q[i])
        local = eye.at[0, 0].set(c).at[0, 1].set(-s).at[1, 0].set(s).at[1, 1].set(c)
        local = local.at[0, 3].set(0.3).at[2, 3].set(0.1 * (i % 3))
        tilt = eye.at[1, 1].set(0.0).at[1, 2].set(-1.0).at[2, 1].set(1.0).at[2, 2].set(0.0)
        parent = world[i - 1] if i else eye
        world = world.at[i].set(parent @ (tilt @ local if i % 2 else local))
        axes.append(world[i, :3, 2])
    positions = world[:, :3, 3]
    total = jnp.eye(JOINTS) * 0.1
    for i in range(JOINTS):
        arm = positions[i] - positions
        linear = jnp.cross(jnp.stack(axes), arm)
        mask = (jnp.arange(JOINTS) <= i).astype(linear.dtype)
        jacobian = linear * mask[:, None]
        total = total + jacobian @ jacobian.T * (1.0 + 0.1 * i)
    return total


def _robot_matrix() -> Built:
    return _mass_matrix, (jnp.asarray(_rng().uniform(-1, 1, JOINTS)),)


def _robot_loss(q: Any, torque: Any) -> Any:
    def step(state: Any, torque: Any) -> Any:
        q, speed = state
        acceleration = jnp.linalg.solve(_mass_matrix(q), torque - 0.3 * speed)
        speed = speed + 0.01 * acceleration
        return (q + 0.01 * speed, speed), jnp.sum(speed**2)

    return jnp.sum(lax.scan(step, (q, jnp.zeros(JOINTS)), torque)[1])


def _robot(part: int) -> Callable[[], Built]:
    def build() -> Built:
        q = jnp.asarray(_rng().uniform(-1, 1, JOINTS))
        torque = jnp.asarray(_rng().uniform(-1, 1, (50, JOINTS)))
        return _loss_and_gradient(_robot_loss, q, torque)[part]

    return build


# Small quadratic programs by an interior point method: factorisations inside a loop.


def _quadratic_program(q: Any, a: Any, b: Any) -> Any:
    """Minimises x'x/2 + q'x with a x <= b; 20 primal-dual steps."""
    count, rows = a.shape[1], a.shape[0]

    def step(_: Any, state: Any) -> Any:
        x, s, z = state
        gap = jnp.dot(s, z) / rows * 0.2
        residual = x + q + a.T @ z
        primal = a @ x + s - b
        h = jnp.eye(count) + a.T @ (a * (z / s)[:, None])
        right = -residual - a.T @ ((z * primal - z * s + gap) / s)
        factor = jnp.linalg.cholesky(h)
        half = jax.scipy.linalg.solve_triangular(factor, right, lower=True)
        dx = jax.scipy.linalg.solve_triangular(factor.T, half, lower=False)
        ds = -primal - a @ dx
        dz = (gap - s * z - z * ds) / s
        length = jnp.minimum(1.0, 0.95 * jnp.minimum(
            jnp.min(jnp.where(ds < 0, -s / ds, 1e6)), jnp.min(jnp.where(dz < 0, -z / dz, 1e6))
        ))  # fmt: skip
        return x + length * dx, s + length * ds, z + length * dz

    state = (jnp.zeros(count), jnp.ones(rows), jnp.ones(rows))
    return lax.fori_loop(0, 20, step, state)[0]


def _programs() -> Built:
    rng = _rng()
    a = jnp.asarray(rng.standard_normal((10, 6)))
    return _quadratic_program, (jnp.asarray(rng.standard_normal(6)), a, jnp.ones(10))


# A while loop over a long array of integers, and an adaptive ODE solver.


def _while_maximum() -> Built:
    steps = 1 << 16

    def fn(values: Any, stop: Any) -> Any:
        return lax.while_loop(
            lambda u: u[0] < stop,
            lambda u: (jnp.maximum(u[0], values[u[1]]), u[1] + 1),
            (jnp.int32(0), jnp.int32(0)),
        )[1]

    return fn, (jnp.arange(steps, dtype=jnp.int32), jnp.int32(steps - 1))


def _adaptive_ode() -> Built:
    """Bogacki-Shampine steps of a chemical network until the end time."""

    def rate(y: Any, k: Any) -> Any:
        flow = k * jnp.stack([y[0], y[1] * y[2], y[1] ** 2, y[0] * y[2]])
        return jnp.stack([
            flow[1] - flow[0] - flow[3], flow[0] - flow[1] - flow[2], flow[2] - flow[1] + flow[3]
        ])  # fmt: skip

    def fn(y: Any, k: Any) -> Any:
        def step(state: Any) -> Any:
            t, y, h = state
            a = rate(y, k)
            b = rate(y + h / 2 * a, k)
            c = rate(y + 0.75 * h * b, k)
            new = y + h * (2 / 9 * a + 1 / 3 * b + 4 / 9 * c)
            d = rate(new, k)
            error = jnp.max(jnp.abs(h * (-5 / 72 * a + b / 12 + c / 9 - d / 8))) / 1e-7
            good = error <= 1
            factor = jnp.clip(0.9 * (1 / jnp.maximum(error, 1e-10)) ** (1 / 3), 0.2, 5.0)
            return jnp.where(good, t + h, t), jnp.where(good, new, y), jnp.minimum(h * factor, 0.1)

        return lax.while_loop(lambda s: s[0] < 20.0, step, (0.0, y, 1e-3))[1]

    return fn, (jnp.array([1.0, 0.1, 0.0]), jnp.array([0.4, 1.0, 0.3, 0.2]))


# Scan with many scalar leaves in the carry.

LEAVES = 60


def _leaves_loss(gain: Any, observed: Any) -> Any:
    names = [f"node{i}" for i in range(LEAVES)]

    def step(state: Any, seen: Any) -> Any:
        out = {}
        for i, name in enumerate(names):
            below = state[names[i - 1]]
            precision = jax.nn.softplus(state[name] * 0.3 + gain[i % 4])
            error = seen - below * 0.1 - state[name]
            out[name] = state[name] + 0.05 * precision * error / (1.0 + precision)
        return out, out[names[-1]] - seen

    state = {name: jnp.float32(0.01 * i) for i, name in enumerate(names)}
    return jnp.mean(lax.scan(step, state, observed)[1] ** 2)


def _leaves(part: int) -> Callable[[], Built]:
    def build() -> Built:
        seen = jnp.asarray(np.sin(np.arange(300) * 0.1), jnp.float32)
        return _loss_and_gradient(_leaves_loss, jnp.full(4, 0.2, jnp.float32), seen)[part]

    return build


# A recursion over small float64 matrices (the Cholesky factor of a quasi-separable matrix).


def _recursion_loss(p: Any, q: Any, a: Any, diagonal: Any) -> Any:
    def step(f: Any, one: Any) -> Any:
        p, q, a, d = one
        c = jnp.sqrt(d - p @ f @ p)
        w = (q - a @ (f @ p)) / c
        return a @ f @ a.T + jnp.outer(w, w), (c, w)

    c, w = lax.scan(step, jnp.zeros((3, 3), p.dtype), (p, q, a, diagonal))[1]
    return jnp.sum(jnp.log(c)) + jnp.sum(w)


def _recursion(part: int, length: int = 2000) -> Callable[[], Built]:
    def build() -> Built:
        rng = _rng()
        p = jnp.asarray(rng.uniform(0.1, 0.3, (length, 3)))
        q = jnp.asarray(rng.uniform(0.1, 0.3, (length, 3)))
        a = jnp.asarray(np.tile(0.5 * np.eye(3), (length, 1, 1)))
        return _loss_and_gradient(_recursion_loss, p, q, a, jnp.full(length, 3.0))[part]

    return build


def _batched_solves() -> Built:
    """Many small solves of one size."""
    rng = _rng()
    a = rng.standard_normal((512, 6, 6)).astype(np.float32) + 4 * np.eye(6, dtype=np.float32)
    b = rng.standard_normal((512, 6)).astype(np.float32)
    solve = jax.vmap(lambda a, b: jnp.linalg.solve(a @ a.T + jnp.eye(6), b))
    return solve, (jnp.asarray(a), jnp.asarray(b))


# Sums of squared neighbour differences.


def _neighbours_loss(x: Any) -> Any:
    return sum(jnp.sum(jnp.square(jnp.diff(x, axis=i))) for i in range(x.ndim))


def _neighbours(part: int, *dims: int) -> Callable[[], Built]:
    def build() -> Built:
        x = jnp.asarray(_rng().standard_normal(dims), jnp.float32)
        return _loss_and_gradient(_neighbours_loss, x)[part]

    return build


# A sampler: Hamiltonian Monte Carlo with random numbers drawn inside the loop.


def _sampler() -> Built:
    rng = _rng()
    x = jnp.asarray(rng.standard_normal((60, 5)), jnp.float32)
    y = jnp.asarray(rng.uniform(size=60) < 0.5, jnp.float32)

    def energy(w: Any) -> Any:
        score = x @ w
        return jnp.sum(jax.nn.softplus(score) - y * score) + 0.5 * jnp.sum(w**2)

    def fn(seed: Any) -> Any:
        def step(w: Any, key: Any) -> Any:
            draw, accept = jax.random.split(key)
            momentum = jax.random.normal(draw, w.shape)

            def leap(_: Any, state: Any) -> Any:
                w, p = state
                p = p - 0.02 * jax.grad(energy)(w)
                w = w + 0.04 * p
                return w, p - 0.02 * jax.grad(energy)(w)

            new, p = lax.fori_loop(0, 8, leap, (w, momentum))
            change = energy(w) - energy(new) + 0.5 * jnp.sum(momentum**2 - p**2)
            taken = jnp.log(jax.random.uniform(accept)) < change
            w = jnp.where(taken, new, w)
            return w, w

        keys = jax.random.split(jax.random.PRNGKey(seed), 100)
        return lax.scan(step, jnp.zeros(5), keys)[1]

    return fn, (jnp.int32(0),)


REPORTED: tuple[Reported, ...] = (
    Reported("neuron", "26145", _neuron(0), x64=True),
    Reported("neuron_gradient", "26145", _neuron(1), x64=True),
    Reported("mass_matrix", "26021", _robot_matrix, x64=True),
    Reported("robot", "26021", _robot(0), x64=True),
    Reported("robot_gradient", "26021", _robot(1), x64=True),
    Reported("quadratic_program", "26021", _programs, x64=True),
    Reported("while_maximum", "25190", _while_maximum),
    Reported("adaptive_ode", "25190", _adaptive_ode, x64=True),
    Reported("scalar_leaves", "40150", _leaves(0)),
    Reported("scalar_leaves_gradient", "40150", _leaves(1)),
    Reported("recursion", "36799", _recursion(0), x64=True),
    Reported("recursion_gradient", "36799", _recursion(1), x64=True),
    Reported("batched_solves", "36799", _batched_solves),
    Reported("neighbours_2d", "37465", _neighbours(0, 64, 64)),
    Reported("neighbours_2d_gradient", "37465", _neighbours(1, 64, 64)),
    Reported("neighbours_3d", "37465", _neighbours(0, 128, 128, 128)),
    Reported("neighbours_3d_gradient", "37465", _neighbours(1, 128, 128, 128)),
    Reported("sampler", "26616", _sampler),
)
"""All programs that follow a report."""
