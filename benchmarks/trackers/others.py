"""Images, dynamic programming, bits, special functions and optimisers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal, uniform


def clipped_rows() -> Built:
    """Which points of many light curves lie within a robust spread, from percentiles of each row.

    After dirac-institute/kbmod#863: on a CPU 100 ms against 7 ms in PyTorch.
    """
    rows, times = 1000, 40

    def fn(curves: Any) -> Any:
        low, middle, high = jnp.percentile(curves, jnp.array([25.0, 50.0, 75.0]), axis=1)
        spread = 0.7413 * (high - low)
        inside = jnp.abs(curves - middle[:, None]) < 2.5 * spread[:, None]
        return inside, jnp.sum(jnp.where(inside, curves, 0), 1) / jnp.sum(inside, 1)

    return fn, (normal(generator(), rows, times),)


def incomplete_beta() -> Built:
    """The incomplete beta function of an array.

    After jax-ml/jax#28547: ten times slower than SciPy on a CPU.
    """

    def fn(a: Any, b: Any, x: Any) -> Any:
        return jax.scipy.special.betainc(a, b, x)

    return fn, (jnp.asarray(4.5), jnp.asarray(0.5), uniform(generator(), 2000, low=0.01, high=0.99))


def pair_counts() -> Built:
    """Weighted numbers of pairs of points by distance: a loop over the points of one set.

    After jax-ml/jax#3002: the loops of a Numba kernel, which could not be made efficient.
    """
    first, second, bins = 150, 200, 10

    def fn(a: Any, wa: Any, b: Any, wb: Any, edges: Any) -> Any:
        def one(i: Any, counts: Any) -> Any:
            distance = jnp.sum((b - a[i]) ** 2, 1)
            slot = jnp.searchsorted(edges, distance)
            return counts.at[slot].add(wa[i] * wb)

        return lax.fori_loop(0, first, one, jnp.zeros(bins + 1))[:bins]

    rng = generator()
    sets = (
        uniform(rng, first, 3),
        uniform(rng, first),
        uniform(rng, second, 3),
        uniform(rng, second),
    )
    return fn, (*sets, jnp.asarray(np.linspace(0.1, 1, bins) ** 2, jnp.float32))


def counter_hash() -> Built:
    """Uniform numbers from the Threefry hash of a counter, its rounds in a rolled loop.

    After jax-ml/jax#37872: the rolled loop is three times slower than unrolled rounds.
    """
    count = 65_536
    rotations = np.array([[13, 15, 26, 6], [17, 29, 16, 24]], np.uint32)

    def fn(key: Any, counter: Any) -> Any:
        words = jnp.stack([key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)])
        a, b = counter[0] + words[0], counter[1] + words[1]

        def group(i: Any, state: Any) -> Any:
            a, b, turns = state

            def mix(k: Any, pair: Any) -> Any:
                a, b = pair
                by = turns[0, k]
                a = a + b
                b = ((b << by) | (b >> (jnp.uint32(32) - by))) ^ a
                return a, b

            a, b = lax.fori_loop(0, 4, mix, (a, b))
            a = a + words[(i + 1) % 3]
            b = b + words[(i + 2) % 3] + (i + 1).astype(jnp.uint32)
            return a, b, turns[::-1]

        a, b, _ = lax.fori_loop(0, 5, group, (a, b, jnp.asarray(rotations)))
        return jnp.concatenate([a, b]) >> 8, (a >> 8).astype(jnp.float32) * 2.0**-24

    counter = np.arange(2 * count, dtype=np.uint32).reshape(2, count)
    return fn, (jnp.array([7, 11], jnp.uint32), jnp.asarray(counter))


def worker_values() -> Built:
    """Value of human capital: choices of search and study on a grid, by vmap over three sides.

    After QuantEcon/lecture-python.myst#618: the lecture asks when JAX pays against Numba.
    """
    states, choices, draws, rounds = 25, 15, 50, 4

    def fn(grid: Any, effort: Any, shocks: Any) -> Any:
        def chosen(x: Any, search: Any, study: Any, value: Any) -> Any:
            grown = 1.4 * (x * study) ** 0.6
            later = jnp.interp(jnp.maximum(grown, shocks), grid, value)
            stay = jnp.interp(grown, grid, value)
            luck = jnp.sqrt(search)
            worth = x * (1 - search - study) + 0.9 * ((1 - luck) * stay + luck * jnp.mean(later))
            return jnp.where(search + study <= 1, worth, -jnp.inf)

        over_study = jax.vmap(chosen, (None, None, 0, None))
        over_search = jax.vmap(over_study, (None, 0, None, None))
        over_states = jax.vmap(over_search, (0, None, None, None))

        def improve(_: Any, value: Any) -> Any:
            return jnp.max(over_states(grid, effort, effort, value), (1, 2))

        return lax.fori_loop(0, rounds, improve, grid * 0.5)

    grid = jnp.asarray(np.linspace(0.01, 3.0, states), jnp.float32)
    effort = jnp.asarray(np.linspace(0.01, 0.99, choices), jnp.float32)
    return fn, (grid, effort, jnp.asarray(generator().beta(2, 2, draws), jnp.float32))


def warped_image() -> Built:
    """A colour image bent by a field of displacements, with linear interpolation.

    After jax-ml/jax#2282: slower than SciPy's map_coordinates.
    """
    size = 200

    def fn(image: Any, shift: Any) -> Any:
        base = jnp.stack(jnp.meshgrid(jnp.arange(size), jnp.arange(size), indexing="ij"))
        at = list(base + shift)
        bent = [jax.scipy.ndimage.map_coordinates(image[..., c], at, order=1) for c in range(3)]
        return jnp.stack(bent, 2)

    rng = generator()
    return fn, (uniform(rng, size, size, 3), normal(rng, 2, size, size, scale=2.0))


MEMORY = 10


def _rosenbrock(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def _two_loops(g: Any, s: Any, y: Any, rho: Any, count: Any) -> Any:
    """Direction of L-BFGS from a ring of past steps and changes of the gradient."""

    def back(i: Any, state: Any) -> Any:
        q, alphas = state
        k = (count - 1 - i) % MEMORY
        alpha = rho[k] * jnp.dot(s[k], q)
        return q - alpha * y[k], alphas.at[k].set(alpha)

    def forth(i: Any, r: Any) -> Any:
        k = (count + i) % MEMORY
        return r + s[k] * (alphas[k] - rho[k] * jnp.dot(y[k], r))

    q, alphas = lax.fori_loop(0, MEMORY, back, (g, jnp.zeros(MEMORY)))
    last = (count - 1) % MEMORY
    length = jnp.maximum(jnp.dot(y[last], y[last]), 1e-30)
    scale = jnp.where(count > 0, jnp.dot(s[last], y[last]) / length, 1.0)
    return -lax.fori_loop(0, MEMORY, forth, scale * q)


def limited_memory() -> Built:
    """A hundred steps of L-BFGS on the Rosenbrock function, with a memory of ten and a line search.

    After google-deepmind/optax#1298: ten times slower than SciPy on a CPU.
    """
    size, steps = 10, 100
    value = _rosenbrock

    def step(_: Any, state: Any) -> Any:
        x, g, s, y, rho, count = state
        p = _two_loops(g, s, y, rho, count)
        now, slope = value(x), jnp.dot(g, p)

        def short(trial: Any) -> Any:
            length, tries = trial
            return (value(x + length * p) > now + 1e-4 * length * slope) & (tries < 20)

        trial = (jnp.asarray(1.0), jnp.int32(0))
        length = lax.while_loop(short, lambda u: (u[0] * 0.5, u[1] + 1), trial)[0]
        new = x + length * p
        g_new = jax.grad(value)(new)
        ds, dy = new - x, g_new - g
        curve = jnp.dot(ds, dy)
        k = count % MEMORY
        kept = curve > 1e-12
        s, y = s.at[k].set(jnp.where(kept, ds, 0)), y.at[k].set(jnp.where(kept, dy, 0))
        rho = rho.at[k].set(jnp.where(kept, 1 / jnp.where(kept, curve, 1), 0))
        return new, g_new, s, y, rho, count + 1

    def fn(x: Any) -> Any:
        zero = jnp.zeros((MEMORY, size))
        start = (x, jax.grad(value)(x), zero, zero, jnp.zeros(MEMORY), jnp.int32(0))
        return lax.fori_loop(0, steps, step, start)[0]

    return fn, (uniform(generator(), size, low=0.0, high=0.8),)


def phase_similarity() -> Built:
    """Median similarity of the phases of each pixel's history with those of its neighbours.

    After isce-framework/dolphin#545: the replacement of a Numba loop over pixels.
    """
    images, size, radius = 10, 40, 2

    def fn(phases: Any, valid: Any) -> Any:
        unit = jnp.exp(1j * phases)
        wide = jnp.pad(unit, ((0, 0), (radius, radius), (radius, radius)))
        seen = jnp.pad(valid, radius)
        parts = []
        for di in range(-radius, radius + 1):
            for dj in range(-radius, radius + 1):
                if 0 < di * di + dj * dj <= radius * radius:
                    rows = slice(radius + di, radius + di + size)
                    columns = slice(radius + dj, radius + dj + size)
                    match = jnp.mean(jnp.real(unit * jnp.conj(wide[:, rows, columns])), 0)
                    parts.append(jnp.where(seen[rows, columns], match, -1.0))
        return jnp.where(valid, jnp.median(jnp.stack(parts), 0), 0.0)

    rng = generator()
    valid = jnp.asarray(rng.uniform(size=(size, size)) < 0.9)
    return fn, (normal(rng, images, size, size), valid)


REPORTS: tuple[Reported, ...] = (
    Reported("clipped_rows", "dirac-institute/kbmod#863", clipped_rows),
    Reported("incomplete_beta", "jax-ml/jax#28547", incomplete_beta, x64=True),
    Reported("pair_counts", "jax-ml/jax#3002", pair_counts),
    Reported("counter_hash", "jax-ml/jax#37872", counter_hash),
    Reported("worker_values", "QuantEcon/lecture-python.myst#618", worker_values),
    Reported("warped_image", "jax-ml/jax#2282", warped_image),
    Reported("limited_memory", "google-deepmind/optax#1298", limited_memory, x64=True),
    Reported("phase_similarity", "isce-framework/dolphin#545", phase_similarity),
)
"""The programs of this family."""
