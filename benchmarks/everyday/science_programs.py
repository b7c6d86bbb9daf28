"""Particles, molecules, states, places on a sphere."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.common import Program, Sizes, integers, normal, uniform


def boids(count: int, steps: int) -> Program:
    """Flocking among all pairs in a periodic square, and the history of its order."""

    def run(x: jax.Array, v: jax.Array) -> Any:
        def step(state: Any, _: None) -> Any:
            x, v = state
            delta = x[None, :] - x[:, None]
            delta = delta - jnp.round(delta)
            distance = jnp.sqrt(jnp.sum(delta**2, axis=-1) + 1e-12)
            others = ~jnp.eye(count, dtype=bool)
            near, close = (distance < 0.15) & others, (distance < 0.05) & others
            n = jnp.maximum(jnp.sum(near, axis=1, keepdims=True), 1)
            cohesion = jnp.sum(jnp.where(near[..., None], delta, 0.0), axis=1) / n
            alignment = (near @ v) / n - v * jnp.any(near, axis=1, keepdims=True)
            separation = -jnp.sum(
                jnp.where(close[..., None], delta / distance[..., None] ** 2, 0.0), axis=1
            )
            v = v + 0.5 * cohesion + 0.1 * alignment + 1e-4 * separation
            speed = jnp.linalg.norm(v, axis=1, keepdims=True)
            v = v / speed * jnp.clip(speed, 0.005, 0.02)
            return (jnp.mod(x + v, 1.0), v), jnp.linalg.norm(
                jnp.mean(v / jnp.linalg.norm(v, axis=1, keepdims=True), axis=0)
            )

        return lax.scan(step, (x, v), None, length=steps)

    return run, (uniform(count, 2), normal(count, 2, scale=0.01))


def lennard_jones(count: int, steps: int) -> Program:
    """Molecular dynamics by velocity Verlet; forces by the gradient of the energy of all pairs."""
    box = float(round(count ** (1 / 3) + 0.49)) * 1.2

    def energy(x: jax.Array) -> jax.Array:
        i, j = np.triu_indices(count, 1)
        d = x[i] - x[j]
        d = d - box * jnp.round(d / box)
        r2 = jnp.sum(d**2, axis=-1)
        inverse = (1.0 / r2) ** 3
        return jnp.sum(jnp.where(r2 < 6.25, 4 * (inverse**2 - inverse) + 0.0163, 0.0))

    def run(x: jax.Array, v: jax.Array) -> Any:
        def step(state: Any, _: None) -> Any:
            x, v, f = state
            v = v + 0.5e-3 * f
            x = jnp.mod(x + 1e-3 * v, box)
            potential, g = jax.value_and_grad(energy)(x)
            v = v - 0.5e-3 * g
            return (x, v, -g), potential + 0.5 * jnp.sum(v**2)

        (x, v, _), total = lax.scan(step, (x, v, -jax.grad(energy)(x)), None, length=steps)
        return x, v, total

    side = round(box / 1.2)
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3), axis=-1).reshape(-1, 3)[:count] * 1.2
    return run, (
        jnp.asarray(grid, jnp.float32) + normal(count, 3, scale=0.03),
        normal(count, 3, seed=1),
    )


def cell_list(count: int, steps: int) -> Program:
    """Soft discs pushed apart: sorted by cells, neighbours looked up in the nine cells around."""
    side = max(4, int((count / 4) ** 0.5))
    capacity = 12

    def run(x: jax.Array) -> Any:
        offsets = jnp.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])

        def step(x: jax.Array, _: None) -> Any:
            place = jnp.floor(x).astype(jnp.int32) % side
            cell = place[:, 0] * side + place[:, 1]
            order = jnp.argsort(cell)
            x, cell, place = x[order], cell[order], place[order]
            start = jnp.searchsorted(cell, jnp.arange(side * side))
            rank = jnp.arange(count) - start[cell]
            table = (
                jnp.full((side * side, capacity), count)
                .at[cell, rank]
                .set(jnp.arange(count), mode="drop")
            )
            around = (place[:, None] + offsets[None]) % side
            neighbours = table[around[..., 0] * side + around[..., 1]].reshape(count, -1)
            padded = jnp.concatenate([x, jnp.full((1, 2), 1e6)])
            d = x[:, None] - padded[neighbours]
            d = d - side * jnp.round(d / side)
            r = jnp.sqrt(jnp.sum(d**2, axis=-1) + 1e-9)
            valid = (neighbours != jnp.arange(count)[:, None]) & (neighbours < count) & (r < 0.6)
            push = jnp.where(valid, 0.6 - r, 0.0)
            force = jnp.sum((push / r)[..., None] * d, axis=1)
            load = jax.ops.segment_max(
                jnp.sum(push, axis=1), cell, side * side, indices_are_sorted=True
            )
            return jnp.mod(x + 0.2 * force, side), (jnp.sum(push**2), jnp.max(load))

        return lax.scan(step, x, None, length=steps)

    return run, (uniform(count, 2, high=float(side)),)


def molecule(atoms: int, copies: int) -> Program:
    """Chains with energies of bonds, angles and torsions, relaxed by descent, many copies."""

    def energy(x: jax.Array) -> jax.Array:
        bonds = x[1:] - x[:-1]
        lengths = jnp.linalg.norm(bonds, axis=1)
        unit = bonds / lengths[:, None]
        cosines = jnp.clip(-jnp.sum(unit[1:] * unit[:-1], axis=1), -0.9999, 0.9999)
        angles = jnp.arccos(cosines)
        normals = jnp.cross(bonds[:-1], bonds[1:])
        y = jnp.sum(jnp.cross(normals[:-1], normals[1:]) * unit[1:-1], axis=1)
        phi = jnp.arctan2(y, jnp.sum(normals[:-1] * normals[1:], axis=1))
        torsion = jnp.sum(1 + jnp.cos(3 * phi)) + 0.5 * jnp.sum(1 + jnp.cos(phi))
        return 100 * jnp.sum((lengths - 1.5) ** 2) + 50 * jnp.sum((angles - 1.95) ** 2) + torsion

    def relax(x: jax.Array) -> Any:
        def step(x: jax.Array, _: None) -> Any:
            e, g = jax.value_and_grad(energy)(x)
            return x - 5e-4 * jnp.clip(g, -50, 50), e

        return lax.scan(step, x, None, length=20)

    i = np.arange(atoms)
    helix = jnp.asarray(np.stack([np.cos(1.7 * i), np.sin(1.7 * i), 0.6 * i], axis=-1), jnp.float32)
    return jax.vmap(relax), (helix + normal(copies, atoms, 3, scale=0.1),)


def epidemic(regions: int, steps: int) -> Program:
    """A stochastic epidemic among regions that mix, by binomial draws approximated by Poisson's."""

    def run(population: jax.Array, mixing: jax.Array, seed: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            s, e, i, r = state
            keys = jax.random.split(key, 3)
            force = 0.4 * mixing @ (i / population)
            exposed = jnp.minimum(
                jax.random.poisson(keys[0], s * (1 - jnp.exp(-force))).astype(jnp.float32), s
            )
            sick = jnp.minimum(jax.random.poisson(keys[1], e * 0.2).astype(jnp.float32), e)
            healed = jnp.minimum(jax.random.poisson(keys[2], i * 0.1).astype(jnp.float32), i)
            new = (s - exposed, e + exposed - sick, i + sick - healed, r + healed)
            return new, (jnp.sum(new[2]), jnp.max(new[2] / population))

        first = jnp.where(jnp.arange(regions) < 3, 20.0, 0.0)
        start = (population - first, jnp.zeros(regions), first, jnp.zeros(regions))
        return lax.scan(step, start, jax.random.split(jax.random.PRNGKey(seed), steps))

    mixing = np.random.default_rng(1).random((regions, regions)) ** 4 + 4 * np.eye(regions)
    mixing = jnp.asarray(mixing / mixing.sum(axis=1, keepdims=True), jnp.float32)
    return run, (uniform(regions, low=1_000, high=9_000), mixing, jnp.int32(0))


def automata(cells: int, steps: int) -> Program:
    """Elementary automata of several rules, side by side, with the entropy of their rows."""

    def run(rules: jax.Array, row: jax.Array) -> Any:
        def single(rule: jax.Array) -> Any:
            table = (rule >> jnp.arange(8)) & 1

            def step(row: jax.Array, _: None) -> Any:
                code = 4 * jnp.roll(row, 1) + 2 * row + jnp.roll(row, -1)
                p = jnp.bincount(code, length=8) / cells
                entropy = -jnp.sum(jnp.where(p > 0, p * jnp.log2(jnp.maximum(p, 1e-9)), 0.0))
                return table[code], (jnp.mean(row), entropy)

            return lax.scan(step, row, None, length=steps)

        return jax.vmap(single)(rules)

    return run, (jnp.asarray([30, 54, 90, 110, 150, 184], jnp.int32), integers(2, cells))


def qubits(count: int, depth: int) -> Program:
    """The energy of a variational circuit under Ising's Hamiltonian, with the gradient of its angles."""

    def apply(state: jax.Array, gate: jax.Array, q: int) -> jax.Array:
        return jnp.moveaxis(jnp.tensordot(gate, state, axes=((1,), (q,))), 0, q)

    def ry(t: jax.Array) -> jax.Array:
        c, s = jnp.cos(t / 2), jnp.sin(t / 2)
        return jnp.array([[c, -s], [s, c]]).astype(jnp.complex64)

    def rz(t: jax.Array) -> jax.Array:
        return jnp.diag(jnp.exp(jnp.array([-0.5j, 0.5j]) * t)).astype(jnp.complex64)

    def energy(angles: jax.Array) -> jax.Array:
        bits = jnp.stack([(jnp.arange(2**count) >> (count - 1 - q)) & 1 for q in range(count)])
        spins = 1.0 - 2.0 * bits
        bonds = jnp.sum(spins * jnp.roll(spins, -1, axis=0), axis=0)
        cz = (-1.0) ** jnp.sum(bits[:-1] * bits[1:], axis=0)

        def layer(state: jax.Array, theta: jax.Array) -> Any:
            state = state.reshape((2,) * count)
            for q in range(count):
                state = apply(state, rz(theta[q, 1]) @ ry(theta[q, 0]), q)
            return state.reshape(-1) * cz, None

        start = jnp.zeros(2**count, jnp.complex64).at[0].set(1.0)
        state, _ = lax.scan(layer, start, angles)
        zz = jnp.sum(jnp.abs(state) ** 2 * bonds)
        cube = state.reshape((2,) * count)
        x = sum(jnp.real(jnp.vdot(cube, jnp.flip(cube, axis=q))) for q in range(count))
        return -zz - 0.7 * x

    return jax.value_and_grad(energy), (uniform(depth, count, 2, high=3.0),)


def harmonics(points: int, degree: int) -> Program:
    """Real spherical harmonics by recurrences, and a fit of a function on the sphere."""

    def basis(theta: jax.Array, phi: jax.Array) -> jax.Array:
        x, s = jnp.cos(theta), jnp.sin(theta)
        legendre = {(0, 0): jnp.full_like(x, (4 * np.pi) ** -0.5)}
        for m in range(1, degree + 1):
            legendre[m, m] = -np.sqrt((2 * m + 1) / (2 * m)) * s * legendre[m - 1, m - 1]
        for m in range(degree):
            legendre[m + 1, m] = np.sqrt(2 * m + 3) * x * legendre[m, m]
            for n in range(m + 2, degree + 1):
                a = np.sqrt((4 * n * n - 1) / (n * n - m * m))
                b = np.sqrt(((n - 1) ** 2 - m * m) / (4 * (n - 1) ** 2 - 1))
                legendre[n, m] = a * (x * legendre[n - 1, m] - b * legendre[n - 2, m])
        out = []
        for n in range(degree + 1):
            for m in range(-n, n + 1):
                wave = jnp.cos(m * phi) if m >= 0 else jnp.sin(-m * phi)
                out.append(legendre[n, abs(m)] * wave * (1.0 if m == 0 else np.sqrt(2)))
        return jnp.stack(out, axis=-1)

    def run(theta: jax.Array, phi: jax.Array, values: jax.Array) -> Any:
        y = basis(theta, phi)
        gram = y.T @ y + 1e-3 * jnp.eye(y.shape[1])
        coefficients = jnp.linalg.solve(gram, y.T @ values)
        error = values - y @ coefficients
        return coefficients, jnp.sqrt(jnp.mean(error**2))

    theta, phi = jnp.arccos(uniform(points, low=-1, high=1)), uniform(points, seed=1, high=6.28)
    return run, (theta, phi, jnp.exp(jnp.cos(theta)) * jnp.sin(2 * phi))


def geodesics(points: int, stations: int) -> Program:
    """Haversine's distances and bearings of stations, the nearest ones, an average weighted by distance."""

    def run(a: jax.Array, b: jax.Array, values: jax.Array) -> Any:
        def pair(p: jax.Array, q: jax.Array) -> Any:
            (lat1, lon1), (lat2, lon2) = jnp.deg2rad(p), jnp.deg2rad(q)
            dlat, dlon = lat2 - lat1, lon2 - lon1
            h = jnp.sin(dlat / 2) ** 2 + jnp.cos(lat1) * jnp.cos(lat2) * jnp.sin(dlon / 2) ** 2
            y = jnp.sin(dlon) * jnp.cos(lat2)
            x = jnp.cos(lat1) * jnp.sin(lat2) - jnp.sin(lat1) * jnp.cos(lat2) * jnp.cos(dlon)
            return 2 * 6371.0 * jnp.arcsin(jnp.sqrt(jnp.clip(h, 0, 1))), jnp.mod(
                jnp.rad2deg(jnp.arctan2(y, x)), 360.0
            )

        distance, bearing = jax.vmap(lambda p: jax.vmap(lambda q: pair(p, q))(b))(a)
        negative, nearest = lax.top_k(-distance, 4)
        w = 1.0 / (1.0 - negative) ** 2
        estimate = jnp.sum(w * values[nearest], axis=1) / jnp.sum(w, axis=1)
        return estimate, -negative[:, 0], jnp.take_along_axis(bearing, nearest[:, :1], axis=1)[:, 0]

    def places(n: int, seed: int) -> jax.Array:
        return jnp.stack(
            [
                uniform(n, seed=seed, low=-60, high=60),
                uniform(n, seed=seed + 9, low=-180, high=180),
            ],
            -1,
        )

    return run, (places(points, 0), places(stations, 1), normal(stations))


def quaternions(bodies: int, steps: int) -> Program:
    """Tumbling bodies in quaternions by Runge-Kutta's steps, and their transformed corners."""

    def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
        w1, x1, y1, z1 = a
        w2, x2, y2, z2 = b
        return jnp.array([
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
        ])  # fmt: skip

    def rotate(q: jax.Array, v: jax.Array) -> jax.Array:
        t = 2.0 * jnp.cross(q[1:], v)
        return v + q[0] * t + jnp.cross(q[1:], t)

    def derivative(q: jax.Array, w: jax.Array, inertia: jax.Array) -> Any:
        return 0.5 * multiply(q, jnp.concatenate([jnp.zeros(1), w])), jnp.cross(
            inertia * w, w
        ) / inertia

    def single(q: jax.Array, w: jax.Array, inertia: jax.Array, corners: jax.Array) -> Any:
        def step(state: Any, _: None) -> Any:
            def at(h: float, k: Any) -> Any:
                return derivative(state[0] + h * k[0], state[1] + h * k[1], inertia)

            k1 = derivative(*state, inertia)
            k2 = at(0.005, k1)
            k3 = at(0.005, k2)
            k4 = at(0.01, k3)
            q, w = jax.tree.map(
                lambda s, a, b, c, d: s + 0.01 / 6 * (a + 2 * b + 2 * c + d), state, k1, k2, k3, k4
            )
            q = q / jnp.linalg.norm(q)
            return (q, w), 0.5 * jnp.sum(inertia * w**2)

        (q, w), history = lax.scan(step, (q, w), None, length=steps)
        return jax.vmap(rotate, in_axes=(None, 0))(q, corners), w, history

    q = jnp.tile(jnp.asarray([1.0, 0, 0, 0], jnp.float32), (bodies, 1))
    args = (
        q,
        normal(bodies, 3, scale=2.0),
        uniform(bodies, 3, low=1, high=2),
        normal(bodies, 8, 3, seed=1),
    )
    return jax.vmap(single), args


def roots(count: int, degree: int) -> Program:
    """All roots of many polynomials after Durand and Kerner, polished by Newton; Kepler's equation beside."""

    def all_roots(p: jax.Array) -> jax.Array:
        start = (0.4 + 0.9j) ** jnp.arange(degree)

        def step(_: Any, z: jax.Array) -> jax.Array:
            gaps = z[:, None] - z[None, :] + jnp.eye(degree)
            return z - jnp.polyval(p, z) / jnp.prod(gaps, axis=1)

        z = lax.fori_loop(0, 30, step, start.astype(jnp.complex64))
        slope = jnp.polyval(jnp.polyder(p), z)
        return jnp.sort_complex(
            z - jnp.polyval(p, z) / jnp.where(jnp.abs(slope) > 1e-6, slope, 1.0)
        )

    def kepler(m: jax.Array, e: jax.Array) -> jax.Array:
        def f(x: jax.Array) -> jax.Array:
            return x - e * jnp.sin(x) - m

        def step(state: Any) -> Any:
            x, _, i = state
            change = f(x) / jax.grad(f)(x)
            return x - change, jnp.abs(change), i + 1

        return lax.while_loop(
            lambda s: (s[1] > 1e-5) & (s[2] < 30), step, (m + e, jnp.float32(1.0), 0)
        )[0]

    def run(p: jax.Array, m: jax.Array, e: jax.Array) -> Any:
        return jax.vmap(all_roots)(p), jax.vmap(kepler)(m, e)

    p = jnp.concatenate([jnp.ones((count, 1), jnp.float32), normal(count, degree)], axis=1)
    return run, (p, uniform(16 * count, high=6.28), uniform(16 * count, seed=1, high=0.8))


SIZES: Final[Sizes] = {
    ("boids", boids): ((100, 30), (250, 15)),
    ("lennard-jones", lennard_jones): ((64, 40), (216, 20)),
    ("cell-list", cell_list): ((400, 10), (2_000, 6)),
    ("molecule", molecule): ((20, 16), (40, 120)),
    ("epidemic", epidemic): ((50, 40), (200, 50)),
    ("automata", automata): ((200, 100), (2_000, 100)),
    ("qubits", qubits): ((10, 4), (12, 4)),
    ("harmonics", harmonics): ((2_000, 5), (10_000, 8)),
    ("geodesics", geodesics): ((200, 100), (800, 400)),
    ("quaternions", quaternions): ((100, 100), (2_000, 100)),
    ("roots", roots): ((200, 6), (2_000, 8)),
}
