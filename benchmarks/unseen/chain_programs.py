"""Loops of many small steps, each after the one before: walks, sampling, annealing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.third_party.common import Builder, Program


def while_running_max() -> Program:
    """Scalar while loop that walks through an array; https://github.com/jax-ml/jax/issues/25190."""
    steps = 2**19

    def episode(values: jax.Array) -> Any:
        stop = jnp.max(values)

        def body(state: Any) -> Any:
            return jnp.maximum(state[0], values[state[1]]), state[1] + 1

        return lax.while_loop(lambda state: state[0] < stop, body, (0, 0))[1]

    return episode, (jnp.arange(steps),)


def nested_while_random() -> Program:
    """While loop that restarts another at random; https://github.com/jax-ml/jax/issues/26616.

    The compiler's side of it is https://github.com/openxla/xla/issues/23110.
    """

    def inner(state: Any) -> Any:
        t, y, theta = state
        return (t + 0.1, y + 0.1, theta)

    def outer(state: Any) -> Any:
        t, y, theta, count = state
        y = jax.random.uniform(jax.random.PRNGKey(count), shape=(1,))
        t, y, _ = lax.while_loop(lambda state: state[1].squeeze() < 2, inner, (t, y, theta))
        return (t, y, theta, count + 1)

    def solve(init: jax.Array, key: jax.Array) -> Any:
        count = jax.random.randint(key, minval=-2, maxval=2, shape=())
        return lax.while_loop(lambda state: state[-1] < 15000, outer, (0.0, init, 5.0, count))

    return solve, (jnp.zeros((1,)), jax.random.PRNGKey(3))


class _Outbreak(NamedTuple):
    infected: jax.Array
    left: jax.Array  # time until the edge passes the infection on
    t: jax.Array


def _infect(state: _Outbreak, _: Any) -> tuple[_Outbreak, Any]:
    n = state.infected.shape[0]
    active = state.infected[:, None] & ~state.infected[None, :]
    left = jnp.where(active, state.left, jnp.inf)
    k = jnp.argmin(left)
    i, j = k // n, k % n
    dt = left[i, j]
    found = jnp.isfinite(dt)
    dt = jnp.where(found, dt, 0.0)
    infected = state.infected.at[j].set(state.infected[j] | found)
    left = jnp.where(active, state.left - dt, state.left)
    t = state.t + dt
    return _Outbreak(infected, left, t), (jnp.where(found, j, -1), t)


def infection_cascade() -> Program:
    """Infections of a network, event by event; https://github.com/jax-ml/jax/issues/2251."""
    n = 50
    rng = np.random.default_rng(7)
    n_edges = n * (n - 1) // 2
    times = rng.geometric(rng.beta(2, 5, size=n_edges)).astype(np.float32)
    times += rng.uniform(0, 0.1, n_edges).astype(np.float32)
    times[rng.uniform(size=n_edges) < 0.7] = np.inf

    def squareform(edges: jax.Array) -> jax.Array:
        half = jnp.zeros((n, n)).at[np.triu_indices(n, 1)].set(edges)
        return half + half.T

    def cascade(left: jax.Array, source: jax.Array) -> Any:
        state = _Outbreak(jnp.zeros(n, bool).at[source].set(True), left, jnp.float32(0))
        _, (order, t) = lax.scan(_infect, state, None, length=n - 1)
        return order, t

    def run(edges: jax.Array, sources: jax.Array) -> Any:
        return lax.map(partial(cascade, squareform(edges)), sources)

    return run, (jnp.asarray(times), jnp.arange(12) * 4)


def _ising_step(beta: jax.Array, _: Any, state: Any) -> Any:
    spins, energy, magnetisation, accepted, key = state
    size = spins.shape[0]
    key, k1, k2 = jax.random.split(key, 3)
    ij = jax.random.randint(k1, (2,), 0, size)
    r, c = ij[0], ij[1]
    neighbours = (
        spins[(r + 1) % size, c]
        + spins[(r - 1) % size, c]
        + spins[r, (c + 1) % size]
        + spins[r, (c - 1) % size]
    )
    s = spins[r, c]
    change = 2 * s * neighbours
    accept = (change <= 0) | (jax.random.uniform(k2) < jnp.exp(-beta * change))

    def flip(args: Any) -> Any:
        spins, energy, magnetisation, accepted = args
        return (
            spins.at[r, c].multiply(-1),
            energy + change,
            magnetisation - 2 * s,
            accepted + 1,
        )

    before = (spins, energy, magnetisation, accepted)
    spins, energy, magnetisation, accepted = lax.cond(accept, flip, lambda a: a, before)
    return spins, energy, magnetisation, accepted, key


def ising_single_flip() -> Program:
    """Metropolis sampling of the 2d Ising model, one spin at a time."""
    size, n_flips = 24, 3000

    def simulate(spins: jax.Array, key: jax.Array, beta: jax.Array) -> Any:
        energy = -jnp.sum(spins * (jnp.roll(spins, 1, 0) + jnp.roll(spins, 1, 1)))
        init = (spins, energy, jnp.sum(spins), jnp.int32(0), key)
        return lax.fori_loop(0, n_flips, partial(_ising_step, beta), init)[:4]

    up = jax.random.bernoulli(jax.random.PRNGKey(0), 0.5, (size, size))
    spins = jnp.where(up, 1, -1).astype(jnp.int32)
    return simulate, (spins, jax.random.PRNGKey(1), jnp.float32(0.44))


def _propensities(x: jax.Array, theta: jax.Array) -> jax.Array:
    prey, predators = x[0], x[1]
    return jnp.stack([theta[0] * prey, theta[1] * prey * predators, theta[2] * predators])


def gillespie_lotka_volterra() -> Program:
    """Gillespie's exact simulation of predators and prey, by vmap over trajectories."""
    stoich = jnp.array([[1, 0], [-1, 1], [0, -1]], jnp.int32)
    n_save, t_end, max_events = 20, 3.0, 600

    def ssa(key: jax.Array, x0: jax.Array, theta: jax.Array) -> Any:
        def going(state: Any) -> Any:
            t, _, _, _, n = state
            return (t < t_end) & (n < max_events)

        def event(state: Any) -> Any:
            t, x, key, history, n = state
            key, k1, k2 = jax.random.split(key, 3)
            a = _propensities(x, theta)
            a0 = jnp.sum(a)
            tau = jax.random.exponential(k1) / jnp.maximum(a0, 1e-8)
            j = jnp.searchsorted(jnp.cumsum(a), jax.random.uniform(k2) * a0)
            j = jnp.minimum(j, 2)
            t = t + tau
            slot = jnp.clip((t / t_end * n_save).astype(jnp.int32), 0, n_save - 1)
            x = jnp.where(a0 > 0, x + stoich[j], x)
            history = history.at[slot].set(x)
            return t, x, key, history, n + 1

        history = jnp.zeros((n_save, 2), jnp.int32)
        init = (jnp.float32(0), x0, key, history, jnp.int32(0))
        t, x, _, history, n = lax.while_loop(going, event, init)
        return t, x, history, n

    keys = jax.random.split(jax.random.PRNGKey(11), 16)
    x0 = jnp.array([50, 40], jnp.int32)
    theta = jnp.array([1.0, 0.02, 0.9])
    return jax.vmap(ssa, in_axes=(0, None, None)), (keys, x0, theta)


def _two_opt(index: jax.Array, tour: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array:
    low, high = jnp.minimum(i, j), jnp.maximum(i, j)
    return tour[jnp.where((index >= low) & (index <= high), low + high - index, index)]


def _swap(tour: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array:
    a, b = tour[i], tour[j]
    return tour.at[i].set(b).at[j].set(a)


def _insert(index: jax.Array, tour: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array:
    city = tour[i]
    source = jnp.where(
        (index >= i) & (index < j),
        index + 1,
        jnp.where((index <= i) & (index > j), index - 1, index),
    )
    return tour[source].at[j].set(city)


def tsp_annealing() -> Program:
    """Simulated annealing of a round trip, with three kinds of moves chosen by a switch."""
    n, n_iter = 64, 1500
    index = jnp.arange(n)
    moves: list[Callable[..., jax.Array]] = [
        partial(_two_opt, index),
        _swap,
        partial(_insert, index),
    ]

    def length(distance: jax.Array, tour: jax.Array) -> jax.Array:
        return jnp.sum(distance[tour, jnp.roll(tour, -1)])

    def anneal(xy: jax.Array, key: jax.Array) -> Any:
        distance = jnp.sqrt(jnp.sum((xy[:, None] - xy[None]) ** 2, -1))

        def step(carry: Any, key: jax.Array) -> Any:
            tour, cost, best_tour, best, temperature = carry
            k1, k2, k3 = jax.random.split(key, 3)
            ij = jax.random.randint(k1, (2,), 0, n)
            move = jax.random.randint(k2, (), 0, 3)
            changed = lax.switch(move, moves, tour, ij[0], ij[1])
            c = length(distance, changed)
            accept = jax.random.uniform(k3) < jnp.exp(-(c - cost) / temperature)
            tour = jnp.where(accept, changed, tour)
            cost = jnp.where(accept, c, cost)
            best_tour, best = lax.cond(cost < best, lambda: (tour, cost), lambda: (best_tour, best))
            return (tour, cost, best_tour, best, temperature * 0.997), cost

        tour = jnp.arange(n)
        cost = length(distance, tour)
        init = (tour, cost, tour, cost, jnp.float32(0.5))
        keys = jax.random.split(key, n_iter)
        (_, _, best_tour, best, _), trace = lax.scan(step, init, keys)
        return best_tour, best, trace[::50]

    xy = jax.random.uniform(jax.random.PRNGKey(2), (n, 2))
    return anneal, (xy, jax.random.PRNGKey(4))


WORKLOADS: dict[str, Builder] = {
    "while-running-max": while_running_max,
    "nested-while-random": nested_while_random,
    "infection-cascade": infection_cascade,
    "ising-single-flip": ising_single_flip,
    "gillespie-lotka-volterra": gillespie_lotka_volterra,
    "tsp-annealing": tsp_annealing,
}
