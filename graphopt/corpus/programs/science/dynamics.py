"""Ordinary and stochastic differential equations, and systems of particles."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, mlp

ODE = Family("ode")
PARTICLES = Family("particles")
FAMILIES = (ODE, PARTICLES)

Rate = Callable[[Array], Array]


def _rk4(rate: Rate, y: Array, step: float) -> Array:
    k1 = rate(y)
    k2 = rate(y + 0.5 * step * k1)
    k3 = rate(y + 0.5 * step * k2)
    k4 = rate(y + step * k3)
    return y + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def _lorenz(y: Array) -> Array:
    a, b, c = y
    return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c])


@ODE.program("lorenz_rk4", "1000 Runge-Kutta steps of 16 Lorenz systems, f32[3,16]", loops=True)
def _lorenz_rk4() -> Built:
    def run(y: Array) -> Tree:
        def step(y: Array, _: None) -> tuple[Array, Array]:
            y = _rk4(_lorenz, y, 0.005)
            return y, y[2]

        return lax.scan(step, y, length=1000)

    return run, (1.0 + Draws(0).normal(3, 16, scale=0.01),)


def _dormand_prince(rate: Rate, y: Array, step: Array) -> tuple[Array, Array]:
    """One step of order five; returns the new state and the error estimate."""
    rows = (
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    )
    error = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
    slopes = [rate(y)]
    for row in rows:
        point = y
        for weight, slope in zip(row, slopes, strict=True):
            point = point + step * weight * slope if weight else point
        slopes.append(rate(point))
    gap = jnp.zeros_like(y)
    for weight, slope in zip(error, slopes, strict=True):
        gap = gap + step * weight * slope if weight else gap
    return point, gap


@ODE.program(
    "van_der_pol_adaptive",
    "adaptive Dormand-Prince on 256 Van der Pol oscillators with one step size, while loop",
    loops=True,
    chaotic=True,
)
def _van_der_pol_adaptive() -> Built:
    def run(y: Array, damping: Array, end: Array) -> Array:
        def rate(y: Array) -> Array:
            return jnp.stack([y[1], damping * (1.0 - y[0] ** 2) * y[1] - y[0]])

        def going(carry: Tree) -> Tree:
            return carry[1] < end

        def step(carry: Tree) -> Tree:
            y, time, size = carry
            size = jnp.minimum(size, end - time + 1e-6)
            fresh, gap = _dormand_prince(rate, y, size)
            error = jnp.sqrt(jnp.mean((gap / (1e-3 + 1e-3 * jnp.abs(fresh))) ** 2)) + 1e-6
            accept = error < 1.0
            factor = jnp.clip(0.9 * error**-0.2, 0.3, 3.0)
            return jnp.where(accept, fresh, y), jnp.where(accept, time + size, time), size * factor

        return lax.while_loop(going, step, (y, jnp.float32(0.0), jnp.float32(0.05)))[0]

    return run, (
        Draws(18).normal(2, 256),
        Draws(19).uniform(256, low=0.5, high=4.0),
        np.float32(12.0),
    )


@ODE.program(
    "lotka_volterra_fit_grad",
    "gradient of a fit to 2000 midpoint steps of predator and prey",
    gradient=True,
    loops=True,
)
def _lotka_volterra_fit_grad() -> Built:
    def loss(rates: Array, y: Array, data: Array) -> Array:
        def rate(y: Array) -> Array:
            a, b, c, d = rates
            return jnp.stack([a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]])

        def step(y: Array, seen: Array) -> tuple[Array, Array]:
            y = y + 0.05 * rate(y + 0.025 * rate(y))
            return y, jnp.sum((jnp.log(y) - seen) ** 2)

        return jnp.mean(lax.scan(step, y, data)[1])

    args = (np.array([1.1, 0.4, 0.1, 0.4], np.float32), np.full(2, 3.0, np.float32))
    return jax.value_and_grad(loss, argnums=(0, 1)), (*args, Draws(1).normal(2000, 2))


@ODE.program(
    "neural_ode_grad",
    "gradient through 20 Runge-Kutta steps of a learned field, f32[32,8]",
    gradient=True,
    loops=True,
)
def _neural_ode_grad() -> Built:
    draws = Draws(2)

    def loss(params: Tree, y: Array, goal: Array) -> Array:
        def step(y: Array, _: None) -> tuple[Array, None]:
            return _rk4(lambda y: mlp(params, y, jnp.tanh), y, 0.05), None

        return jnp.mean((lax.scan(step, y, length=20)[0] - goal) ** 2)

    return jax.value_and_grad(loss), (
        draws.layers(8, 32, 8),
        draws.normal(32, 8),
        draws.normal(32, 8),
    )


@ODE.program(
    "robertson_implicit",
    "60 implicit steps of Robertson's stiff kinetics, Newton inside, f32[24,3]",
    loops=True,
)
def _robertson_implicit() -> Built:
    def rate(y: Array) -> Array:
        a, b, c = y
        first, second, third = 0.04 * a, 1e2 * b * c, 3e3 * b * b
        return jnp.stack([-first + second, first - second - third, third])

    def solve3(m: Array, r: Array) -> Array:
        cross = jnp.stack([jnp.cross(m[1], m[2]), jnp.cross(m[2], m[0]), jnp.cross(m[0], m[1])])
        return cross.T @ r / jnp.sum(m[0] * cross[0])

    def advance(y: Array) -> Tree:
        def step(y: Array, _: None) -> tuple[Array, Array]:
            def newton(_: Array, z: Array) -> Array:
                matrix = jnp.eye(3) - 0.02 * jax.jacfwd(rate)(z)
                return z - solve3(matrix, z - y - 0.02 * rate(z))

            y = lax.fori_loop(0, 3, newton, y)
            return y, y

        return lax.scan(step, y, length=60)

    start = np.tile(np.array([1.0, 0.0, 0.0], np.float32), (24, 1)) + Draws(3).uniform(
        24, 3, high=0.1
    )
    return jax.vmap(advance), (start,)


@ODE.program(
    "euler_maruyama_paths",
    "250 Euler-Maruyama steps of 256 double-well paths with threefry noise",
    loops=True,
)
def _euler_maruyama_paths() -> Built:
    def run(x: Array, seed: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            x, key = carry
            key, fresh = jax.random.split(key)
            x = x + 0.01 * (x - x**3) + 0.05 * jax.random.normal(fresh, x.shape)
            return (x, key), jnp.mean(x)

        return lax.scan(step, (x, jax.random.key(seed)), length=250)[1]

    return run, (Draws(4).normal(256, scale=0.2), np.uint32(3))


@ODE.program("kuramoto_heun", "200 Heun steps of 48 coupled phase oscillators", loops=True)
def _kuramoto_heun() -> Built:
    draws = Draws(5)

    def run(phase: Array, own: Array) -> Tree:
        def rate(phase: Array) -> Array:
            return own + 1.5 * jnp.mean(jnp.sin(phase[None] - phase[:, None]), axis=1)

        def step(phase: Array, _: None) -> tuple[Array, Array]:
            first = rate(phase)
            phase = phase + 0.01 * (first + rate(phase + 0.02 * first))
            return phase, jnp.hypot(jnp.mean(jnp.cos(phase)), jnp.mean(jnp.sin(phase)))

        return lax.scan(step, phase, length=200)

    return run, (draws.uniform(48, high=6.0), draws.normal(48, scale=0.5))


@ODE.program(
    "izhikevich_network",
    "300 steps of 64 spiking neurons with smooth resets and synapses",
    loops=True,
    chaotic=True,
)
def _izhikevich_network() -> Built:
    draws = Draws(6)

    def run(weights: Array, drive: Array) -> Tree:
        def step(carry: Tree, push: Array) -> tuple[Tree, Array]:
            v, u, trace = carry
            v = v + 0.25 * (0.04 * v**2 + 5.0 * v + 140.0 - u + push + weights @ trace)
            u = u + 0.005 * (0.2 * v - u)
            spike = jax.nn.sigmoid((v - 30.0) / 2.0)
            v = jnp.clip(v + spike * (-65.0 - v), -90.0, 60.0)
            return (v, u + 8.0 * spike, 0.95 * trace + spike), jnp.mean(spike)

        start = (jnp.full(64, -65.0), jnp.full(64, -13.0), jnp.zeros(64))
        return lax.scan(step, start, drive)

    return run, (draws.normal(64, 64, scale=0.2), 5.0 + draws.normal(300, 64))


def _gravity(place: Array, mass: Array) -> Array:
    gap = place[None] - place[:, None]
    inverse = lax.rsqrt(jnp.sum(gap**2, axis=-1) + 0.05) ** 3
    return jnp.einsum("ijd,ij,j->id", gap, inverse, mass)


@PARTICLES.program("nbody_leapfrog", "40 leapfrog steps of 96 gravitating bodies", loops=True)
def _nbody_leapfrog() -> Built:
    draws = Draws(7)

    def run(place: Array, speed: Array, mass: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            place, speed, pull = carry
            half = speed + 0.005 * pull
            place = place + 0.01 * half
            pull = _gravity(place, mass)
            speed = half + 0.005 * pull
            return (place, speed, pull), 0.5 * jnp.sum(mass[:, None] * speed**2)

        return lax.scan(step, (place, speed, _gravity(place, mass)), length=40)

    return run, (
        draws.normal(96, 3),
        draws.normal(96, 3, scale=0.1),
        draws.uniform(96, low=0.2, high=1.0) / 96,
    )


def _pair_energy(place: Array) -> Array:
    """Lennard-Jones energy of f32[N, 3] in a periodic box of side 8, smoothed at contact."""
    gap = place[:, None] - place[None]
    gap = gap - 8.0 * jnp.round(gap / 8.0)
    square = jnp.sum(gap**2, axis=-1) + jnp.eye(place.shape[0]) * 100.0
    inverse = 1.0 / (square + 0.3) ** 3
    return 2.0 * jnp.sum(inverse**2 - inverse)


@PARTICLES.program(
    "lennard_jones_verlet",
    "25 velocity-Verlet steps of 64 atoms, forces by gradient",
    gradient=True,
    loops=True,
)
def _lennard_jones_verlet() -> Built:
    draws = Draws(8)
    grid = np.stack(np.meshgrid(*[np.arange(4)] * 3), axis=-1).reshape(-1, 3).astype(np.float32)

    def run(place: Array, speed: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            place, speed, force = carry
            place = place + 0.005 * speed + 0.5 * 0.005**2 * force
            energy, slope = jax.value_and_grad(_pair_energy)(place)
            return (place, speed - 0.0025 * (slope - force), -slope), energy

        start = (place, speed, -jax.grad(_pair_energy)(place))
        return lax.scan(step, start, length=25)

    return run, (2.0 * grid + draws.normal(64, 3, scale=0.05), draws.normal(64, 3, scale=0.1))


@PARTICLES.program(
    "boids_flock", "50 steps of 80 boids: cohesion, alignment, separation", loops=True, chaotic=True
)
def _boids_flock() -> Built:
    draws = Draws(9)

    def run(place: Array, speed: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, None]:
            place, speed = carry
            gap = place[None] - place[:, None]
            square = jnp.sum(gap**2, axis=-1)
            weight = jnp.exp(-square)
            count = jnp.sum(weight, axis=1, keepdims=True)
            centre = jnp.einsum("ij,ijd->id", weight, gap) / count
            heading = weight @ speed / count - speed
            apart = jnp.einsum("ij,ijd->id", jnp.exp(-8.0 * square), gap)
            speed = speed + 0.05 * centre + 0.1 * heading - 0.2 * apart
            speed = speed / (jnp.linalg.norm(speed, axis=-1, keepdims=True) + 0.1)
            return (jnp.mod(place + 0.05 * speed, 4.0), speed), None

        return lax.scan(step, (place, speed), length=50)[0]

    return run, (draws.uniform(80, 2, high=4.0), draws.normal(80, 2))


def _density(place: Array) -> tuple[Array, Array]:
    gap = place[:, None] - place[None]
    square = jnp.sum(gap**2, axis=-1)
    return jnp.sum(jnp.maximum(0.25 - square, 0.0) ** 3, axis=1) * 100.0, gap


@PARTICLES.program("smoothed_fluid", "30 steps of 100 smoothed-particle fluid elements", loops=True)
def _smoothed_fluid() -> Built:
    draws = Draws(10)

    def run(place: Array, speed: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            place, speed = carry
            density, gap = _density(place)
            distance = jnp.sqrt(jnp.sum(gap**2, axis=-1) + 1e-4)
            slope = jnp.maximum(0.5 - distance, 0.0) ** 2 / distance
            shared = (density[:, None] + density[None] - 2.0) / (density[None] + 0.05)
            push = jnp.sum((shared * slope)[..., None] * gap, axis=1)
            drag = jnp.maximum(0.5 - distance, 0.0) @ speed - speed
            speed = speed + 0.002 * (push + 0.1 * drag - jnp.array([0.0, 1.0]))
            place = place + 0.002 * speed
            inside = (place > 0.0) & (place < 2.0)
            return (jnp.clip(place, 0.0, 2.0), jnp.where(inside, speed, -0.5 * speed)), jnp.mean(
                density
            )

        return lax.scan(step, (place, speed), length=30)

    return run, (draws.uniform(100, 2, low=0.1, high=1.9), draws.normal(100, 2, scale=0.1))


@PARTICLES.program(
    "rope_constraints", "verlet rope of 40 links, 20 relaxations in each of 60 steps", loops=True
)
def _rope_constraints() -> Built:
    def run(place: Array) -> Array:
        def relax(_: Array, place: Array) -> Array:
            gap = place[1:] - place[:-1]
            fix = 0.5 * gap * (1.0 - 0.1 * lax.rsqrt(jnp.sum(gap**2, -1, keepdims=True) + 1e-9))
            moved = place.at[1:].add(-fix).at[:-1].add(fix)
            return moved.at[0].set(place[0])

        def step(carry: Tree, _: None) -> tuple[Tree, None]:
            place, before = carry
            fresh = place + 0.99 * (place - before) + jnp.array([0.0, -0.001])
            return (lax.fori_loop(0, 20, relax, fresh), place), None

        return lax.scan(step, (place, place), length=60)[0][0]

    return run, (np.stack([0.1 * np.arange(40), np.zeros(40)], axis=-1).astype(np.float32),)


@PARTICLES.program(
    "particle_in_cell",
    "40 steps of 1024 charges on a grid of 64: deposit, solve by FFT, push",
    loops=True,
)
def _particle_in_cell() -> Built:
    draws = Draws(11)

    def run(place: Array, speed: Array) -> Tree:
        wave = 2.0 * jnp.pi * jnp.fft.rfftfreq(64)

        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            place, speed = carry
            # Smooth deposit on all cells: no rounding decides a cell.
            gap = jnp.mod(place[:, None] - jnp.arange(64.0) + 32.0, 64.0) - 32.0
            shape = jnp.maximum(1.0 - jnp.abs(gap), 0.0)
            charge = jnp.sum(shape, axis=0) / 16.0 - 1.0
            spectrum = jnp.fft.rfft(charge) / jnp.maximum(wave**2, 1e-3)
            field = jnp.fft.irfft(-1j * wave * spectrum, 64)
            speed = speed + 0.05 * shape @ field
            return (jnp.mod(place + 0.05 * speed, 64.0), speed), jnp.sum(field**2)

        return lax.scan(step, (place, speed), length=40)

    return run, (draws.uniform(1024, high=64.0), draws.normal(1024))
