"""Small programs made of loops, tables updated in place, and control flow."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import integers, normal
from graphopt.corpus.program import Built, ProgramSet

LOOPS = ProgramSet()

Arrays = tuple[Array, ...]
Pair = tuple[Array, Array]
Triple = tuple[Array, Array, Array]


@LOOPS.register("fibonacci", family="loop", description="u32[48] table in place, swapped carries")
def _fibonacci() -> Built:
    def fn(a: Array, b: Array) -> Arrays:
        def body(i: Array, state: Arrays) -> Arrays:
            table, a, b = state
            table = lax.dynamic_update_index_in_dim(table, table[i - 1] + table[i - 2], i, 0)
            return table, b, a + b

        table = jnp.zeros(48, jnp.uint32).at[0].set(a).at[1].set(b)
        table, a, b = lax.fori_loop(2, 48, body, (table, a, b))
        first, second = lax.fori_loop(0, 7, lambda _, pair: (pair[1], pair[0]), (a, table[5]))
        return table, a, b, first, second, table[-1] == b

    return fn, (np.uint32(0), np.uint32(1))


@LOOPS.register("life_sweep", family="loop", description="in-place cellular sweep, i8[18,16] grid")
def _life_sweep() -> Built:
    def fn(grid: Array, generations: Array) -> Arrays:
        def row(i: Array, grid: Array) -> Array:
            columns = jnp.sum(lax.dynamic_slice(grid, (i - 1, 0), (3, 16)), axis=0, dtype=jnp.int8)
            alive = grid[i] > 0
            near = columns + jnp.roll(columns, 1) + jnp.roll(columns, -1) - grid[i]
            fresh = (near == 3) | (alive & (near == 2))
            return grid.at[i].set(fresh.astype(jnp.int8))

        def sweep(_: Array, grid: Array) -> Array:
            swept: Array = lax.fori_loop(1, 17, row, grid)
            return swept

        return lax.fori_loop(0, 5, sweep, grid), lax.fori_loop(0, generations, sweep, grid)

    return fn, (integers(2, 18, 16, dtype=np.int8), np.int32(3))


@LOOPS.register(
    "gauss_seidel", family="loop", description="in-place relaxation, f32[32], 60 writes"
)
def _gauss_seidel() -> Built:
    def fn(x: Array, b: Array) -> Arrays:
        def body(t: Array, state: Arrays) -> Arrays:
            x, moved = state
            i = 1 + t % 30
            fresh = 0.5 * (x[i - 1] + x[i + 1] + b[i])
            return x.at[i].set(fresh), moved + jnp.abs(fresh - x[i])

        x2, moved = lax.fori_loop(0, 60, body, (x, jnp.float32(0.0)))
        back = lax.fori_loop(0, 31, lambda i, y: y.at[i].set(0.5 * y[31 - i] + y[i + 1]), x)
        return x2, moved, back, x2 - x

    return fn, (normal(32), 0.1 * normal(32, seed=1))


@LOOPS.register("twin_carry", family="loop", description="one f32[12] array starts both carries")
def _twin_carry() -> Built:
    def fn(x: Array) -> Arrays:
        def body(i: Array, pair: Arrays) -> Arrays:
            a, b = pair
            return a.at[i].set(b[11 - i] - a[i]), b.at[11 - i].set(0.5 * (a[i] + b[i]))

        def swap(_: Array, pair: Arrays) -> Arrays:
            old, now = pair
            return now, 1.8 * now - old + 0.1 * (jnp.roll(now, 1) + jnp.roll(now, -1))

        return *lax.fori_loop(0, 12, body, (x, x)), *lax.fori_loop(0, 9, swap, (x, x)), x

    return fn, (normal(12),)


@LOOPS.register("ring_buffer", family="loop", description="comb filter with an f32[8,4] delay line")
def _ring_buffer() -> Built:
    def fn(xs: Array, gain: Array) -> Arrays:
        def step(carry: Pair, x: Array) -> tuple[Pair, Arrays]:
            line, t = carry
            slot = t % 8
            y = x + gain * lax.dynamic_index_in_dim(line, slot, keepdims=False)
            recent = lax.dynamic_slice(line, ((t + 5) % 8, 1), (2, 2))
            return (line.at[slot].set(y), t + 1), (y, jnp.max(recent), line[(t - 1) % 8])

        (line, count), outputs = lax.scan(step, (jnp.zeros((8, 4), xs.dtype), jnp.int32(0)), xs)
        return line, count, *outputs

    return fn, (normal(30, 4), np.float32(0.6))


@LOOPS.register("shared_zeros", family="loop", description="f32[16] zeros start several loops")
def _shared_zeros() -> Built:
    def fn(xs: Array, bins: Array) -> Arrays:
        zeros = jnp.zeros(16, jnp.float32)
        total, sums = lax.scan(lambda acc, x: (acc + x, acc), zeros, xs)
        table = lax.fori_loop(0, 16, lambda i, t: t.at[i].set(xs[i % 5, i] + t[i - 1]), zeros)
        counts = lax.fori_loop(0, 20, lambda i, t: t.at[bins[i]].add(1.0), zeros)
        pair = lax.fori_loop(0, 5, lambda i, p: (p[0] + xs[i], p[1] - p[0]), (zeros, zeros))
        return zeros, total, sums, table, counts, *pair, zeros

    return fn, (normal(5, 16), integers(16, 20))


@LOOPS.register("unrolled_scan", family="loop", description="18 steps unrolled by 4, f32[6] carry")
def _unrolled_scan() -> Built:
    def fn(h: Array, xs: Array) -> Arrays:
        def step(carry: Pair, x: Array) -> tuple[Pair, Array]:
            h, low = carry
            h = 0.7 * h[::-1] + jnp.sin(x)
            return (h, jnp.minimum(low, h)), h * x

        (h, low), ys = lax.scan(step, (h, h), xs, unroll=4)
        (_, high), zs = lax.scan(step, (low, h), xs[:8], unroll=4, reverse=True)
        return h, low, high, ys, zs

    return fn, (normal(6), normal(18, 6))


@LOOPS.register("substitution", family="loop", description="triangular trip counts, f32[10] solve")
def _substitution() -> Built:
    def fn(lower: Array, b: Array) -> Arrays:
        def solve(i: Array, x: Array) -> Array:
            dot = lax.fori_loop(0, i, lambda j, s: s + lower[i, j] * x[j], jnp.float32(0.0))
            return x.at[i].set((b[i] - dot) / lower[i, i])

        x = lax.fori_loop(0, 10, solve, jnp.zeros(10, jnp.float32))
        direct = lax.linalg.triangular_solve(lower, b[:, None], left_side=True, lower=True)
        return x, direct[:, 0], lower @ x

    return fn, (np.tril(0.2 * normal(10, 10)) + 2 * np.eye(10, dtype=np.float32), normal(10))


@LOOPS.register("collatz", family="loop", description="unknown trip counts over u32[16], nested")
def _collatz() -> Built:
    def fn(starts: Array) -> Arrays:
        def step(state: Triple) -> Triple:
            n, count, peak = state
            n = jnp.where(n % 2 == 0, n // 2, 3 * n + 1)
            return n, count + 1, jnp.maximum(peak, n)

        def single(n: Array) -> Array:
            count: Array = lax.while_loop(lambda s: s[0] > 1, step, (n, jnp.int32(0), n))[1]
            return count

        count = jnp.zeros(starts.shape, jnp.int32)
        every = lax.while_loop(lambda s: jnp.any(s[0] > 5), step, (starts, count, starts))
        return *every, lax.map(single, starts), jax.vmap(single)(starts[:5])

    return fn, (1 + integers(60, 16, dtype=np.uint32),)


@LOOPS.register("clustering", family="loop", description="8 k-means rounds of f32[24,2] points")
def _clustering() -> Built:
    def fn(points: Array, centres: Array) -> Arrays:
        def nearest(centres: Array) -> Array:
            return jnp.argmin(jnp.sum((points[:, None] - centres) ** 2, axis=-1), axis=1)

        def refine(_: Array, centres: Array) -> Array:
            member = jax.nn.one_hot(nearest(centres), 3)
            return member.T @ points / jnp.maximum(jnp.sum(member, axis=0), 1.0)[:, None]

        centres = lax.fori_loop(0, 8, refine, centres)
        return centres, nearest(centres), jnp.bincount(nearest(centres), length=3)

    points = 0.3 * normal(24, 2) + np.repeat(
        np.array([[0, 0], [4, 1], [-1, 5]], np.float32), 8, axis=0
    )
    return fn, (points, points[3::8].copy())


@LOOPS.register("knapsack", family="table", description="0/1 knapsack, i32[13,65] table, backtrack")
def _knapsack() -> Built:
    def fn(weights: Array, values: Array) -> Arrays:
        def fill(i: Array, table: Array) -> Array:
            room = jnp.arange(65) - weights[i]
            taken = jnp.where(room >= 0, table[i][jnp.maximum(room, 0)] + values[i], 0)
            return lax.dynamic_update_slice(table, jnp.maximum(table[i], taken)[None], (i + 1, 0))

        def trace(room: Array, i: Array) -> tuple[Array, Array]:
            used = table[i + 1, room] != table[i, room]
            return room - jnp.where(used, weights[i], 0), used

        table = lax.fori_loop(0, 12, fill, jnp.zeros((13, 65), jnp.int32))
        spare, used = lax.scan(trace, jnp.int32(64), jnp.arange(12), reverse=True)
        return table, spare, used, jnp.sum(used * values) == table[-1, -1]

    return fn, (1 + integers(20, 12), 1 + integers(50, 12))


@LOOPS.register(
    "edit_distance", family="table", description="nested loops over an i32[13,11] table"
)
def _edit_distance() -> Built:
    def fn(left: Array, right: Array) -> Arrays:
        def cell(i: Array, j: Array, table: Array) -> Array:
            change = table[i - 1, j - 1] + (left[i - 1] != right[j - 1])
            skip = 1 + jnp.minimum(table[i - 1, j], table[i, j - 1])
            return table.at[i, j].set(jnp.minimum(change, skip))

        def row(i: Array, table: Array) -> Array:
            filled: Array = lax.fori_loop(1, 11, lambda j, t: cell(i, j, t), table)
            return filled

        start = jnp.maximum(jnp.arange(13)[:, None], jnp.arange(11))
        table = lax.fori_loop(1, 13, row, start)
        return table, table[-1, -1], jnp.argmin(table[1:] * 16 + jnp.arange(11), axis=1)

    return fn, (integers(3, 12), integers(3, 10))


@LOOPS.register("viterbi", family="table", description="max-plus scan and backtrack, f32[15,6]")
def _viterbi() -> Built:
    def fn(change: Array, emit: Array) -> Arrays:
        def forward(score: Array, gain: Array) -> tuple[Array, Array]:
            paths = score[:, None] + change
            return jnp.max(paths, axis=0) + gain, jnp.argmax(paths, axis=0)

        score, back = lax.scan(forward, emit[0], emit[1:])
        last = jnp.argmax(score)
        first, path = lax.scan(lambda s, row: (row[s], s), last, back, reverse=True)
        soft = lax.scan(lambda s, g: (jax.nn.logsumexp(s[:, None] + change, 0) + g, s), score, emit)
        return score, back, jnp.concatenate([first[None], path]), *soft

    return fn, (normal(6, 6), normal(15, 6))


@LOOPS.register(
    "safe_newton", family="control", description="f32[] while loop with a lax.cond in it"
)
def _safe_newton() -> Built:
    def fn(low: Array, high: Array, a: Array) -> Arrays:
        def wide(state: Triple) -> Array:
            return (state[1] - state[0] > 1e-3) & (state[2] < 40)

        def body(state: Triple) -> Triple:
            low, high, count = state
            middle = 0.5 * (low + high)
            below = middle**3 - a * middle - 5.0 < 0.0
            low, high = lax.cond(below, lambda: (middle, high), lambda: (low, middle))
            return low, high, count + 1

        low, high, count = lax.while_loop(wide, body, (low, high, jnp.int32(0)))
        x = lax.fori_loop(0, 3, lambda _, x: x - (x**3 - a * x - 5.0) / (3 * x * x - a), low)
        return low, high, count, lax.cond(x > 2.0, jnp.sqrt, jnp.square, x), x

    return fn, (np.float32(1.0), np.float32(4.0), np.float32(2.0))


@LOOPS.register("stack_machine", family="control", description="lax.switch in a scan, f32[8] state")
def _stack_machine() -> Built:
    def fn(codes: Array, x: Array) -> Any:
        branches = (
            lambda s: jnp.roll(s, 1),
            lambda s: s.at[0].set(jnp.tanh(s[1] * s[2])),
            lambda s: jnp.sin(s) + s[::-1],
        )

        def loss(x: Array) -> tuple[Array, Arrays]:
            last, trace = lax.scan(lambda s, c: (lax.switch(c, branches, s), s[0]), x, codes)
            last = lax.cond(codes[0] > 1, jnp.sin, jnp.cos, last)
            return jnp.sum(last * trace[5]), (last, trace)

        return jax.value_and_grad(loss, has_aux=True)(x)

    return fn, (integers(3, 20), 0.5 * normal(8))


@LOOPS.register("scan_grad", family="gradient", description="remat tanh RNN, 16 steps of f32[4,8]")
def _scan_grad() -> Built:
    def loss(w: Array, h: Array, xs: Array) -> tuple[Array, Array]:
        @jax.checkpoint
        def step(h: Array, x: Array) -> tuple[Array, Array]:
            h = jnp.tanh(h @ w + x)
            return h, jnp.mean(h * h)

        last, energies = lax.scan(step, h, xs)
        return jnp.sum(energies), last

    grad = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
    return grad, (0.3 * normal(8, 8), normal(4, 8), normal(16, 4, 8))


@LOOPS.register("momentum_train", family="gradient", description="12 SGD steps in a scan, f32[8,8]")
def _momentum_train() -> Built:
    def loss(w: Arrays, x: Array) -> Array:
        return jnp.mean((jax.nn.silu(x @ w[0]) @ w[1] - jnp.sin(x)) ** 2)

    def fn(w: Arrays, batches: Array) -> tuple[Arrays, Array]:
        def step(carry: tuple[Arrays, Arrays], x: Array) -> tuple[tuple[Arrays, Arrays], Array]:
            w, speed = carry
            value, slope = jax.value_and_grad(loss)(w, x)
            speed = jax.tree.map(lambda s, g: 0.9 * s - 0.02 * g, speed, slope)
            return (jax.tree.map(jnp.add, w, speed), speed), value

        (w, _), losses = lax.scan(step, (w, jax.tree.map(jnp.zeros_like, w)), batches)
        return w, losses

    return fn, ((0.3 * normal(8, 16), 0.3 * normal(16, 8)), normal(12, 4, 8))


@LOOPS.register(
    "shared_outputs", family="outputs", description="aliased outputs of f32[6,4] inputs"
)
def _shared_outputs() -> Built:
    def fn(x: Array, y: Array, k: Array) -> dict[str, Any]:
        z = jnp.exp(-x * x) + y
        last, ys = lax.scan(lambda c, row: (c, row + c), x[0], z)
        views = (z, z, z.reshape(24), z.reshape(2, 3, 4), z.T, z.T.T, z.reshape(-1).reshape(6, 4))
        kept = {"x": x, "k": k, "again": (x, x.reshape(4, 6), x + 0), "flag": jnp.bool_(True)}
        return {**kept, "views": views, "ys": ys, "last": last, "k1": k + 1, "k2": 1 + k}

    return fn, (normal(6, 4), normal(6, 4, seed=1), np.int32(3))


@LOOPS.register(
    "recurrent_products",
    family="loop",
    description="f32[5,48] state, long and turned sums, 6 steps",
)
def _recurrent_products() -> Built:
    def fn(w: Array, u: Array, state: Array) -> Pair:
        def step(state: Array, _: None) -> Pair:
            inner = jnp.tanh(state @ w)
            state = 0.5 * state + lax.dot_general(inner, u, (((1,), (1,)), ((), ())))
            return state, inner.sum(axis=0)

        return lax.scan(step, state, None, length=6)

    return fn, (0.2 * normal(48, 20), 0.2 * normal(48, 20, seed=1), normal(5, 48, seed=2))


@LOOPS.register(
    "flat_state", family="loop", description="f32[96] state seen as rows, 7 steps, its mirror read"
)
def _flat_state() -> Built:
    def fn(state: Array, row: Array) -> tuple[Pair, Pair]:
        def step(carry: Pair, _: None) -> tuple[Pair, Pair]:
            state, momentum = carry
            rows = state.reshape(8, 12)
            force = jnp.sin(rows) - rows * row
            momentum = (0.9 * momentum.reshape(12, 8).T.reshape(8, 12) + force).reshape(-1)
            moved = (rows + 0.1 * force).reshape(-1)
            return (moved, momentum), (state @ state[::-1], momentum.reshape(4, 24).max(axis=1))

        return lax.scan(step, (state, jnp.cos(state)), None, length=7)

    return fn, (normal(96), normal(12, seed=1))


@LOOPS.register("keys_in_loops", family="loop", description="draws from a carried and a folded key")
def _keys_in_loops() -> Built:
    def fn(seed: Array, x: Array) -> tuple[Array, Pair]:
        root = jax.random.key(seed)

        def step(x: Array, i: Array) -> tuple[Array, Pair]:
            kick, accept = jax.random.split(jax.random.fold_in(root, i))
            moved = x + 0.3 * jax.random.normal(kick, x.shape)
            taken = jax.random.uniform(accept, x.shape) < jnp.exp(jnp.abs(x) - jnp.abs(moved))
            x = jnp.where(taken, moved, x)
            return x, (x.sum(), jax.random.bits(kick, (2,)) >> 9)

        return lax.scan(step, x, jnp.arange(9))

    return fn, (np.uint32(3), normal(13))


@LOOPS.register("small_functions", family="loop", description="functions of ten small arrays")
def _small_functions() -> Built:
    def fn(state: Arrays, drive: Array) -> tuple[Arrays, Array]:
        def step(state: Arrays, seen: Array) -> tuple[Arrays, Array]:
            rates = [jax.nn.softplus(x) * jnp.tanh(x - seen) for x in state]
            total = sum((jnp.exp(-(rate**2)).sum() for rate in rates), jnp.log1p(seen**2))
            return tuple(0.9 * x + 0.1 * r for x, r in zip(state, rates, strict=True)), total

        return lax.scan(step, state, drive)

    shapes: tuple[tuple[int, ...], ...] = ((), (), (5,), (2, 3), (9,), (1, 4), (), (7,), (3, 3), ())
    return fn, (tuple(normal(*dims, seed=i) for i, dims in enumerate(shapes)), normal(6, seed=11))
