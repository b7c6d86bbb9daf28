"""Stencils and partial differential equations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree

STENCIL = Family("stencil")
PDE = Family("pde")
FAMILIES = (STENCIL, PDE)


def _roll(x: Array, rows: int, columns: int) -> Array:
    return jnp.roll(x, (rows, columns), (0, 1))


def _laplacian(x: Array) -> Array:
    """Five-point Laplacian of f32[H, W], periodic."""
    return _roll(x, 1, 0) + _roll(x, -1, 0) + _roll(x, 0, 1) + _roll(x, 0, -1) - 4.0 * x


@STENCIL.program("wave_2d", "6 leapfrog steps of the wave equation, written out, f32[384,384]")
def _wave_2d() -> Built:
    def run(now: Array, before: Array, speed: Array) -> Tree:
        for _ in range(6):
            now, before = 2.0 * now - before + 0.2 * speed * _laplacian(now), now
        return now, before

    draws = Draws(0)
    return run, (draws.normal(384, 384), draws.normal(384, 384), draws.uniform(384, 384))


@STENCIL.program(
    "heat_3d_seven_point", "4 steps of a 7-point stencil on f32[64,64,64], fixed border"
)
def _heat_3d_seven_point() -> Built:
    def step(x: Array) -> Array:
        inner = x[1:-1, 1:-1, 1:-1]
        total = x[2:, 1:-1, 1:-1] + x[:-2, 1:-1, 1:-1] + x[1:-1, 2:, 1:-1]
        total += x[1:-1, :-2, 1:-1] + x[1:-1, 1:-1, 2:] + x[1:-1, 1:-1, :-2]
        return x.at[1:-1, 1:-1, 1:-1].set(inner + 0.1 * (total - 6.0 * inner))

    def run(x: Array) -> Array:
        for _ in range(4):
            x = step(x)
        return x

    return run, (Draws(1).normal(64, 64, 64),)


@STENCIL.program("jacobi_poisson", "50 Jacobi sweeps with residual on f32[128,128]", loops=True)
def _jacobi_poisson() -> Built:
    def run(x: Array, source: Array) -> Tree:
        def sweep(carry: Tree, _: None) -> tuple[Tree, Array]:
            p = jnp.pad(carry, 1)
            near = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
            fresh = 0.25 * (near - source)
            return fresh, jnp.max(jnp.abs(fresh - carry))

        return lax.scan(sweep, x, length=50)

    return run, (Draws(2).normal(128, 128), Draws(3).normal(128, 128, scale=0.1))


@STENCIL.program(
    "gray_scott",
    "30 steps of Gray-Scott reaction-diffusion with a 9-point stencil, f32[96,96]",
    loops=True,
)
def _gray_scott() -> Built:
    def spread(x: Array) -> Array:
        corner = _roll(x, 1, 1) + _roll(x, 1, -1) + _roll(x, -1, 1) + _roll(x, -1, -1)
        return 0.2 * (_laplacian(x) + 4.0 * x) + 0.05 * corner - x

    def run(u: Array, v: Array) -> Tree:
        def step(_: Array, carry: Tree) -> Tree:
            u, v = carry
            react = u * v * v
            fresh = u + 0.8 * spread(u) - react + 0.04 * (1.0 - u)
            return fresh, v + 0.4 * spread(v) + react - 0.1 * v

        return lax.fori_loop(0, 30, step, (u, v))

    draws = Draws(4)
    return run, (draws.uniform(96, 96), 0.3 * draws.uniform(96, 96))


@STENCIL.program(
    "anisotropic_diffusion", "15 steps of Perona-Malik diffusion on f32[160,160]", loops=True
)
def _anisotropic_diffusion() -> Built:
    def run(image: Array) -> Array:
        def step(_: Array, x: Array) -> Array:
            gaps = [_roll(x, *by) - x for by in ((1, 0), (-1, 0), (0, 1), (0, -1))]
            return x + 0.2 * sum((jnp.exp(-((g / 0.5) ** 2)) * g for g in gaps), jnp.zeros_like(x))

        out: Array = lax.fori_loop(0, 15, step, image)
        return out

    return run, (Draws(5).normal(160, 160),)


@STENCIL.program(
    "stencil_adjoint",
    "gradient of the energy after 8 heat steps in the start and the coefficient, f32[128,128]",
    gradient=True,
)
def _stencil_adjoint() -> Built:
    def energy(x: Array, coefficient: Array) -> Array:
        for _ in range(8):
            x = x + 0.2 * coefficient * _laplacian(x)
        return jnp.mean(x**2)

    draws = Draws(6)
    return jax.value_and_grad(energy, argnums=(0, 1)), (
        draws.normal(128, 128),
        draws.uniform(128, 128),
    )


@PDE.program("burgers_godunov", "200 upwind steps of Burgers' equation, f32[512]", loops=True)
def _burgers_godunov() -> Built:
    def run(u: Array) -> Tree:
        def step(u: Array, _: None) -> tuple[Array, Array]:
            right = jnp.roll(u, -1)
            flux = jnp.maximum(jnp.maximum(u, 0.0) ** 2, jnp.minimum(right, 0.0) ** 2) / 2.0
            u = u - 0.2 * (flux - jnp.roll(flux, 1)) + 0.05 * (right - 2.0 * u + jnp.roll(u, 1))
            return u, jnp.sum(u**2)

        return lax.scan(step, u, length=200)

    return run, (np.sin(np.linspace(0.0, 6.28, 512, dtype=np.float32)),)


@PDE.program(
    "shallow_water",
    "25 Lax-Friedrichs steps of the shallow-water equations, f32[3,96,96]",
    loops=True,
)
def _shallow_water() -> Built:
    def run(state: Array) -> Array:
        def step(_: Array, state: Array) -> Array:
            h, hu, hv = state
            u, v = hu / h, hv / h
            pressure = 0.5 * 9.8 * h**2
            fx = jnp.stack([hu, hu * u + pressure, hu * v])
            fy = jnp.stack([hv, hu * v, hv * v + pressure])
            mean = 0.25 * sum((jnp.roll(state, s, a) for a in (1, 2) for s in (1, -1)), 0.0 * state)
            dx = jnp.roll(fx, -1, 1) - jnp.roll(fx, 1, 1)
            dy = jnp.roll(fy, -1, 2) - jnp.roll(fy, 1, 2)
            return mean - 0.03 * (dx + dy)

        out: Array = lax.fori_loop(0, 25, step, state)
        return out

    draws = Draws(7)
    depth = 1.0 + 0.2 * draws.uniform(1, 96, 96)
    return run, (np.concatenate([depth, draws.normal(2, 96, 96, scale=0.02)]),)


@PDE.program(
    "lattice_boltzmann",
    "20 D2Q9 lattice-Boltzmann steps around an obstacle, f32[9,64,64]",
    loops=True,
)
def _lattice_boltzmann() -> Built:
    moves = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
    weights = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
    back = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])

    def run(f: Array, wall: Array) -> Tree:
        directions = jnp.array(moves, jnp.float32)

        def step(f: Array, _: None) -> tuple[Array, Array]:
            f = jnp.stack([_roll(f[i], *move) for i, move in enumerate(moves)])
            f = jnp.where(wall, f[back], f)
            density = jnp.sum(f, axis=0)
            flow = jnp.einsum("id,ixy->dxy", directions, f) / density
            along = jnp.einsum("id,dxy->ixy", directions, flow)
            square = jnp.sum(flow**2, axis=0)
            rest = (
                weights[:, None, None]
                * density
                * (1.0 + 3.0 * along + 4.5 * along**2 - 1.5 * square)
            )
            return jnp.where(wall, f, f + 0.8 * (rest - f)), jnp.mean(square)

        return lax.scan(step, f, length=20)

    wall = np.zeros((64, 64), bool)
    wall[28:36, 20:28] = True
    return run, (weights[:, None, None] * (1.0 + 0.05 * Draws(8).uniform(9, 64, 64)), wall)


@PDE.program(
    "vorticity_spectral",
    "10 pseudo-spectral steps of two-dimensional turbulence, f32[64,64]",
    loops=True,
)
def _vorticity_spectral() -> Built:
    def run(vorticity: Array) -> Array:
        kx = 64.0 * jnp.fft.fftfreq(64)[:, None]
        ky = 64.0 * jnp.fft.rfftfreq(64)[None]
        square = kx**2 + ky**2
        inverse = jnp.where(square > 0, 1.0 / jnp.maximum(square, 1.0), 0.0)
        keep = (jnp.abs(kx) < 21) & (ky < 21)

        def rate(w: Array) -> Array:
            stream = w * inverse
            parts = (1j * ky * stream, -1j * kx * stream, 1j * kx * w, 1j * ky * w)
            u, v, wx, wy = (jnp.fft.irfft2(part) for part in parts)
            return jnp.where(keep, -jnp.fft.rfft2(u * wx + v * wy), 0.0) - 0.001 * square * w

        def step(_: Array, w: Array) -> Array:
            middle = w + 0.005 * rate(w)
            return w + 0.01 * rate(middle)

        return jnp.fft.irfft2(lax.fori_loop(0, 10, step, jnp.fft.rfft2(vorticity)))

    return run, (Draws(9).normal(64, 64),)


@PDE.program("multigrid_v_cycle", "two V-cycles over four grids, f32[64,64]")
def _multigrid_v_cycle() -> Built:
    def smooth(x: Array, source: Array, count: int) -> Array:
        for _ in range(count):
            x = x + 0.2 * (_laplacian(x) - source)
        return x

    def cycle(x: Array, source: Array) -> Array:
        x = smooth(x, source, 2)
        if x.shape[0] > 8:
            side = x.shape[0] // 2
            residual = source - _laplacian(x)
            coarse = jnp.mean(residual.reshape(side, 2, side, 2), axis=(1, 3))
            change = cycle(jnp.zeros_like(coarse), 4.0 * coarse)
            x = x + jnp.repeat(jnp.repeat(change, 2, axis=0), 2, axis=1)
        return smooth(x, source, 2)

    def run(x: Array, source: Array) -> Array:
        return cycle(cycle(x, source), source)

    source = Draws(10).normal(64, 64)
    return run, (np.zeros((64, 64), np.float32), source - source.mean())


@PDE.program(
    "crank_nicolson_thomas",
    "30 implicit heat steps by the Thomas algorithm, 64 lines of 96",
    loops=True,
)
def _crank_nicolson_thomas() -> Built:
    def solve(rhs: Array) -> Array:
        """Tridiagonal (-0.25, 1.5, -0.25) systems along the first axis of f32[N, B]."""

        def down(carry: Tree, d: Array) -> tuple[Tree, Tree]:
            upper, value = carry
            pivot = 1.5 + 0.25 * upper
            upper, value = -0.25 / pivot, (d + 0.25 * value) / pivot
            return (upper, value), (upper, value)

        zeros = jnp.zeros(rhs.shape[1])
        _, swept = lax.scan(down, (zeros, zeros), rhs)

        def up(x: Array, now: Tree) -> tuple[Array, Array]:
            x = now[1] - now[0] * x
            return x, x

        out: Array = lax.scan(up, zeros, swept, reverse=True)[1]
        return out

    def run(x: Array) -> Array:
        def step(_: Array, x: Array) -> Array:
            padded = jnp.pad(x, ((1, 1), (0, 0)))
            return solve(0.5 * x + 0.25 * (padded[2:] + padded[:-2]))

        out: Array = lax.fori_loop(0, 30, step, x)
        return out

    return run, (Draws(11).normal(96, 64),)


@PDE.program(
    "maxwell_fdtd",
    "40 Yee steps with a source and damped border, three f32[96,96] fields",
    loops=True,
)
def _maxwell_fdtd() -> Built:
    def run(fields: Tree, loss: Array) -> Tree:
        def step(time: Array, fields: Tree) -> Tree:
            ez, hx, hy = fields
            hx = hx - 0.5 * (jnp.roll(ez, -1, 1) - ez)
            hy = hy + 0.5 * (jnp.roll(ez, -1, 0) - ez)
            ez = loss * (ez + 0.5 * (hy - jnp.roll(hy, 1, 0) - hx + jnp.roll(hx, 1, 1)))
            return ez.at[48, 48].add(jnp.sin(0.3 * time.astype(jnp.float32))), hx, hy

        return lax.fori_loop(0, 40, step, fields)

    edge = np.minimum(np.arange(96), np.arange(95, -1, -1))
    loss = np.minimum.outer(edge, edge).clip(0, 8) / 8.0 * 0.1 + 0.9
    return run, (
        tuple(Draws(12).normal(96, 96, scale=0.01) for _ in range(3)),
        loss.astype(np.float32),
    )


@PDE.program(
    "cahn_hilliard_grad",
    "gradient of the free energy after 10 Cahn-Hilliard steps, f32[48,48]",
    gradient=True,
    loops=True,
)
def _cahn_hilliard_grad() -> Built:
    def energy(c: Array, mobility: Array) -> Array:
        def step(c: Array, _: None) -> tuple[Array, None]:
            potential = c**3 - c - 0.5 * _laplacian(c)
            return c + 0.02 * mobility * _laplacian(potential), None

        c = lax.scan(step, c, length=10)[0]
        return jnp.mean(0.25 * (c**2 - 1.0) ** 2)

    return jax.value_and_grad(energy, argnums=(0, 1)), (
        Draws(13).normal(48, 48, scale=0.1),
        np.float32(1.0),
    )


@PDE.program(
    "eikonal_sweeping", "60 fast-marching style relaxations of travel times, f32[96,96]", loops=True
)
def _eikonal_sweeping() -> Built:
    def run(slowness: Array) -> Array:
        def sweep(_: Array, t: Array) -> Array:
            p = jnp.pad(t, 1, constant_values=1e3)
            a = jnp.minimum(p[2:, 1:-1], p[:-2, 1:-1])
            b = jnp.minimum(p[1:-1, 2:], p[1:-1, :-2])
            low, high = jnp.minimum(a, b), jnp.maximum(a, b)
            both = 0.5 * (a + b + jnp.sqrt(jnp.maximum(2.0 * slowness**2 - (a - b) ** 2, 0.0)))
            return jnp.minimum(t, jnp.where(high - low > slowness, low + slowness, both))

        start = jnp.full(slowness.shape, 1e3).at[10, 20].set(0.0)
        out: Array = lax.fori_loop(0, 60, sweep, start)
        return out

    return run, (Draws(14).uniform(96, 96, low=0.5, high=1.5),)
