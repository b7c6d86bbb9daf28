"""Small programs whose loops read and update arrays that they carry."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import integers, normal
from graphopt.corpus.program import Built, ProgramSet

CARRIED = ProgramSet()

Pair = tuple[Array, Array]
Place = tuple[Array, Array, Array]


@CARRIED.register(
    "exchanges", family="loop", description="rows of f32[24,3] change places, 40 times"
)
def _exchanges() -> Built:
    def fn(x: Array, seen: Array) -> Pair:
        def step(i: Array, state: Pair) -> Pair:
            x, seen = state
            a, b = (5 * i + 2) % 24, (7 * i) % 24
            x = x.at[a].set(x[b]).at[b].set(0.9 * x[a])
            return x, seen.at[b].add(x[(a + 1) % 24].sum())

        out: Pair = lax.fori_loop(0, 40, step, (x, seen))
        return out

    return fn, (normal(24, 3), normal(24, seed=1))


@CARRIED.register(
    "heap", family="loop", description="s32[40] heap: an entry rises past its parents"
)
def _heap() -> Built:
    def fn(keys: Array, values: Array) -> Pair:
        def rises(state: Place) -> Array:
            keys, _, at = state
            return (at > 0) & (keys[at] < keys[(at - 1) // 2])

        def rise(state: Place) -> Place:
            keys, values, at = state
            up = (at - 1) // 2
            keys = keys.at[at].set(keys[up]).at[up].set(keys[at])
            return keys, values.at[at].set(values[up]).at[up].set(values[at]), up

        def push(i: Array, state: Pair) -> Pair:
            keys, values, _ = lax.while_loop(rises, rise, (*state, i))
            return keys, values

        out: Pair = lax.fori_loop(0, 40, push, (keys, values))
        return out

    return fn, (integers(100, 40), normal(40, seed=1))


@CARRIED.register(
    "walkers", family="loop", description="two s32[9,9] grids, each changed by the other"
)
def _walkers() -> Built:
    def fn(x: Array, y: Array, start: Array) -> tuple[Pair, Array]:
        def step(state: tuple[Array, Array, Array], i: Array) -> tuple[Place, Array]:
            x, y, at = state
            r, c = at // 9, at % 9
            here, there = x[r, c], y[c, r]
            x, y = x.at[r, c].set((3 * there + here) % 17), y.at[c, r].set(here + y[r, (c + i) % 9])
            at = (at + jnp.where(here > there, 10, 4)) % 81
            return (x, y, at), x[c].sum()

        (x, y, _), sums = lax.scan(step, (x, y, start), jnp.arange(30))
        return (x, y), sums

    return fn, (integers(17, 9, 9), integers(19, 9, 9), np.int32(5))
