"""Gradients and Jacobians through loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal, uniform


def _drift(x: Any, v: Any, mass: Any, dt: float) -> Any:
    """Two-body motion during ``dt``, by Newton steps for the eccentric anomaly."""
    r = jnp.sqrt(jnp.sum(x * x))
    a = 1 / (2 / r - jnp.sum(v * v) / mass)
    n = jnp.sqrt(mass / a**3)
    ec, es = 1 - r / a, jnp.sum(x * v) / (n * a**2)
    angle = n * dt
    for _ in range(4):
        s, c = jnp.sin(angle), jnp.cos(angle)
        angle = angle - (angle - ec * s + es * (1 - c) - n * dt) / (1 - ec * c + es * s)
    s, c = jnp.sin(angle), jnp.cos(angle)
    ratio = 1 - ec * c + es * s
    f, g = a / r * (c - 1) + 1, dt + (s - angle) / n
    return f * x + g * v, -a / (r * ratio) * n * s * x + ((c - 1) / ratio + 1) * v


def orbit_gradient() -> Built:
    """Positions of three planets after a symplectic integration, and the gradient for masses and start.

    After kemasuda/jnkepler#18: the gradient takes 100 instead of 7 ms, from many small kernels.
    """
    steps, dt = 200, 0.02

    def loss(masses: Any, x: Any, v: Any) -> Any:
        def kick(x: Any, v: Any, h: float) -> Any:
            gap = x[None, :] - x[:, None] + jnp.eye(3)[:, :, None]
            pull = masses[None, :, None] * gap / jnp.sum(gap**2, -1, keepdims=True) ** 1.5
            return v + h * jnp.sum(pull * (1 - jnp.eye(3))[:, :, None], 1)

        def step(state: Any, _: Any) -> Any:
            x, v = state
            v = kick(x, v, dt / 2)
            x, v = jax.vmap(lambda a, b, m: _drift(a, b, 1 + m, dt))(x, v, masses)
            return (x, kick(x, v, dt / 2)), x[:, 0]

        return jnp.mean(lax.scan(step, (x, v), None, length=steps)[1] ** 2)

    radius, angle = np.array([1.0, 1.6, 2.3]), np.array([0.3, 2.0, 4.0])
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle), 0.02 * angle], 1)
    v = np.stack([-np.sin(angle), np.cos(angle), 0.01 * angle], 1) / np.sqrt(radius)[:, None]
    masses = jnp.asarray([3e-5, 1e-4, 5e-5])
    return jax.value_and_grad(loss, (0, 1, 2)), (masses, jnp.asarray(x), jnp.asarray(v))


def recurrence_jacobian() -> Built:
    """Jacobian of the last state of a complex linear recurrence with respect to its coefficients.

    After jax-ml/jax#19498: through an associative scan it is unexpectedly slow.
    """
    length, size = 128, 8

    def last(decay: Any, phase: Any, inputs: Any) -> Any:
        coefficient = jnp.exp(-jnp.exp(decay) + 1j * phase)

        def combined(first: Any, second: Any) -> Any:
            return first[0] * second[0], second[0] * first[1] + second[1]

        rows = jnp.broadcast_to(coefficient, (length, size))
        state = lax.associative_scan(combined, (rows, inputs.astype(rows.dtype)))[1][-1]
        return jnp.concatenate([state.real, state.imag])

    rng = generator()
    args = (normal(rng, size) - 2, uniform(rng, size, high=3.0), normal(rng, length, size))
    return jax.jacrev(last, (0, 1)), args


def wave_gradient() -> Built:
    """Gradient of a wave field's energy with respect to its start, with sliced differences.

    After jax-ml/jax#6872: the backward pass of the slices makes the gradient slow.
    """
    size, steps = 96, 12

    def loss(start: Any, speed: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            old, now = state
            inner = now[1:-1, 1:-1]
            bend = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4 * inner
            new = 2 * inner - old[1:-1, 1:-1] + speed[1:-1, 1:-1] * bend
            return (now, now.at[1:-1, 1:-1].set(new)), None

        return jnp.sum(lax.scan(step, (start, start), None, length=steps)[0][1] ** 2)

    rng = generator()
    t = np.linspace(-3, 3, size)
    start = jnp.asarray(np.exp(-(t[:, None] ** 2) - t[None, :] ** 2))
    return jax.grad(loss, (0, 1)), (start, uniform(rng, size, size, low=0.1, high=0.2))


def _spread(y: Any, move: Any, rates: Any, coupling: Any) -> Any:
    """Rates of change of the susceptible, exposed, infected, recovered and dead of all regions."""
    s, e, i, r, _ = y
    force = jnp.exp(rates[0]) * s * move * (coupling @ i)
    onset, end = jnp.exp(rates[1]) * e, jnp.exp(rates[2]) * i
    return jnp.stack([-force, force - onset, onset - end, 0.98 * end - 0.01 * r, 0.02 * end])


def epidemic_gradient() -> Built:
    """Gradient of the misfit of an epidemic in regions coupled by mobility, for the regions' rates.

    After jax-ml/jax#3993: the gradient step through the ODE takes seconds.
    """
    regions, days, inner = 20, 40, 4
    dt = 1.0 / inner

    def loss(rates: Any, start: Any, mobility: Any, coupling: Any, seen: Any) -> Any:
        def day(y: Any, inputs: Any) -> Any:
            move, cases = inputs

            def part(_: Any, y: Any) -> Any:
                a = _spread(y, move, rates, coupling)
                b = _spread(y + dt / 2 * a, move, rates, coupling)
                c = _spread(y + dt / 2 * b, move, rates, coupling)
                d = _spread(y + dt * c, move, rates, coupling)
                return y + dt / 6 * (a + 2 * b + 2 * c + d)

            new = lax.fori_loop(0, inner, part, y)
            return new, (y[0] - new[0] - cases[0]) ** 2 + 100 * (new[4] - y[4] - cases[1]) ** 2

        return jnp.sum(lax.scan(day, start, (mobility, seen))[1])

    rng = generator()
    infected = rng.uniform(0.001, 0.02, regions)
    start = np.stack([1 - 2 * infected, infected, infected, 0 * infected, 0 * infected])
    coupling = np.eye(regions) * 0.8 + rng.dirichlet(np.ones(regions), regions) * 0.2
    rates = jnp.asarray(np.log([[0.4], [0.25], [0.15]]) + 0.1 * rng.standard_normal((3, regions)))
    mobility, seen = uniform(rng, days, regions, low=0.5), uniform(rng, days, 2, regions, high=0.01)
    return jax.value_and_grad(loss), (
        rates,
        jnp.asarray(start),
        mobility,
        jnp.asarray(coupling),
        seen,
    )


def transport_gradient() -> Built:
    """Gradient of the misfit of a reactive transport column for its six parameters.

    After patrick-kidger/diffrax#226: the gradient of the solution is really slow.
    """
    cells, steps, dt = 40, 150, 0.01

    def loss(logs: Any, seen: Any) -> Any:
        velocity, dispersion, fastest, half, growth, death = jnp.exp(logs)

        def moved(c: Any, inflow: Any) -> Any:
            wide = jnp.concatenate([jnp.full(1, inflow), c, c[-1:]])
            return -velocity * (c - wide[:-2]) + dispersion * (wide[2:] - 2 * c + wide[:-2])

        def slope(y: Any) -> Any:
            food, oxygen, biomass = y
            use = fastest * food / (half + food) * oxygen / (0.1 + oxygen) * biomass
            return jnp.stack(
                [
                    moved(food, 1.0) - use,
                    moved(oxygen, 0.8) - 0.7 * use,
                    growth * use - death * biomass,
                ]
            )

        def step(y: Any, _: Any) -> Any:
            first = slope(y)
            return y + dt / 2 * (first + slope(y + dt * first)), y[:, -1]

        start = jnp.stack([jnp.zeros(cells), jnp.full(cells, 0.8), jnp.full(cells, 0.2)])
        path = lax.scan(step, start, None, length=steps)[1]
        return jnp.mean((path[::10] - seen) ** 2)

    logs = jnp.log(jnp.array([8.0, 2.0, 3.0, 0.4, 0.5, 0.1]))
    return jax.value_and_grad(loss), (logs, uniform(generator(), steps // 10, 3))


def potential_flow() -> Built:
    """Gradient through a flow along the slope of a potential network, with the trace of its Hessian.

    After patrick-kidger/diffrax#179: the backward pass is 40 to 80 times slower than the forward pass.
    """
    batch, size, width, steps = 16, 3, 24, 6

    def potential(x: Any, weights: Any) -> Any:
        h = jax.nn.softplus(weights[0] @ x + weights[1])
        h = h + jax.nn.softplus(weights[2] @ h + weights[3])
        return weights[4] @ h + 0.05 * jnp.sum(x**2)

    def loss(weights: Any, points: Any) -> Any:
        def slope(x: Any) -> Any:
            return jax.grad(potential)(x, weights), jnp.trace(jax.hessian(potential)(x, weights))

        def step(state: Any, _: Any) -> Any:
            x, volume = state
            h = 1.0 / steps
            middle = x + h / 2 * slope(x)[0]
            push, spread = slope(middle)
            return (x + h * push, volume + h * spread), None

        def one(x: Any) -> Any:
            x, volume = lax.scan(jax.checkpoint(step), (x, jnp.float32(0)), None, length=steps)[0]
            return 0.5 * jnp.sum(x**2) - volume

        return jnp.mean(jax.vmap(one)(points))

    rng = generator()
    shapes = ((width, size), (width,), (width, width), (width,), (width,))
    weights = [normal(rng, *shape, scale=0.2) for shape in shapes]
    return jax.value_and_grad(loss), (weights, normal(rng, batch, size))


def controlled_equation() -> Built:
    """Gradient of a classifier which is a neural controlled differential equation.

    After patrick-kidger/diffrax#549: checkpoints make the run on a CPU almost twice as long.
    """
    batch, channels, hidden, width, steps = 8, 3, 8, 32, 50

    def field(h: Any, weights: Any) -> Any:
        z = jax.nn.softplus(weights[0] @ h + weights[1])
        z = jax.nn.softplus(weights[2] @ z + weights[3])
        return jnp.tanh(weights[4] @ z + weights[5]).reshape(hidden, channels)

    def loss(weights: Any, controls: Any, labels: Any) -> Any:
        def step(h: Any, change: Any) -> Any:
            first = field(h, weights) @ change
            return h + 0.5 * (first + field(h + first, weights) @ change), None

        def one(control: Any, label: Any) -> Any:
            start = jnp.tanh(weights[6] @ control[0])
            h = lax.scan(jax.checkpoint(step), start, control[1:] - control[:-1])[0]
            score = weights[7] @ h
            return jax.nn.softplus(score) - label * score

        return jnp.mean(jax.vmap(one)(controls, labels))

    rng = generator()
    inner = ((width, hidden), (width,), (width, width), (width,))
    outer = ((hidden * channels, width), (hidden * channels,), (hidden, channels), (hidden,))
    weights = [normal(rng, *shape, scale=0.2) for shape in inner + outer]
    controls = np.cumsum(0.1 * rng.standard_normal((batch, steps + 1, channels)), 1)
    return jax.value_and_grad(loss), (weights, jnp.asarray(controls), jnp.arange(batch) % 2)


def running_total() -> Built:
    """Gradient through a loop which sets each element of an array from the one before.

    After jax-ml/jax#1832: the gradient is over 100 times slower than PyTorch's.
    """
    length = 1000

    def loss(x: Any) -> Any:
        def step(i: Any, f: Any) -> Any:
            return f.at[i].set(0.9 * f[i - 1] + jnp.tanh(x[i]))

        total = lax.fori_loop(1, length, step, jnp.zeros(length).at[0].set(x[0]))
        return jnp.sum(total**2)

    return jax.grad(loss), (normal(generator(), length),)


def magnetic_gradient() -> Built:
    """Gradient of a magnetic field's energy at points, for the segments of wire which make it.

    After openxla/xla#49131: the sum over pairs is written to memory instead of being accumulated.
    """
    points, segments = 192, 256

    def loss(wire: Any, current: Any, at: Any) -> Any:
        middle, along = 0.5 * (wire[1:] + wire[:-1]), wire[1:] - wire[:-1]
        gap = at[:, None] - middle[None]
        distance = jnp.sqrt(jnp.sum(gap**2, -1) + 1e-3)
        field = jnp.sum(jnp.cross(current[:, None] * along, gap) / distance[..., None] ** 3, 1)
        return jnp.sum(field**2)

    rng = generator()
    t = np.linspace(0, 6 * np.pi, segments + 1)
    wire = jnp.asarray(np.stack([np.cos(t), np.sin(t), 0.1 * t], 1))
    args = (wire, uniform(rng, segments, low=0.5), normal(rng, points, 3))
    return jax.grad(loss, (0, 1)), args


REPORTS: tuple[Reported, ...] = (
    Reported("orbit_gradient", "kemasuda/jnkepler#18", orbit_gradient, x64=True),
    Reported("recurrence_jacobian", "jax-ml/jax#19498", recurrence_jacobian),
    Reported("wave_gradient", "jax-ml/jax#6872", wave_gradient),
    Reported("epidemic_gradient", "jax-ml/jax#3993", epidemic_gradient),
    Reported("transport_gradient", "patrick-kidger/diffrax#226", transport_gradient, x64=True),
    Reported("potential_flow", "patrick-kidger/diffrax#179", potential_flow),
    Reported("controlled_equation", "patrick-kidger/diffrax#549", controlled_equation),
    Reported("running_total", "jax-ml/jax#1832", running_total),
    Reported("magnetic_gradient", "openxla/xla#49131", magnetic_gradient),
)
"""The programs of this family."""
