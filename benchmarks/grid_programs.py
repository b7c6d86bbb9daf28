"""Simulators on grids as people write them: stencils by slices, by `roll` and by `pad`, in loops.

    graphopt evaluate --workloads benchmarks.grid_programs:WORKLOADS --policy shipped --zero-shot

``WORKLOADS`` has each program at three sizes: arrays of a first-level cache, of a second-level cache, larger.
A builder returns ``(fn, args)``: a pure function and arrays made from fixed seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Program = tuple[Callable[..., Any], tuple[Any, ...]]

INSIDE: Final = (slice(1, -1), slice(1, -1))
"""A plane without its border."""


def _uniform(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).random(shape), jnp.float32)


def _fields(count: int, *shape: int) -> tuple[jax.Array, ...]:
    return tuple(_uniform(*shape, seed=seed) for seed in range(count))


def around(u: jax.Array) -> jax.Array:
    """Sum of the four neighbours, inside the border."""
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]


def curvature(u: jax.Array) -> jax.Array:
    """Five-point Laplacian, inside the border."""
    return around(u) - 4 * u[INSIDE]


def rolled_curvature(u: jax.Array) -> jax.Array:
    """Five-point Laplacian of a periodic plane."""
    rows = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0)
    return rows + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u


def padded_curvature(u: jax.Array, mode: str) -> jax.Array:
    """Five-point Laplacian of a plane with something around it."""
    return around(jnp.pad(u, 1, mode=mode)) - 4 * u


def _repeat(step: Callable[[Any], Any], steps: int) -> Callable[..., Any]:
    """`steps` times a step of all arrays."""

    def run(*fields: Any) -> Any:
        return lax.fori_loop(0, steps, lambda _, carried: step(carried), fields)

    return run


def electric_plane(size: int, steps: int) -> Program:
    """Finite differences in the time domain: the fields of a plane, and a source."""

    def run(e: jax.Array, hx: jax.Array, hy: jax.Array) -> Any:
        def step(i: Any, fields: Any) -> Any:
            e, hx, hy = fields
            hx = hx.at[:, :-1].add(-0.5 * (e[:, 1:] - e[:, :-1]))
            hy = hy.at[:-1, :].add(0.5 * (e[1:] - e[:-1]))
            curl = hy[INSIDE] - hy[:-2, 1:-1] - hx[INSIDE] + hx[1:-1, :-2]
            e = e.at[INSIDE].add(0.5 * curl)
            return e.at[size // 2, size // 2].add(jnp.sin(0.1 * i)), hx, hy

        return lax.fori_loop(0, steps, step, (e, hx, hy))

    return run, _fields(3, size, size)


def electric_line(size: int, steps: int) -> Program:
    """The same along a line."""

    def run(e: jax.Array, h: jax.Array) -> Any:
        def step(i: Any, fields: Any) -> Any:
            e, h = fields
            h = h.at[:-1].add(0.5 * (e[1:] - e[:-1]))
            e = e.at[1:].add(0.5 * (h[1:] - h[:-1]))
            return e.at[size // 2].add(jnp.exp(-0.01 * (i - 30.0) ** 2)), h

        return lax.fori_loop(0, steps, step, (e, h))

    return run, _fields(2, size)


def cavity(size: int, steps: int) -> Program:
    """Flow under a moving lid: ten sweeps of pressure, then two velocities with their borders."""
    dt, dx, viscosity = 1e-3, 0.02, 0.1

    def pressure(p: jax.Array, source: jax.Array) -> jax.Array:
        p = p.at[INSIDE].set(0.25 * (around(p) - dx * dx * source))
        p = p.at[:, -1].set(p[:, -2]).at[0].set(p[1])
        return p.at[:, 0].set(p[:, 1]).at[-1].set(0.0)

    def velocity(w: jax.Array, u: jax.Array, v: jax.Array, slope: jax.Array) -> jax.Array:
        along = u[INSIDE] * (w[INSIDE] - w[1:-1, :-2]) + v[INSIDE] * (w[INSIDE] - w[:-2, 1:-1])
        change = viscosity / dx * curvature(w) - along - slope / 2
        w = w.at[INSIDE].add(dt / dx * change)
        return w.at[0].set(0.0).at[:, 0].set(0.0).at[:, -1].set(0.0).at[-1].set(0.0)

    def step(fields: Any) -> Any:
        u, v, p = fields
        source = (u[1:-1, 2:] - u[1:-1, :-2] + v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dx * dt)
        p = lax.fori_loop(0, 10, lambda _, p: pressure(p, source), p)
        moved = velocity(u, u, v, p[1:-1, 2:] - p[1:-1, :-2]).at[-1].set(1.0)
        return moved, velocity(v, u, v, p[2:, 1:-1] - p[:-2, 1:-1]), p

    return _repeat(step, max(1, steps // 10)), _fields(3, size, size)


def reaction(size: int, steps: int) -> Program:
    """Gray and Scott's two reagents inside a border."""

    def step(fields: Any) -> Any:
        u, v = fields
        rate = u[INSIDE] * v[INSIDE] ** 2
        u = u.at[INSIDE].add(0.16 * curvature(u) - rate + 0.06 * (1 - u[INSIDE]))
        return u, v.at[INSIDE].add(0.08 * curvature(v) + rate - 0.122 * v[INSIDE])

    return _repeat(step, steps), _fields(2, size, size)


def rolled_reaction(size: int, steps: int) -> Program:
    """The same on a periodic plane."""

    def step(fields: Any) -> Any:
        u, v = fields
        rate = u * v * v
        u, v = (
            u + 0.16 * rolled_curvature(u) - rate + 0.06 * (1 - u),
            v + 0.08 * rolled_curvature(v) + rate - 0.122 * v,
        )
        return u, v

    return _repeat(step, steps), _fields(2, size, size)


def shallow_water(size: int, steps: int) -> Program:
    """Height and two velocities on a staggered grid."""

    def step(fields: Any) -> Any:
        h, u, v = fields
        u = u.at[1:, :].add(-0.1 * (h[1:] - h[:-1]))
        v = v.at[:, 1:].add(-0.1 * (h[:, 1:] - h[:, :-1]))
        flow = u[1:, :-1] - u[:-1, :-1] + v[:-1, 1:] - v[:-1, :-1]
        return h.at[:-1, :-1].add(-0.1 * flow), u, v

    return _repeat(step, steps), _fields(3, size, size)


def red_black(size: int, steps: int) -> Program:
    """Gauss and Seidel's sweeps, every second row and column at a time."""

    def step(fields: Any) -> Any:
        u, b = fields
        mean = u[2::2, 1:-1:2] + u[:-2:2, 1:-1:2] + u[1:-1:2, 2::2] + u[1:-1:2, :-2:2]
        u = u.at[1:-1:2, 1:-1:2].set(0.25 * (mean - b[1:-1:2, 1:-1:2]))
        mean = u[3::2, 2:-1:2] + u[1:-2:2, 2:-1:2] + u[2:-1:2, 3::2] + u[2:-1:2, 1:-2:2]
        return u.at[2:-1:2, 2:-1:2].set(0.25 * (mean - b[2:-1:2, 2:-1:2])), b

    return _repeat(step, steps), _fields(2, size, size)


def distances(size: int, steps: int) -> Program:
    """Distances to the nearest source, by sweeps of the least neighbour plus one."""

    def step(fields: Any) -> Any:
        (d,) = fields
        near = jnp.minimum(d[2:, 1:-1], d[:-2, 1:-1])
        near = jnp.minimum(near, jnp.minimum(d[1:-1, 2:], d[1:-1, :-2]))
        return (d.at[INSIDE].set(jnp.minimum(d[INSIDE], 1 + near)),)

    return _repeat(step, steps), (jnp.where(_uniform(size, size) < 0.01, 0.0, 1e3),)


def heat_gradient(size: int, steps: int) -> Program:
    """Gradient of a norm of what heat becomes, by where it was."""

    def norm(u: jax.Array) -> jax.Array:
        def step(u: jax.Array, _: None) -> tuple[jax.Array, None]:
            return u.at[INSIDE].add(0.1 * curvature(u)), None

        return (lax.scan(step, u, None, length=steps)[0] ** 2).sum()

    return jax.grad(norm), _fields(1, size, size)


def batched_heat(size: int, steps: int) -> Program:
    """Eight planes of heat at once, by `vmap`."""

    def run(u: jax.Array) -> jax.Array:
        return lax.fori_loop(0, steps, lambda _, u: u.at[INSIDE].add(0.1 * curvature(u)), u)

    return jax.vmap(run), (_uniform(8, size, size),)


def rolled_heat(size: int, steps: int) -> Program:
    """Heat on a periodic plane."""
    return _repeat(lambda f: (f[0] + 0.1 * rolled_curvature(f[0]),), steps), _fields(1, size, size)


def padded_heat(size: int, steps: int, mode: str) -> Program:
    """Heat on a plane with something around it."""

    def step(fields: Any) -> Any:
        (u,) = fields
        return (u + 0.1 * padded_curvature(u, mode),)

    return _repeat(step, steps), _fields(1, size, size)


def life(size: int, steps: int) -> Program:
    """Conway's game of life on a periodic plane."""
    places = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]

    def step(fields: Any) -> Any:
        (x,) = fields
        count = sum(jnp.roll(x, place, (0, 1)) for place in places)
        return (((count == 3) | ((x == 1) & (count == 2))).astype(jnp.int32),)

    return _repeat(step, steps), ((_uniform(size, size) > 0.5).astype(jnp.int32),)


def ising(size: int, steps: int) -> Program:
    """Spins on a periodic plane, every second one at a time."""
    colour = np.indices((size, size)).sum(0) % 2

    def run(spins: jax.Array, key: jax.Array) -> Any:
        def step(i: Any, carried: Any) -> Any:
            s, key = carried
            key, used = jax.random.split(key)
            drawn = jax.random.uniform(used, (size, size))
            field = rolled_curvature(s) + 4 * s
            flips = (drawn < jnp.exp(-0.8 * s * field)) & (colour == i % 2)
            return jnp.where(flips, -s, s), key

        return lax.fori_loop(0, steps, step, (spins, key))

    return run, (jnp.where(_uniform(size, size) > 0.5, 1.0, -1.0), jax.random.PRNGKey(0))


def lattice_gas(size: int, steps: int) -> Program:
    """Lattice Boltzmann with nine directions: relaxation, then each moves its way."""
    ways = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    weights = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4

    def step(fields: Any) -> Any:
        (f,) = fields
        density = f.sum(-1)
        ux, uy = (sum(f[..., i] * way[k] for i, way in enumerate(ways)) / density for k in (0, 1))
        moved = []
        for i, (way, weight) in enumerate(zip(ways, weights, strict=True)):
            along = 3 * (way[0] * ux + way[1] * uy)
            at_rest = 1 + along + along * along / 2 - 1.5 * (ux * ux + uy * uy)
            relaxed = f[..., i] - 0.6 * (f[..., i] - weight * density * at_rest)
            moved.append(jnp.roll(relaxed, way, (0, 1)))
        return (jnp.stack(moved, -1),)

    return _repeat(step, max(1, steps // 5)), (_uniform(size, size, 9) + 1,)


def wave(size: int, steps: int) -> Program:
    """A wave in a box; two states change places."""

    def step(fields: Any) -> Any:
        u, before = fields
        inner = u[1:-1, 1:-1, 1:-1]
        near = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1]
        near += u[1:-1, :-2, 1:-1] + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
        new = 2 * inner - before[1:-1, 1:-1, 1:-1] + 0.1 * (near - 6 * inner)
        return before.at[1:-1, 1:-1, 1:-1].set(new), u

    return _repeat(step, steps), _fields(2, size, size, size)


def heat_line(size: int, steps: int) -> Program:
    """Heat along a line, and the history of its middle."""

    def run(u: jax.Array) -> Any:
        def step(u: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            return u.at[1:-1].add(0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])), u[size // 2]

        return lax.scan(step, u, None, length=steps)

    return run, _fields(1, size)


def option(size: int, steps: int) -> Program:
    """Price of an American option by a binomial tree."""

    def run(value: jax.Array, payoff: jax.Array) -> jax.Array:
        def step(i: Any, v: jax.Array) -> jax.Array:
            held = 0.99 * (0.5 * v[1:] + 0.5 * v[:-1])
            return v.at[:-1].set(jnp.maximum(held, payoff[:-1] - 0.01 * i))

        return lax.fori_loop(0, steps, step, value)

    return run, _fields(2, size)


def burgers(size: int, steps: int) -> Program:
    """Burgers' equation on a ring."""

    def step(fields: Any) -> Any:
        (u,) = fields
        back, ahead = jnp.roll(u, 1), jnp.roll(u, -1)
        return (u - 0.1 * u * (u - back) + 0.1 * (back - 2 * u + ahead),)

    return _repeat(step, steps), _fields(1, size)


def oscillators(size: int, steps: int) -> Program:
    """Kuramoto's phases on a ring, and the history of their mean."""

    def run(u: jax.Array) -> Any:
        def step(u: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            pull = jnp.sin(jnp.roll(u, 1) - u) + jnp.sin(jnp.roll(u, -1) - u)
            return jnp.mod(u + 0.1 * pull, 2 * jnp.pi), u.mean()

        return lax.scan(step, u, None, length=steps)

    return run, _fields(1, size)


PLANES: Final[dict[str, Callable[[int, int], Program]]] = {
    "electric-plane": electric_plane,
    "cavity": cavity,
    "reaction": reaction,
    "rolled-reaction": rolled_reaction,
    "shallow-water": shallow_water,
    "red-black": red_black,
    "distances": distances,
    "heat-gradient": heat_gradient,
    "rolled-heat": rolled_heat,
    "padded-heat": partial(padded_heat, mode="constant"),
    "edge-heat": partial(padded_heat, mode="edge"),
    "life": life,
    "ising": ising,
    "lattice-gas": lattice_gas,
}

LINES: Final[dict[str, Callable[[int, int], Program]]] = {
    "electric-line": electric_line,
    "heat-line": heat_line,
    "option": option,
    "burgers": burgers,
    "oscillators": oscillators,
}

SIZES: Final = {
    **dict.fromkeys(PLANES.items(), ((32, 200), (128, 100), (512, 20))),
    **dict.fromkeys(LINES.items(), ((200, 500), (5_000, 200), (200_000, 20))),
    ("wave", wave): ((10, 200), (32, 50), (96, 5)),
    ("batched-heat", batched_heat): ((16, 100), (64, 50), (256, 10)),
}
"""(Name, builder) -> (length of a side, steps) of each of its programs."""

WORKLOADS: Final[dict[str, Callable[[], Program]]] = {
    f"{name}-{size}": partial(build, size, steps)
    for (name, build), sizes in SIZES.items()
    for size, steps in sizes
}
