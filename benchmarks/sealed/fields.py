"""Fields on grids: conservation laws, diffusion, and the Krylov solvers they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.sealed.common import Program, normal, uniform

__all__ = ["WORKLOADS"]


def rod_conductivity() -> Program:
    """Gradient by conductivity of the misfit of a heated rod's temperatures to measurements."""
    steps = 60

    def misfit(log_k: Any, start: Any, heating: Any, measured: Any) -> Any:
        between = jnp.exp(0.5 * (log_k[1:] + log_k[:-1]))

        def step(u: Any, heat: Any) -> Any:
            flux = between * jnp.diff(u)
            spread = jnp.pad(flux, (0, 1)) - jnp.pad(flux, (1, 0))
            loss = jnp.zeros_like(u).at[-1].set(0.1 * u[-1])
            u = u + 0.2 * (spread - loss).at[0].add(heat)
            return u, u[::4]

        _, seen = lax.scan(step, start, heating)
        rough = jnp.sum(jnp.diff(log_k) ** 2)
        return jnp.mean((seen - measured) ** 2) + 1e-3 * rough

    def fn(log_k: Any, start: Any, heating: Any, measured: Any) -> Any:
        return jax.value_and_grad(misfit)(log_k, start, heating, measured)

    heating = 1 + jnp.sin(jnp.arange(steps) / 9.0)
    measured = 0.5 + 0.1 * normal(1, steps, 8)
    return fn, (0.2 * normal(2, 32), uniform(3, 32), heating, measured)


def _interpolate(field: Any, rows: Any, columns: Any) -> Any:
    """Bilinear values of a periodic field."""
    height, width = field.shape
    r, c = jnp.floor(rows), jnp.floor(columns)
    fr, fc = rows - r, columns - c
    r0, c0 = r.astype(jnp.int32) % height, c.astype(jnp.int32) % width
    r1, c1 = (r0 + 1) % height, (c0 + 1) % width
    top = (1 - fc) * field[r0, c0] + fc * field[r0, c1]
    bottom = (1 - fc) * field[r1, c0] + fc * field[r1, c1]
    return (1 - fr) * top + fr * bottom


def dye_advection() -> Program:
    """Dye carried by a steady swirl, traced backwards by the midpoint rule, with its total kept."""

    def fn(dye: Any, stream: Any, dt: Any) -> Any:
        size = dye.shape[0]
        rows, columns = jnp.mgrid[0:size, 0:size].astype(dye.dtype)
        down = 0.5 * (jnp.roll(stream, -1, 1) - jnp.roll(stream, 1, 1))
        right = -0.5 * (jnp.roll(stream, -1, 0) - jnp.roll(stream, 1, 0))
        half_rows = rows - 0.5 * dt * down
        half_columns = columns - 0.5 * dt * right
        back_rows = rows - dt * _interpolate(down, half_rows, half_columns)
        back_columns = columns - dt * _interpolate(right, half_rows, half_columns)
        total = dye.sum()

        def step(dye: Any, _: Any) -> Any:
            dye = _interpolate(dye, back_rows, back_columns)
            return dye * (total / dye.sum()), dye.max()

        return lax.scan(step, dye, None, length=4)

    size = 40
    x = 2 * np.pi * np.arange(size) / size
    stream = jnp.asarray(3 * np.sin(x)[:, None] * np.cos(x)[None, :])
    return fn, (uniform(4, size, size), stream, jnp.asarray(1.3))


def darcy_pressure() -> Program:
    """Pressure in a porous rock by conjugate gradients with a diagonal preconditioner."""
    size = 48

    def fn(permeability: Any, source: Any, tolerance: Any) -> Any:
        padded = jnp.pad(permeability, 1, mode="edge")
        across = 2 / (1 / padded[1:-1, 1:] + 1 / padded[1:-1, :-1])
        down = 2 / (1 / padded[1:, 1:-1] + 1 / padded[:-1, 1:-1])
        diagonal = across[:, 1:] + across[:, :-1] + down[1:] + down[:-1]

        def operate(p: Any) -> Any:
            wide = jnp.pad(p, 1)
            sides = across[:, 1:] * wide[1:-1, 2:] + across[:, :-1] * wide[1:-1, :-2]
            ends = down[1:] * wide[2:, 1:-1] + down[:-1] * wide[:-2, 1:-1]
            return diagonal * p - sides - ends

        def improve(carry: Any) -> Any:
            x, r, direction, rz, count = carry
            moved = operate(direction)
            alpha = rz / jnp.vdot(direction, moved)
            x, r = x + alpha * direction, r - alpha * moved
            z = r / diagonal
            new = jnp.vdot(r, z)
            return x, r, z + new / rz * direction, new, count + 1

        def unfinished(carry: Any) -> Any:
            return (jnp.linalg.norm(carry[1]) > tolerance) & (carry[4] < 400)

        z = source / diagonal
        start = (jnp.zeros_like(source), source, z, jnp.vdot(source, z), 0)
        pressure, *_ = lax.while_loop(unfinished, improve, start)
        return pressure, -across[:, 1:-1] * jnp.diff(pressure, axis=1)

    permeability = jnp.exp(0.7 * normal(5, size, size))
    source = jnp.zeros((size, size)).at[8, 9].set(1.0).at[37, 40].set(-1.0)
    return fn, (permeability, source, jnp.asarray(2e-5))


def vibration_modes() -> Program:
    """Lowest frequencies of a membrane, by Lanczos on the inverse with full orthogonalisation."""
    size, steps = 14, 30

    def fn(mass: Any, stiffness: Any, start: Any) -> Any:
        count = size * size
        scale = 1 / jnp.sqrt(mass)
        factor = jnp.linalg.cholesky(scale[:, None] * stiffness * scale[None, :])
        basis = jnp.zeros((steps + 1, count)).at[0].set(start / jnp.linalg.norm(start))

        def grow(k: Any, carry: Any) -> Any:
            basis, alphas, betas = carry
            w = jax.scipy.linalg.cho_solve((factor, True), basis[k])
            alpha = jnp.dot(w, basis[k])
            for _ in range(2):
                w = w - basis.T @ (basis @ w)
            beta = jnp.linalg.norm(w)
            basis = basis.at[k + 1].set(w / beta)
            return basis, alphas.at[k].set(alpha), betas.at[k].set(beta)

        empty = jnp.zeros(steps)
        _, alphas, betas = lax.fori_loop(0, steps, grow, (basis, empty, empty))
        tridiagonal = jnp.diag(alphas) + jnp.diag(betas[:-1], 1) + jnp.diag(betas[:-1], -1)
        values = jnp.linalg.eigvalsh(tridiagonal)
        return 1 / jnp.sqrt(values[-4:])

    line = 2 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
    stiffness = np.kron(line, np.eye(size)) + np.kron(np.eye(size), line)
    mass = 1 + 0.3 * uniform(6, size * size)
    return fn, (mass, jnp.asarray(stiffness), normal(7, size * size))


def _gas_flux(state: Any) -> tuple[Any, Any]:
    """The flux of a gas and its fastest signals."""
    density, momentum, energy = state
    speed = momentum / density
    pressure = 0.4 * (energy - 0.5 * momentum * speed)
    sound = jnp.sqrt(1.4 * pressure / density)
    flux = jnp.stack([momentum, momentum * speed + pressure, (energy + pressure) * speed])
    return flux, jnp.stack([speed - sound, speed + sound])


def _limited(state: Any) -> Any:
    before, after = state[:, 1:-1] - state[:, :-2], state[:, 2:] - state[:, 1:-1]
    smaller = jnp.where(jnp.abs(before) < jnp.abs(after), before, after)
    return jnp.where(before * after > 0, smaller, 0.0)


def shock_tube() -> Program:
    """Gas in a tube after a diaphragm breaks: finite volumes, limited slopes and adaptive steps."""
    cells = 400

    def change(state: Any) -> Any:
        padded = jnp.pad(state, ((0, 0), (2, 2)), mode="edge")
        slope = 0.5 * _limited(padded)
        middle = padded[:, 1:-1]
        left, right = (middle + slope)[:, :-1], (middle - slope)[:, 1:]
        flux_left, signal_left = _gas_flux(left)
        flux_right, signal_right = _gas_flux(right)
        low = jnp.minimum(jnp.minimum(signal_left[0], signal_right[0]), 0.0)
        high = jnp.maximum(jnp.maximum(signal_left[1], signal_right[1]), 0.0)
        mixed = high * flux_left - low * flux_right + low * high * (right - left)
        flux = mixed / (high - low)
        return -cells * jnp.diff(flux, axis=1)

    def fn(state: Any, end: Any, courant: Any) -> Any:
        def advance(carry: Any) -> Any:
            state, t = carry
            fastest = jnp.max(jnp.abs(_gas_flux(state)[1]))
            dt = jnp.minimum(courant / (cells * fastest), end - t)
            half = state + dt * change(state)
            return 0.5 * (state + half + dt * change(half)), t + dt

        start = (state, jnp.zeros_like(end))
        state, _ = lax.while_loop(lambda c: c[1] < end - 1e-6, advance, start)
        return state, state[1] / state[0]

    inside = jnp.arange(cells) < cells // 2
    density = jnp.where(inside, 1.0, 0.125) * (1 + 0.02 * jnp.sin(jnp.arange(cells) / 9.0))
    energy = jnp.where(inside, 1.0, 0.1) / 0.4
    state = jnp.stack([density, jnp.zeros(cells), energy])
    return fn, (state, jnp.asarray(0.2), jnp.asarray(0.4))


def _equilibrium(density: Any, flow: Any, directions: Any, weights: Any) -> Any:
    along = jnp.einsum("qd,dxy->qxy", directions, flow)
    square = jnp.sum(flow**2, axis=0)
    series = 1 + 3 * along + 4.5 * along**2 - 1.5 * square
    return weights[:, None, None] * density * series


def channel_flow() -> Program:
    """Flow past a cylinder in a channel, by the lattice Boltzmann method."""
    height, width, steps = 48, 128, 150
    grid = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
    opposite = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])

    def fn(solid: Any, weights: Any, inflow: Any, rate: Any) -> Any:
        directions = jnp.asarray(grid, inflow.dtype)

        def moments(f: Any) -> Any:
            density = f.sum(0)
            return density, jnp.einsum("qd,qxy->dxy", directions, f) / density

        def step(f: Any, _: Any) -> Any:
            density, flow = moments(f)
            flow = flow.at[0, 0].set(inflow).at[1, 0].set(0.0)
            f = f.at[:, -1].set(f[:, -2])
            resting = _equilibrium(density, flow, directions, weights)
            f = f.at[:, 0].set(resting[:, 0])
            collided = f + rate * (resting - f)
            collided = jnp.where(solid, f[opposite], collided)
            moved = [jnp.roll(collided[q], tuple(grid[q]), (0, 1)) for q in range(9)]
            drag = jnp.sum(jnp.where(solid, collided, 0.0) * directions[:, 0, None, None])
            return jnp.stack(moved), drag

        flow = jnp.zeros((2, width, height)).at[0].set(jnp.where(solid, 0.0, inflow))
        start = _equilibrium(jnp.ones((width, height)), flow, directions, weights)
        f, drag = lax.scan(step, start, None, length=steps)
        density, flow = moments(f)
        return density, jnp.where(solid, 0.0, flow), drag

    x, y = np.mgrid[0:width, 0:height]
    solid = ((x - 30) ** 2 + (y - 23) ** 2 < 36) | (y == 0) | (y == height - 1)
    weights = jnp.asarray([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    across = np.arange(height) / (height - 1)
    inflow = jnp.asarray(0.3 * across * (1 - across))
    return fn, (jnp.asarray(solid), weights, inflow, jnp.asarray(1.2))


WORKLOADS: dict[str, Callable[[], Program]] = {
    "rod-conductivity": rod_conductivity,
    "dye-advection": dye_advection,
    "darcy-pressure": darcy_pressure,
    "vibration-modes": vibration_modes,
    "shock-tube": shock_tube,
    "channel-flow": channel_flow,
}
