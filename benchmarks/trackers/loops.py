"""Loops whose body is a few scalar operations or a small write."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal, uniform


def quadratic_map() -> Built:
    """Path of a quadratic map, one number written into a long array per step of the loop.

    After jax-ml/jax#40101: the small write costs as much as the whole array.
    """
    steps = 40_000

    def fn(start: Any, rate: Any) -> Any:
        path = jnp.zeros(steps + 1).at[0].set(start)

        def step(t: Any, path: Any) -> Any:
            return path.at[t + 1].set(rate * path[t] * (1 - path[t]))

        return lax.fori_loop(0, steps, step, path)

    return fn, (jnp.float32(0.2), jnp.float32(3.2))


def batched_fill() -> Built:
    """Scan which fills an array element by element under a condition, for two arrays by vmap.

    After jax-ml/jax#8192: one array takes linear time, the batch quadratic time.
    """
    size = 2000

    def fill(values: Any, first: Any, offset: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            values, t = carry
            values = lax.cond(
                t < size, lambda v: v.at[t].set(v[t] * 0.5 + offset), lambda v: v, values
            )
            return (values, t + 1), None

        return lax.scan(step, (values, first), None, length=size)[0][0]

    rng = generator()
    first = jnp.array([0, 7], jnp.int32)
    return jax.vmap(fill), (normal(rng, 2, size), first, normal(rng, 2))


def nested_matmul() -> Built:
    """Product of two small matrices by three nested loops over scalars.

    After jax-ml/jax#1811: over a hundred times slower than the built-in product.
    """
    size = 20

    def fn(a: Any, b: Any) -> Any:
        def row(i: Any, out: Any) -> Any:
            def column(j: Any, out: Any) -> Any:
                def add(k: Any, out: Any) -> Any:
                    return out.at[i, j].add(a[i, k] * b[k, j])

                return lax.fori_loop(0, size, add, out)

            return lax.fori_loop(0, size, column, out)

        return lax.fori_loop(0, size, row, jnp.zeros((size, size)))

    rng = generator()
    return fn, (normal(rng, size, size), normal(rng, size, size))


def stopping_times() -> Built:
    """Length of job search until an offer beats the reservation wage, for many searchers by vmap.

    After QuantEcon/lecture-python.myst#663: a while loop per searcher is slower than in Numba.
    """
    searchers, limit = 4000, 100

    def search(offers: Any, reservation: Any) -> Any:
        def refused(state: Any) -> Any:
            return (state[1] < reservation) & (state[0] < limit)

        def draw(state: Any) -> Any:
            return state[0] + 1, offers[state[0]]

        return lax.while_loop(refused, draw, (jnp.int32(0), jnp.float32(-1.0)))[0]

    def fn(offers: Any, reservation: Any) -> Any:
        times = jax.vmap(search, (0, None))(offers, reservation)
        return times, jnp.mean(times.astype(jnp.float32))

    offers = jnp.asarray(generator().uniform(10, 60, (searchers, limit)), jnp.float32)
    return fn, (offers, jnp.float32(54.0))


def call_option() -> Built:
    """Value of a perpetual option on a Markov chain with 25 states, iterated until it settles.

    After QuantEcon/lecture-python.myst#654: hundreds of tiny products in a while loop, slower than NumPy.
    """
    states = 25

    def fn(transition: Any, prices: Any, strike: Any) -> Any:
        def settled(state: Any) -> Any:
            return (state[1] > 1e-8) & (state[2] < 1000)

        def step(state: Any) -> Any:
            value, _, count = state
            new = jnp.maximum(0.95 * transition @ value, prices - strike)
            return new, jnp.max(jnp.abs(new - value)), count + 1

        start = (jnp.zeros(states), jnp.asarray(1.0), jnp.int32(0))
        return lax.while_loop(settled, step, start)[0]

    grid = np.linspace(-1, 1, states)
    weights = np.exp(-0.5 * ((grid[None, :] - 0.9 * grid[:, None]) / 0.15) ** 2)
    weights /= weights.sum(1, keepdims=True)
    return fn, (jnp.asarray(weights), jnp.asarray(40 * np.exp(grid)), jnp.asarray(40.0))


def rating_updates() -> Built:
    """Ratings of players after a list of games: two players are read and written per game.

    After jax-ml/jax#817: the Glicko rating system is far slower than in Numba.
    """
    players, games = 200, 2000
    q = np.log(10) / 400

    def weight(variance: Any) -> Any:
        return 1 / jnp.sqrt(1 + 3 * q**2 * variance / np.pi**2)

    def updated(mean: Any, variance: Any, other: Any, spread: Any, score: Any) -> Any:
        g = weight(spread)
        expected = 1 / (1 + 10 ** (-g * (mean - other) / 400))
        information = q**2 * g**2 * expected * (1 - expected)
        variance = 1 / (1 / variance + information)
        return mean + q * variance * g * (score - expected), variance

    def fn(first: Any, second: Any, score: Any) -> Any:
        def game(state: Any, one: Any) -> Any:
            means, variances = state
            i, j, s = one
            a, va, b, vb = means[i], variances[i], means[j], variances[j]
            a_new, va_new = updated(a, va, b, vb, s)
            b_new, vb_new = updated(b, vb, a, va, 1 - s)
            means = means.at[i].set(a_new).at[j].set(b_new)
            return (means, variances.at[i].set(va_new).at[j].set(vb_new)), a_new - b_new

        start = (jnp.full(players, 1500.0), jnp.full(players, 350.0**2))
        return lax.scan(game, start, (first, second, score))

    rng = generator()
    first = rng.integers(0, players, games)
    second = (first + rng.integers(1, players, games)) % players
    score = jnp.asarray(rng.integers(0, 2, games), jnp.float32)
    return fn, (jnp.asarray(first, jnp.int32), jnp.asarray(second, jnp.int32), score)


def column_solves() -> Built:
    """Tridiagonal systems in the columns of a grid, by a scan down and a scan up.

    After jax-ml/jax#2491: the scans of the ocean model's solver are slower than expected.
    """
    depth, columns = 60, (48, 48)

    def fn(lower: Any, main: Any, upper: Any, right: Any) -> Any:
        def down(carry: Any, one: Any) -> Any:
            c, d = carry
            a, b, u, r = one
            scale = 1 / (b - a * c)
            c, d = u * scale, (r - a * d) * scale
            return (c, d), (c, d)

        def up(x: Any, one: Any) -> Any:
            c, d = one
            x = d - c * x
            return x, x

        zero = jnp.zeros(columns, main.dtype)
        swept = lax.scan(down, (zero, zero), (lower, main, upper, right))[1]
        return lax.scan(up, zero, swept, reverse=True)[1]

    rng = generator()
    lower, upper, right = (uniform(rng, depth, *columns, low=-1.0) for _ in range(3))
    return fn, (lower, 3 + uniform(rng, depth, *columns), upper, right)


REPORTS: tuple[Reported, ...] = (
    Reported("quadratic_map", "jax-ml/jax#40101", quadratic_map),
    Reported("batched_fill", "jax-ml/jax#8192", batched_fill),
    Reported("nested_matmul", "jax-ml/jax#1811", nested_matmul),
    Reported("stopping_times", "QuantEcon/lecture-python.myst#663", stopping_times),
    Reported("call_option", "QuantEcon/lecture-python.myst#654", call_option, x64=True),
    Reported("rating_updates", "jax-ml/jax#817", rating_updates),
    Reported("column_solves", "jax-ml/jax#2491", column_solves, x64=True),
)
"""The programs of this family."""
