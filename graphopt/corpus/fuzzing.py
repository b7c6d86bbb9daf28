"""Small programs that together cover the operations and loop shapes of real code.

Each compiles in well under a second and runs in a few milliseconds at most.  All are well
conditioned: a rounding error in an operation never decides an index, a branch or a trip count.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.program import Built, ProgramSet

FUZZ = ProgramSet()

Arrays = tuple[Array, ...]
Pair = tuple[Array, Array]
Triple = tuple[Array, Array, Array]


def _normal(*shape: int, seed: int = 0) -> Any:
    """Draw f32[*shape] from a normal distribution; other shapes or seeds give unrelated values."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _integers(high: int, *shape: int, dtype: Any = np.int32) -> Any:
    """Draw an array of integers in [0, high) of the given shape and dtype."""
    return np.random.default_rng([high, *shape]).integers(0, high, shape).astype(dtype)


@FUZZ.register("fibonacci", family="loop", description="u32[48] table in place, swapped carries")
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


@FUZZ.register("life_sweep", family="loop", description="in-place cellular sweep, i8[18,16] grid")
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

    return fn, (_integers(2, 18, 16, dtype=np.int8), np.int32(3))


@FUZZ.register("gauss_seidel", family="loop", description="in-place relaxation, f32[32], 60 writes")
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

    return fn, (_normal(32), 0.1 * _normal(32, seed=1))


@FUZZ.register("twin_carry", family="loop", description="one f32[12] array starts both carries")
def _twin_carry() -> Built:
    def fn(x: Array) -> Arrays:
        def body(i: Array, pair: Arrays) -> Arrays:
            a, b = pair
            return a.at[i].set(b[11 - i] - a[i]), b.at[11 - i].set(0.5 * (a[i] + b[i]))

        def swap(_: Array, pair: Arrays) -> Arrays:
            old, now = pair
            return now, 1.8 * now - old + 0.1 * (jnp.roll(now, 1) + jnp.roll(now, -1))

        return *lax.fori_loop(0, 12, body, (x, x)), *lax.fori_loop(0, 9, swap, (x, x)), x

    return fn, (_normal(12),)


@FUZZ.register("ring_buffer", family="loop", description="comb filter with an f32[8,4] delay line")
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

    return fn, (_normal(30, 4), np.float32(0.6))


@FUZZ.register("shared_zeros", family="loop", description="f32[16] zeros start several loops")
def _shared_zeros() -> Built:
    def fn(xs: Array, bins: Array) -> Arrays:
        zeros = jnp.zeros(16, jnp.float32)
        total, sums = lax.scan(lambda acc, x: (acc + x, acc), zeros, xs)
        table = lax.fori_loop(0, 16, lambda i, t: t.at[i].set(xs[i % 5, i] + t[i - 1]), zeros)
        counts = lax.fori_loop(0, 20, lambda i, t: t.at[bins[i]].add(1.0), zeros)
        pair = lax.fori_loop(0, 5, lambda i, p: (p[0] + xs[i], p[1] - p[0]), (zeros, zeros))
        return zeros, total, sums, table, counts, *pair, zeros

    return fn, (_normal(5, 16), _integers(16, 20))


@FUZZ.register("unrolled_scan", family="loop", description="18 steps unrolled by 4, f32[6] carry")
def _unrolled_scan() -> Built:
    def fn(h: Array, xs: Array) -> Arrays:
        def step(carry: Pair, x: Array) -> tuple[Pair, Array]:
            h, low = carry
            h = 0.7 * h[::-1] + jnp.sin(x)
            return (h, jnp.minimum(low, h)), h * x

        (h, low), ys = lax.scan(step, (h, h), xs, unroll=4)
        (_, high), zs = lax.scan(step, (low, h), xs[:8], unroll=4, reverse=True)
        return h, low, high, ys, zs

    return fn, (_normal(6), _normal(18, 6))


@FUZZ.register("substitution", family="loop", description="triangular trip counts, f32[10] solve")
def _substitution() -> Built:
    def fn(lower: Array, b: Array) -> Arrays:
        def solve(i: Array, x: Array) -> Array:
            dot = lax.fori_loop(0, i, lambda j, s: s + lower[i, j] * x[j], jnp.float32(0.0))
            return x.at[i].set((b[i] - dot) / lower[i, i])

        x = lax.fori_loop(0, 10, solve, jnp.zeros(10, jnp.float32))
        direct = lax.linalg.triangular_solve(lower, b[:, None], left_side=True, lower=True)
        return x, direct[:, 0], lower @ x

    return fn, (np.tril(0.2 * _normal(10, 10)) + 2 * np.eye(10, dtype=np.float32), _normal(10))


@FUZZ.register("collatz", family="loop", description="unknown trip counts over u32[16], nested")
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

    return fn, (1 + _integers(60, 16, dtype=np.uint32),)


@FUZZ.register("clustering", family="loop", description="8 k-means rounds of f32[24,2] points")
def _clustering() -> Built:
    def fn(points: Array, centres: Array) -> Arrays:
        def nearest(centres: Array) -> Array:
            return jnp.argmin(jnp.sum((points[:, None] - centres) ** 2, axis=-1), axis=1)

        def refine(_: Array, centres: Array) -> Array:
            member = jax.nn.one_hot(nearest(centres), 3)
            return member.T @ points / jnp.maximum(jnp.sum(member, axis=0), 1.0)[:, None]

        centres = lax.fori_loop(0, 8, refine, centres)
        return centres, nearest(centres), jnp.bincount(nearest(centres), length=3)

    points = 0.3 * _normal(24, 2) + np.repeat(
        np.array([[0, 0], [4, 1], [-1, 5]], np.float32), 8, axis=0
    )
    return fn, (points, points[3::8].copy())


@FUZZ.register("knapsack", family="table", description="0/1 knapsack, i32[13,65] table, backtrack")
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

    return fn, (1 + _integers(20, 12), 1 + _integers(50, 12))


@FUZZ.register("edit_distance", family="table", description="nested loops over an i32[13,11] table")
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

    return fn, (_integers(3, 12), _integers(3, 10))


@FUZZ.register("viterbi", family="table", description="max-plus scan and backtrack, f32[15,6]")
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

    return fn, (_normal(6, 6), _normal(15, 6))


@FUZZ.register(
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


@FUZZ.register("stack_machine", family="control", description="lax.switch in a scan, f32[8] state")
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

    return fn, (_integers(3, 20), 0.5 * _normal(8))


@FUZZ.register("scan_grad", family="gradient", description="remat tanh RNN, 16 steps of f32[4,8]")
def _scan_grad() -> Built:
    def loss(w: Array, h: Array, xs: Array) -> tuple[Array, Array]:
        @jax.checkpoint
        def step(h: Array, x: Array) -> tuple[Array, Array]:
            h = jnp.tanh(h @ w + x)
            return h, jnp.mean(h * h)

        last, energies = lax.scan(step, h, xs)
        return jnp.sum(energies), last

    grad = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
    return grad, (0.3 * _normal(8, 8), _normal(4, 8), _normal(16, 4, 8))


@FUZZ.register("momentum_train", family="gradient", description="12 SGD steps in a scan, f32[8,8]")
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

    return fn, ((0.3 * _normal(8, 16), 0.3 * _normal(16, 8)), _normal(12, 4, 8))


@FUZZ.register("shared_outputs", family="outputs", description="aliased outputs of f32[6,4] inputs")
def _shared_outputs() -> Built:
    def fn(x: Array, y: Array, k: Array) -> dict[str, Any]:
        z = jnp.exp(-x * x) + y
        last, ys = lax.scan(lambda c, row: (c, row + c), x[0], z)
        views = (z, z, z.reshape(24), z.reshape(2, 3, 4), z.T, z.T.T, z.reshape(-1).reshape(6, 4))
        kept = {"x": x, "k": k, "again": (x, x.reshape(4, 6), x + 0), "flag": jnp.bool_(True)}
        return {**kept, "views": views, "ys": ys, "last": last, "k1": k + 1, "k2": 1 + k}

    return fn, (_normal(6, 4), _normal(6, 4, seed=1), np.int32(3))


@FUZZ.register("mlp_grad", family="gradient", description="cross-entropy MLP, f32[16,8] inputs")
def _mlp_grad() -> Built:
    def loss(params: Arrays, x: Array, labels: Array) -> Array:
        w1, b1, w2, b2 = params
        scores = jax.nn.log_softmax(jnp.tanh(x @ w1 + b1) @ w2 + b2)
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))

    params = (_normal(8, 32), _normal(32), _normal(32, 4), _normal(4))
    return jax.value_and_grad(loss), (params, _normal(16, 8), _integers(4, 16))


@FUZZ.register("conv_grad", family="convolution", description="CNN with two poolings, f32[2,8,8,3]")
def _conv_grad() -> Built:
    def loss(w: Array, x: Array) -> Array:
        layout = ("NHWC", "HWIO", "NHWC")
        y = jnp.tanh(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout))
        window = (1, 2, 2, 1)
        peak = lax.reduce_window(y, -jnp.inf, lax.max, window, window, "VALID")
        mean = lax.reduce_window(y, 0.0, lax.add, (1, 3, 3, 1), window, "SAME") / 9.0
        return jnp.sum(peak * mean)

    return jax.value_and_grad(loss, argnums=(0, 1)), (_normal(3, 3, 3, 4), _normal(2, 8, 8, 3))


@FUZZ.register("conv_kinds", family="convolution", description="depthwise, dilated, strided 1-D")
def _conv_kinds() -> Built:
    def fn(x: Array, depth: Array, full: Array) -> Arrays:
        conv = lax.conv_general_dilated
        a = conv(x, depth, (1,), "SAME", feature_group_count=4)
        b = conv(jax.nn.relu(a), full, (2,), [(2, 1)], rhs_dilation=(2,))
        c = conv(b, jnp.flip(full, 2), (1,), [(2, 2)], lhs_dilation=(2,))
        return a, b, c * jax.nn.sigmoid(c), jnp.convolve(x[0, 0], depth[0, 0], mode="full")

    return fn, (_normal(2, 4, 20), _normal(4, 1, 3), _normal(4, 4, 3))


@FUZZ.register("attention_grad", family="gradient", description="causal attention of f32[2,3,9,4]")
def _attention_grad() -> Built:
    def loss(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2.0
        scores = jnp.where(jnp.tril(jnp.ones((9, 9), bool)), scores, -1e9)
        out = jnp.einsum("bhqk,bhkd->bqhd", jax.nn.softmax(scores), v)
        return jnp.sum(jnp.tanh(out)), out

    args = tuple(0.7 * _normal(2, 3, 9, 4, seed=seed) for seed in range(3))
    return jax.value_and_grad(loss, (0, 1, 2), has_aux=True), args


@FUZZ.register("elementwise", family="pointwise", description="rarer functions of f32[5,9]")
def _elementwise() -> Built:
    def fn(x: Array, n: Array) -> Arrays:
        positive = jnp.abs(x) + 0.1
        smooth = jnp.cbrt(x) + jnp.expm1(x) * jnp.log1p(positive) - lax.erf(x) + jnp.tan(0.3 * x)
        angles = jnp.arctan2(x, positive) + jnp.arcsinh(x) * jax.nn.sigmoid(-x)
        powers = positive**1.7 + x**3 - lax.rsqrt(positive) + lax.integer_pow(positive, -2)
        halves = n.astype(jnp.float32) / 2
        rounded = jnp.round(halves) + lax.round(halves) - jnp.floor(halves) * jnp.sign(x)
        coarse = lax.reduce_precision(halves, exponent_bits=5, mantissa_bits=3)
        whole = jnp.clip(n // 3 - n % -4, -2, 9) * lax.rem(n - 9, jnp.int32(4))
        odd = jnp.where(jnp.isfinite(jnp.exp(40.0 * x)), angles, jnp.copysign(powers, x))
        return smooth, angles, powers, rounded, coarse, whole, odd, -n, lax.select(n > 9, x, -x)

    return fn, (_normal(5, 9), _integers(20, 5, 9))


@FUZZ.register("reductions", family="reduce", description="every kind and axis over f32[5,6,7]")
def _reductions() -> Built:
    def fn(x: Array, n: Array) -> Arrays:
        def wider(a: Arrays, b: Arrays) -> Arrays:
            keep = a[0] >= b[0]
            return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1]), a[2] + b[2]

        starts = (np.float32(-9), np.int32(-1), np.float32(0))
        outputs: list[Array] = [jnp.any(n > 8), jnp.all(n >= 0, axis=0), jnp.prod(n % 3 + 1, 0)]
        for axis in range(3):
            outputs += lax.reduce(
                (x, lax.broadcasted_iota(jnp.int32, x.shape, axis), x), starts, wider, (axis,)
            )
            outputs += [jnp.argmax(x, axis), jax.nn.logsumexp(x, axis)]
            outputs += [jnp.max(n, axis), jnp.sum(n, axis), jnp.min(x, axis)]
        return *outputs, jnp.sum(x), jnp.var(x, (0, 2)), jnp.argmin(x)

    return fn, (_normal(5, 6, 7), _integers(10, 5, 6, 7))


@FUZZ.register("prefixes", family="scan", description="cumulative and associative scans, f32[6,12]")
def _prefixes() -> Built:
    def fn(x: Array, n: Array) -> Arrays:
        def join(a: Arrays, b: Arrays) -> Arrays:
            return a[0] * b[0], a[1] * b[0] + b[1]

        decay = jax.nn.sigmoid(x)
        linear = lax.associative_scan(join, (decay, x), reverse=True)
        sums = jnp.cumsum(x, axis=0), jnp.cumsum(n[::-1]), lax.cummax(x, axis=1, reverse=True)
        slope = jax.grad(lambda x: jnp.sum(jnp.cumprod(x, axis=1) ** 2))(decay)
        return *linear, *sums, lax.cumlogsumexp(x, axis=1), slope

    return fn, (_normal(6, 12), _integers(9, 12))


@FUZZ.register("rearrange", family="layout", description="pads, slices, concatenates of f32[6,8]")
def _rearrange() -> Built:
    def fn(x: Array, n: Array) -> Arrays:
        a = lax.pad(x, jnp.float32(1.5), ((1, -2, 1), (-1, 3, 0)))
        b = jnp.concatenate([x[:, ::2], -x[:, 1::2], x[::-1, :3], jnp.zeros((6, 2))], axis=1)
        c = jnp.stack([x.T, x.reshape(8, 6), jnp.roll(x, (1, 3), (0, 1)).T], axis=1)
        d = jnp.where(
            lax.broadcasted_iota(jnp.int32, (6, 8), 1) > n[:, None], x, lax.clamp(-0.5, x, 0.5)
        )
        e = jnp.pad(d, ((1, 1), (2, 2)), mode="reflect")
        return a, b, c.transpose(2, 0, 1), d, e, jnp.tile(n, 3), jnp.repeat(x[0], 2), jnp.tril(x)

    return fn, (_normal(6, 8), _integers(8, 6))


@FUZZ.register(
    "indexed_updates", family="indexing", description="dynamic slices and x.at, f32[8,8]"
)
def _indexed_updates() -> Built:
    def fn(x: Array, i: Array, j: Array) -> Arrays:
        a = x.at[i].set(x[j]).at[j, 2:5].add(1.0).at[:, i].multiply(2.0)
        block = lax.dynamic_slice(a, (i, j), (3, 3))
        # Starts beyond the edge are clamped, so these two windows overlap.
        b = lax.dynamic_update_slice(a, block.T, (i + 9, j - 9))
        c = lax.dynamic_update_slice(b, b[:2, :2], (i + 4, j - 7))
        d = c.at[::2, 1::2].set(c[1::2, ::2]).at[-1].set(jnp.arange(8.0)).at[0, 0].min(-3.0)
        return a, block, b, c, d, x[i, j], x

    return fn, (_normal(8, 8), np.int32(2), np.int32(6))


@FUZZ.register("gather_scatter", family="indexing", description="takes and scatters into f32[10,4]")
def _gather_scatter() -> Built:
    def fn(x: Array, rows: Array, values: Array) -> Arrays:
        taken = x[rows] * values
        total = x.at[rows].add(values).at[rows, 1].mul(0.9)
        edges = x.at[rows].min(values), x.at[rows, rows % 4].max(values[:, 0])
        spread = jnp.zeros_like(x).at[(3 * jnp.arange(10)) % 10].set(x)
        dropped = (
            x.at[rows + 6].add(1.0, mode="drop"),
            jnp.take(x, rows + 6, 0, mode="fill", fill_value=7.0),
        )
        groups = jax.ops.segment_sum(values, rows, num_segments=10)
        slope = jax.grad(lambda x: jnp.sum(jnp.sin(x[rows]) * values))(x)
        return taken, total, *edges, spread, *dropped, groups, slope

    return fn, (_normal(10, 4), _integers(10, 12), _normal(12, 4))


@FUZZ.register("sorting", family="sort", description="sort, argsort, top_k, lexsort of f32[4,20]")
def _sorting() -> Built:
    def fn(x: Array, keys: Array) -> Arrays:
        order = jnp.argsort(x, axis=1)
        top, where = lax.top_k(x, 5)
        pairs = lax.sort((keys, x, -x), dimension=1, num_keys=2, is_stable=True)
        ranks = jnp.searchsorted(jnp.sort(x[0]), x[1])
        descending = jnp.sort(x, axis=0, descending=True)
        return order, top, where, *pairs, ranks, descending, jnp.median(x, axis=1)

    return fn, (_normal(4, 20), _integers(5, 4, 20))


@FUZZ.register("random_uniform", family="random", description="f32[7,3] draws from a u32[] seed")
def _random_uniform() -> Built:
    def fn(seed: Array) -> Arrays:
        draws = jax.random.uniform(jax.random.key(seed), (7, 3), minval=-1.0)
        return draws, draws < -0.4, jnp.sum(draws > 0.0, axis=0), draws @ draws.T

    return fn, (np.uint32(0),)


@FUZZ.register("random_walk", family="random", description="cumulative f32[11] normal draws")
def _random_walk() -> Built:
    def fn(seed: Array, start: Array) -> Arrays:
        steps = jax.random.normal(jax.random.key(seed), (11,))
        path = start + jnp.cumsum(steps)
        return steps, path, jnp.argmax(path), jnp.minimum(path, 2.5)

    return fn, (np.uint32(0), np.float32(0.5))


@FUZZ.register("random_order", family="random", description="permutation of f32[20] by sorted bits")
def _random_order() -> Built:
    def fn(seed: Array, x: Array) -> Arrays:
        order = jax.random.permutation(jax.random.key(seed), 20)
        return order, x[order], x.at[order].add(x)

    return fn, (np.uint32(0), _normal(20))


@FUZZ.register("layernorm_bf16", family="low-precision", description="norm, GELU in bf16[8,32]")
def _layernorm_bf16() -> Built:
    def fn(x: Array, scale: Array, w: Array) -> Arrays:
        wide = x.astype(jnp.float32)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        norm = (wide * lax.rsqrt(jnp.var(wide, axis=-1, keepdims=True) + 1e-5)).astype(x.dtype)
        hidden = jax.nn.gelu(norm * scale) @ w
        return norm, hidden, x + hidden, jnp.max(x, axis=0), jnp.exp(-jnp.abs(x[0])) * scale

    args = _normal(8, 32), 1 + 0.1 * _normal(32), 0.2 * _normal(32, 32)
    return fn, tuple(value.astype(jnp.bfloat16) for value in args)


@FUZZ.register("einsum_f16", family="low-precision", description="batched products in f16[3,4,5]")
def _einsum_f16() -> Built:
    def fn(a: Array, b: Array, c: Array) -> Arrays:
        outer = jnp.einsum("bij,bjk->bik", a, b)
        mixed = jnp.einsum("bij,kjb,ck->cbi", a, b.T, c)
        wide = jnp.einsum("bij,bij->b", a, a, preferred_element_type=jnp.float32)
        chain = jnp.tanh(outer.transpose(2, 0, 1) * 0.5) + jnp.flip(c, 1).T[:, None, :1]
        return outer, mixed, wide, chain, jnp.sum(chain, axis=(0, 1)), outer.swapaxes(0, 2)

    args = _normal(3, 4, 5), _normal(3, 5, 6), _normal(2, 6)
    return fn, tuple((0.3 * value).astype(np.float16) for value in args)


@FUZZ.register("int8_matmul", family="integer", description="quantized layers, i8[8,16] to i8[8,4]")
def _int8_matmul() -> Built:
    def fn(x: Array, w1: Array, w2: Array) -> Arrays:
        def layer(x: Array, w: Array) -> Array:
            total = lax.dot(x, w, preferred_element_type=jnp.int32)
            rounded = (total + (1 << 6)) >> 7
            return jnp.clip(rounded, -128, 127).astype(jnp.int8)

        hidden = jnp.maximum(layer(x, w1), 0)
        out = layer(hidden, w2)
        wrapped = x * x + jnp.int8(100)
        unsigned = lax.bitcast_convert_type(x[:, :8], jnp.uint8) // 7 + hidden.astype(jnp.uint8)
        return hidden, out, wrapped, unsigned, out.astype(jnp.float32) * 0.05, x // 3, x % 5

    x = _integers(256, 8, 16, dtype=np.uint8).view(np.int8)
    return fn, (x, x[::-1, :].T.copy()[:, :8] // 8, x[:, :4] // 8)


@FUZZ.register("bit_mixing", family="integer", description="u32[40] hashing and boolean logic")
def _bit_mixing() -> Built:
    def fn(x: Array, flags: Array) -> Arrays:
        def mix(_: Array, h: Array) -> Array:
            h = (h ^ (h >> 16)) * jnp.uint32(0x45D9F3B)
            return (h << 5) | (h >> 27)

        h = lax.fori_loop(0, 3, mix, x)
        counts = lax.population_count(h) + lax.clz(x)
        parity = lax.reduce(h, np.uint32(0), lax.bitwise_xor, (0,))
        logic = (flags ^ (h % 2 == 0)) & ~jnp.roll(flags, 1)
        signed = lax.bitcast_convert_type(h, jnp.int32)
        return h, counts, parity, logic, signed >> 3, jnp.where(logic, signed, -1), h % 10

    return fn, (_integers(2**32, 40, dtype=np.uint32), _integers(2, 40, dtype=np.bool_))


@FUZZ.register("fft_filter", family="spectral", description="real and complex FFTs of f32[3,32]")
def _fft_filter() -> Built:
    def fn(x: Array, cutoff: Array) -> Arrays:
        spectrum = jnp.fft.rfft(x)
        kept = jnp.where(jnp.arange(17) < cutoff, spectrum, 0.0)
        smooth = jnp.fft.irfft(kept, n=32)
        plane = jnp.fft.fft2(lax.complex(x[:, :8], smooth[:, 8:16]))
        power = jnp.real(spectrum * jnp.conj(spectrum))
        return smooth, power, jnp.real(plane), jnp.imag(jnp.fft.ifft(plane)), jnp.abs(kept)

    return fn, (_normal(3, 32), np.int32(6))


@FUZZ.register("moebius", family="spectral", description="c64[12] fractional-linear iteration")
def _moebius() -> Built:
    def fn(real: Array, imag: Array) -> Arrays:
        def step(z: Array, turn: Array) -> tuple[Array, Array]:
            z = (z * jnp.exp(1j * turn) + 0.2) / (0.2 * z * jnp.exp(1j * turn) + 1.0)
            return z, jnp.abs(z)

        z = lax.complex(real, imag)
        last, sizes = lax.scan(step, 0.5 * z / (1.0 + jnp.abs(z)), jnp.linspace(0.1, 1.0, 10))
        gram = jnp.outer(last, jnp.conj(last))
        return last.real, last.imag, sizes, gram.real, jnp.sqrt(last + 2.0).imag, jnp.sum(gram)

    return fn, (_normal(12), _normal(12, seed=1))


@FUZZ.register("cholesky_solve", family="linear-algebra", description="Gaussian fit on f32[12,12]")
def _cholesky_solve() -> Built:
    def loss(scale: Array, x: Array, y: Array) -> tuple[Array, Array]:
        gap = x[:, None] - x
        kernel = jnp.exp(-((gap / scale) ** 2)) + 0.5 * jnp.eye(12)
        factor = jnp.linalg.cholesky(kernel)
        half = lax.linalg.triangular_solve(factor, y[:, None], left_side=True, lower=True)
        return 0.5 * jnp.sum(half**2) + jnp.sum(jnp.log(jnp.diagonal(factor))), factor

    args = np.float32(0.8), np.linspace(0, 4, 12).astype(np.float32), _normal(12)
    return jax.value_and_grad(loss, has_aux=True), args
