"""Simulators, differential equations and environments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal, uniform


def shallow_water() -> Built:
    """One finite-volume step of the shallow water equations on a periodic grid, by rolls.

    After openxla/xla#18478: compiling elementwise code with rolls makes it slower on CPUs.
    """
    size = 192
    dx, dt = 1.0 / size, 0.1 / size

    def slopes(f: Any) -> Any:
        along = (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / (2 * dx)
        return along, (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / (2 * dx)

    def faces(f: Any, slope: Any, axis: int) -> Any:
        return jnp.roll(f - slope * dx / 2, -1, axis), f + slope * dx / 2

    def flux(height: Any, along: Any, across: Any) -> Any:
        h, p, q = (0.5 * (pair[0] + pair[1]) for pair in (height, along, across))
        speed = jnp.sqrt(jnp.maximum(height[0], height[1])) + jnp.abs(p / h)
        terms = (p, p * p / h + 0.5 * h * h, p * q / h)
        pairs = (height, along, across)
        return [t - 0.5 * speed * (a - b) for t, (a, b) in zip(terms, pairs, strict=True)]

    def fn(h: Any, p: Any, q: Any) -> Any:
        edges = []
        for axis in (0, 1):
            edges.append([faces(f, slopes(f)[axis], axis) for f in (h, p, q)])
        fx = flux(*edges[0])
        fy_h, fy_q, fy_p = flux(edges[1][0], edges[1][2], edges[1][1])
        out = []
        for f, x, y in zip((h, p, q), fx, (fy_h, fy_p, fy_q), strict=True):
            change = x - jnp.roll(x, 1, 0) + y - jnp.roll(y, 1, 1)
            out.append(f - dt / dx * change)
        return tuple(out)

    t = np.linspace(0, 2 * np.pi, size, endpoint=False)
    bump = 1 + 0.2 * np.sin(t)[:, None] * np.cos(2 * t)[None, :]
    rng = generator()
    p, q = (normal(rng, size, size, scale=0.05) for _ in range(2))
    return fn, (jnp.asarray(bump), p, q)


_STAGES = (
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
)  # fmt: skip


def gene_network() -> Built:
    """Fixed steps of Tsitouras' method for a ring of genes, each rate a formula over scalars.

    After patrick-kidger/diffrax#615: a model generated from SBML takes 20 times as long as before.
    """
    genes, steps, dt = 7, 150, 0.05

    def rates(y: Any, c: Any) -> Any:
        total = sum(y[2 * i + 1] for i in range(genes))
        out = []
        for i in range(genes):
            mrna, protein = y[2 * i], y[2 * i + 1]
            repressor = y[(2 * i - 1) % (2 * genes)]
            made = c[0] / (1 + (repressor / c[1]) ** c[2]) + c[3]
            out.append(made - c[4] * mrna)
            out.append(c[5] * mrna - c[6] * protein - c[7] * protein / (1 + total))
        return jnp.stack(out)

    def fn(y: Any, c: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            slopes = [rates(y, c)]
            for row in _STAGES[:-1]:
                at = y + dt * sum(a * k for a, k in zip(row, slopes, strict=True))
                slopes.append(rates(at, c))
            y = y + dt * sum(b * k for b, k in zip(_STAGES[-1], slopes, strict=True))
            return y, y[1]

        return lax.scan(step, y, None, length=steps)

    c = jnp.array([5.0, 1.5, 2.0, 0.1, 1.0, 0.8, 0.6, 0.3])
    return fn, (uniform(generator(), 2 * genes, low=0.5, high=2.0), c)


def schrodinger() -> Built:
    """Runge-Kutta steps of the Schrödinger equation of three coupled oscillators, 125 states.

    After dynamiqs/dynamiqs#785: solving it takes longer than with QuTiP.
    """
    levels, steps, dt = 5, 40, 1e-3

    def fn(hamiltonian: Any, start: Any) -> Any:
        def slope(psi: Any) -> Any:
            return -1j * (hamiltonian @ psi)

        def step(psi: Any, _: Any) -> Any:
            a = slope(psi)
            b = slope(psi + dt / 2 * a)
            c = slope(psi + dt / 2 * b)
            d = slope(psi + dt * c)
            psi = psi + dt / 6 * (a + 2 * b + 2 * c + d)
            return psi, jnp.abs(psi[:8]) ** 2

        return lax.scan(step, start, None, length=steps)

    lower, one = np.diag(np.sqrt(np.arange(1, levels)), 1), np.eye(levels)
    a = [
        np.kron(
            np.kron(lower if i == 0 else one, lower if i == 1 else one), lower if i == 2 else one
        )
        for i in range(3)
    ]
    turn = 2 * np.pi
    total = np.zeros((levels**3, levels**3))
    for mode, frequency in zip(a, (6.0, 7.0, 5.0), strict=True):
        number = mode.T @ mode
        total += turn * (frequency * number - 0.1 * mode.T @ number @ mode)
    for i, j, g in ((0, 1, 0.1), (1, 2, 0.1), (0, 2, 0.005)):
        total += turn * g * (a[i] + a[i].T) @ (a[j] + a[j].T)
    start = np.zeros(levels**3)
    start[levels**2] = 1
    return fn, (jnp.asarray(total, jnp.complex64), jnp.asarray(start, jnp.complex64))


def _slid(row: Any) -> Any:
    """A row of tiles pushed to the left, where two equal neighbours merge once."""

    def place(k: Any, state: Any) -> Any:
        out, count, may_merge, gain = state
        value = row[k]
        merge = may_merge & (out[count - 1] == value)

        def merged(_: Any) -> Any:
            return out.at[count - 1].add(1), count, jnp.bool_(False), gain + 2 ** (value + 1)

        def appended(_: Any) -> Any:
            return out.at[count].set(value), count + 1, jnp.bool_(True), gain

        full = lax.cond(merge, merged, appended, None)
        return lax.cond(value > 0, lambda _: full, lambda _: state, None)

    start = (jnp.zeros(4, jnp.int32), jnp.int32(0), jnp.bool_(False), jnp.int32(0))
    out, _, _, gain = lax.fori_loop(0, 4, place, start)
    return out, gain


def sliding_tiles() -> Built:
    """Moves on many boards of the game 2048, by a switch over directions and conditions per tile.

    After instadeepai/jumanji#172: conditions and scans make the environment step slow on CPUs.
    """
    boards, moves = 128, 6

    def move(board: Any, action: Any) -> Any:
        def turned(times: int) -> Any:
            def go(board: Any) -> Any:
                rows, gain = jax.vmap(_slid)(jnp.rot90(board, times))
                return jnp.rot90(rows, -times), jnp.sum(gain)

            return go

        return lax.switch(action, [turned(i) for i in range(4)], board)

    def step(board: Any, inputs: Any) -> Any:
        action, luck = inputs
        moved, gain = move(board, action)
        empty = (moved == 0).ravel()
        wanted = (luck * jnp.sum(empty)).astype(jnp.int32)
        hit = empty & (jnp.cumsum(empty) - 1 == wanted)
        grown = jnp.where(hit, 1, moved.ravel()).reshape(4, 4)
        return jnp.where(jnp.any(moved != board), grown, moved), gain

    def fn(board: Any, actions: Any, luck: Any) -> Any:
        return lax.scan(jax.vmap(step), board, (actions, luck))

    rng = generator()
    board = jnp.asarray(
        rng.integers(0, 4, (boards, 4, 4)) * rng.integers(0, 2, (boards, 4, 4)), jnp.int32
    )
    actions = jnp.asarray(rng.integers(0, 4, (moves, boards)), jnp.int32)
    return fn, (board, actions, jnp.asarray(rng.uniform(0, 0.99, (moves, boards)), jnp.float32))


def _rotated(quaternion: Any, vector: Any) -> Any:
    w, u = quaternion[0], quaternion[1:]
    return vector + 2 * jnp.cross(u, jnp.cross(u, vector) + w * vector)


def _times(a: Any, b: Any) -> Any:
    real = a[0] * b[0] - jnp.dot(a[1:], b[1:])
    return jnp.concatenate([real[None], a[0] * b[1:] + b[0] * a[1:] + jnp.cross(a[1:], b[1:])])


PARENTS = (-1, 0, 1, 0, 3, 0, 5, 0, 7)
OWNERS = np.arange(17) % len(PARENTS)


def _centres(q: Any, offsets: Any, axes: Any, local: Any) -> Any:
    turn, place = [], []
    for i, parent in enumerate(PARENTS):
        spin = jnp.concatenate([jnp.cos(q[i] / 2)[None], jnp.sin(q[i] / 2) * axes[i]])
        if parent < 0:
            turn.append(spin)
            place.append(offsets[i])
        else:
            turn.append(_times(turn[parent], spin))
            place.append(place[parent] + _rotated(turn[parent], offsets[i]))
    turns, places = jnp.stack(turn)[OWNERS], jnp.stack(place)[OWNERS]
    return places + jax.vmap(_rotated)(turns, local)


def _impulses(wanted: Any, effect: Any) -> Any:
    """Four sweeps of projected Gauss-Seidel over the contacts."""

    def one(i: Any, impulse: Any) -> Any:
        error = wanted[i] + effect[i] @ impulse
        new = jnp.maximum(impulse[i] - error / (effect[i, i] + 1e-3), 0)
        return impulse.at[i].set(new)

    def sweep(_: Any, impulse: Any) -> Any:
        return lax.fori_loop(0, len(OWNERS), one, impulse)

    return lax.fori_loop(0, 4, sweep, jnp.zeros(len(OWNERS)))


def contact_step() -> Built:
    """One step of a tree of 9 hinged bodies with 17 spheres which touch the ground.

    After google-deepmind/mujoco#2957: such MJX models run over 100 times slower than before.
    """
    bodies, spheres = len(PARENTS), len(OWNERS)

    def fn(q: Any, speed: Any, offsets: Any, axes: Any, local: Any) -> Any:
        dt = 0.005
        at = _centres(q, offsets, axes, local)
        jacobian = jax.jacfwd(_centres)(q, offsets, axes, local)
        mass = jnp.einsum("cia,cib->ab", jacobian, jacobian) + 0.1 * jnp.eye(bodies)
        force = -9.81 * jnp.sum(jacobian[:, 2], 0) - 0.2 * speed
        factor = jnp.linalg.cholesky(mass)
        free = speed + dt * jax.scipy.linalg.cho_solve((factor, True), force)
        down = jacobian[:, 2] * (at[:, 2] < 0.05)[:, None]
        effect = down @ jax.scipy.linalg.cho_solve((factor, True), down.T)
        wanted = down @ free - 5 * jnp.minimum(at[:, 2] - 0.05, 0)

        impulse = _impulses(wanted, effect)
        speed = free + jax.scipy.linalg.cho_solve((factor, True), down.T @ impulse)
        return q + dt * speed, speed

    rng = generator()
    axes = rng.standard_normal((bodies, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    offsets = normal(rng, bodies, 3, scale=0.2).at[0, 2].set(0.2)
    state = (normal(rng, bodies, scale=0.4), normal(rng, bodies, scale=0.2))
    return fn, (*state, offsets, jnp.asarray(axes), normal(rng, spheres, 3, scale=0.1))


def harmonics() -> Built:
    """Spherical harmonic coefficients of a map, by the recursion in the degree for all orders.

    After astro-informatics/s2fft#192: 20 times slower than healpy on a CPU.
    """
    degrees, rings = 64, 96

    def fn(values: Any, nodes: Any, weights: Any) -> Any:
        orders = jnp.arange(degrees)
        modes = jnp.fft.rfft(values, axis=1)[:, :degrees] * weights[:, None]
        sine = jnp.sqrt(1 - nodes**2)[:, None]
        ratio = jnp.where(
            orders > 0, (2 * orders + 1) / (2 * jnp.maximum(orders, 1)), 1 / (4 * jnp.pi)
        )
        diagonal = jnp.sqrt(jnp.cumprod(ratio)) * sine**orders

        def step(degree: Any, state: Any) -> Any:
            older, old, out = state
            inside = degree > orders
            square, below = degree**2, (degree - 1) ** 2
            a = jnp.sqrt(
                jnp.where(inside, (4 * square - 1) / jnp.where(inside, square - orders**2, 1), 0)
            )
            b = jnp.sqrt(
                jnp.where(inside, (below - orders**2) / jnp.maximum(4 * below - 1, 1), 0).clip(0)
            )
            new = a * (nodes[:, None] * old - b * older)
            new = jnp.where(orders == degree, diagonal, new)
            return old, new, out.at[degree].set(jnp.sum(new * modes, 0))

        zero = jnp.zeros((rings, degrees), values.dtype)
        out = jnp.zeros((degrees, degrees), modes.dtype)
        return lax.fori_loop(0, degrees, step, (zero, zero, out))[2]

    nodes, weights = np.polynomial.legendre.leggauss(rings)
    return fn, (normal(generator(), rings, 2 * degrees), jnp.asarray(nodes), jnp.asarray(weights))


def contact_points() -> Built:
    """Places and velocities of points on the links of a robot, one link looked up per point by vmap.

    After gbionics/jaxsim#235: a lookup by index under vmap makes the transforms slow.
    """
    links, points = 23, 64

    def fn(q: Any, speed: Any, frames: Any, parents: Any, owner: Any, local: Any) -> Any:
        def link(i: Any, state: Any) -> Any:
            world, twist = state
            c, s = jnp.cos(q[i]), jnp.sin(q[i])
            turn = jnp.eye(4).at[0, 0].set(c).at[0, 1].set(-s).at[1, 0].set(s).at[1, 1].set(c)
            here = world[parents[i]] @ frames[i] @ turn
            rate = twist[parents[i]] + jnp.concatenate(
                [jnp.cross(here[:3, 3], here[:3, 2]) * speed[i], here[:3, 2] * speed[i]]
            )
            return world.at[i + 1].set(here), twist.at[i + 1].set(rate)

        start = (jnp.tile(jnp.eye(4), (links + 1, 1, 1)), jnp.zeros((links + 1, 6)))
        world, twist = lax.fori_loop(0, links, link, start)

        def point(k: Any) -> Any:
            here = world[owner[k]] @ jnp.concatenate([local[k], jnp.ones(1)])
            rate = twist[owner[k]]
            return here[:3], rate[:3] + jnp.cross(rate[3:], here[:3])

        return jax.vmap(point)(jnp.arange(points))

    rng = generator()
    frames = np.tile(np.eye(4), (links, 1, 1))
    frames[:, :3, :3] = np.linalg.qr(rng.standard_normal((links, 3, 3)))[0]
    frames[:, :3, 3] = 0.2 * rng.standard_normal((links, 3))
    parents = jnp.asarray([rng.integers(0, i + 1) for i in range(links)], jnp.int32)
    owner = jnp.asarray(rng.integers(1, links + 1, points), jnp.int32)
    state = (normal(rng, links), normal(rng, links))
    return fn, (*state, jnp.asarray(frames), parents, owner, normal(rng, points, 3, scale=0.1))


REPORTS: tuple[Reported, ...] = (
    Reported("shallow_water", "openxla/xla#18478", shallow_water),
    Reported("gene_network", "patrick-kidger/diffrax#615", gene_network, x64=True),
    Reported("schrodinger", "dynamiqs/dynamiqs#785", schrodinger),
    Reported("sliding_tiles", "instadeepai/jumanji#172", sliding_tiles),
    Reported("contact_step", "google-deepmind/mujoco#2957", contact_step),
    Reported("harmonics", "astro-informatics/s2fft#192", harmonics, x64=True),
    Reported("contact_points", "gbionics/jaxsim#235", contact_points),
)
"""The programs of this family."""
