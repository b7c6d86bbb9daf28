"""Sorting, histograms, and programs on integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree

SORTING = Family("sorting")
INTEGER = Family("integer")
AUTOMATA = Family("automata")
FAMILIES = (SORTING, INTEGER, AUTOMATA)


@SORTING.program(
    "quantile_normalization", "rank-based normalisation of f32[32,512] by sorting rows twice"
)
def _quantile_normalization() -> Built:
    def run(x: Array) -> Tree:
        order = jnp.argsort(x, axis=1)
        ranks = jnp.argsort(order, axis=1)
        mean = jnp.mean(jnp.sort(x, axis=1), axis=0)
        return mean[ranks], jnp.take_along_axis(x, order, axis=1)[:, ::64]

    return run, (Draws(0).normal(32, 512),)


@SORTING.program(
    "radix_sort", "eight 4-bit counting passes over u32[1024] with scatters", loops=True
)
def _radix_sort() -> Built:
    def run(keys: Array) -> Array:
        def digit_pass(shift: Array, keys: Array) -> Array:
            digits = ((keys >> (4 * shift.astype(jnp.uint32))) & 15).astype(jnp.int32)
            hot = (digits[:, None] == jnp.arange(16)[None]).astype(jnp.int32)
            within = jnp.cumsum(hot, axis=0)
            starts = jnp.cumsum(within[-1]) - within[-1]
            place = starts[digits] + jnp.take_along_axis(within, digits[:, None], axis=1)[:, 0] - 1
            return jnp.zeros_like(keys).at[place].set(keys)

        out: Array = lax.fori_loop(0, 8, digit_pass, keys)
        return out

    return run, (Draws(1).integers(1 << 32, 1024, dtype=np.uint32),)


@SORTING.program("bitonic_network", "bitonic sorting network on f32[8,256], written out")
def _bitonic_network() -> Built:
    def run(x: Array) -> Array:
        place = jnp.arange(256)
        size = 2
        while size <= 256:
            gap = size // 2
            while gap:
                other = x[:, place ^ gap]
                low = ((place & gap) == 0) == ((place & size) == 0)
                x = jnp.where(low, jnp.minimum(x, other), jnp.maximum(x, other))
                gap //= 2
            size *= 2
        return x

    return run, (Draws(2).normal(8, 256),)


@SORTING.program(
    "join_and_aggregate",
    "equi-join of i32[2048] keys by binary search, then grouped sums",
    loops=True,
)
def _join_and_aggregate() -> Built:
    def run(keys: Array, values: Array, table: Array, prices: Array) -> Tree:
        order = jnp.argsort(table)
        sorted_keys = table[order]
        place = jnp.minimum(jnp.searchsorted(sorted_keys, keys), table.shape[0] - 1)
        found = sorted_keys[place] == keys
        amount = jnp.where(found, values * prices[order[place]], 0)
        groups = keys & 63
        totals = jax.ops.segment_sum(amount, groups, 64)
        largest = jax.ops.segment_max(amount, groups, 64)
        return totals, jnp.where(largest < 0, 0, largest), jnp.sum(found)

    draws = Draws(3)
    table = np.unique(draws.integers(4096, 900)).astype(np.int32)
    return run, (
        draws.integers(4096, 2048),
        draws.integers(50, 2048),
        table,
        draws.integers(9, table.size),
    )


@SORTING.program(
    "stream_compaction", "filter, prefix sum and scatter of f32[8192], with run-length counts"
)
def _stream_compaction() -> Built:
    def run(x: Array, marks: Array) -> Tree:
        keep = marks % 3 == 0
        place = jnp.where(keep, jnp.cumsum(keep) - 1, x.shape[0])
        packed = jnp.zeros_like(x).at[place].set(x, mode="drop")
        starts = jnp.concatenate([jnp.ones(1, bool), marks[1:] != marks[:-1]])
        runs = jax.ops.segment_sum(jnp.ones(x.shape, jnp.int32), jnp.cumsum(starts) - 1, 4096)
        return packed, jnp.sum(keep), runs

    draws = Draws(4)
    return run, (draws.normal(8192), draws.integers(5, 8192))


@SORTING.program(
    "two_dimensional_histogram", "soft joint histogram of f32[2,4096] and mutual information"
)
def _two_dimensional_histogram() -> Built:
    def run(x: Array) -> Tree:
        centres = jnp.linspace(-3.0, 3.0, 24)
        weights = jnp.exp(-8.0 * (x[..., None] - centres) ** 2)
        weights = weights / (jnp.sum(weights, axis=-1, keepdims=True) + 1e-6)
        joint = jnp.einsum("na,nb->ab", weights[0], weights[1]) / x.shape[1]
        left, right = jnp.sum(joint, axis=1), jnp.sum(joint, axis=0)
        ratio = joint / (left[:, None] * right[None] + 1e-9)
        return joint, jnp.sum(joint * jnp.log(ratio + 1e-9))

    return run, (Draws(5).normal(2, 4096),)


def _rotate(x: Array, by: int) -> Array:
    return (x << by) | (x >> (32 - by))


@INTEGER.program("murmur_hash_lanes", "Murmur3 of 16 words in 65536 lanes, u32", loops=True)
def _murmur_hash_lanes() -> Built:
    def run(words: Array) -> Tree:
        def mix(h: Array, k: Array) -> tuple[Array, None]:
            k = _rotate(k * jnp.uint32(0xCC9E2D51), 15) * jnp.uint32(0x1B873593)
            return _rotate(h ^ k, 13) * jnp.uint32(5) + jnp.uint32(0xE6546B64), None

        h = lax.scan(mix, jnp.zeros(words.shape[1], jnp.uint32), words)[0]
        h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
        return h ^ (h >> 16)

    return run, (Draws(6).integers(1 << 32, 16, 65536, dtype=np.uint32),)


@INTEGER.program(
    "chacha_rounds", "10 ChaCha double rounds over 2048 blocks, u32[16,2048]", loops=True
)
def _chacha_rounds() -> Built:
    def quarter(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
        a = a + b
        d = _rotate(d ^ a, 16)
        c = c + d
        b = _rotate(b ^ c, 12)
        a = a + b
        d = _rotate(d ^ a, 8)
        c = c + d
        return a, _rotate(b ^ c, 7), c, d

    def run(block: Array) -> Array:
        def double(_: Array, rows: Tree) -> Tree:
            a, b, c, d = quarter(*rows)
            b, c, d = (jnp.roll(x, -k, axis=0) for k, x in ((1, b), (2, c), (3, d)))
            a, b, c, d = quarter(a, b, c, d)
            return a, *(jnp.roll(x, k, axis=0) for k, x in ((1, b), (2, c), (3, d)))

        rows = tuple(block.reshape(4, 4, -1))
        return block + jnp.concatenate(lax.fori_loop(0, 10, double, rows))

    return run, (Draws(7).integers(1 << 32, 16, 2048, dtype=np.uint32),)


@INTEGER.program(
    "crc32_table",
    "CRC-32 of 1024 messages of 200 bytes by a table built in the program",
    loops=True,
)
def _crc32_table() -> Built:
    def run(data: Array) -> Tree:
        def bit(_: Array, c: Array) -> Array:
            return jnp.where(c & 1 == 1, (c >> 1) ^ jnp.uint32(0xEDB88320), c >> 1)

        table = lax.fori_loop(0, 8, bit, jnp.arange(256, dtype=jnp.uint32))

        def byte(crc: Array, value: Array) -> tuple[Array, None]:
            return table[((crc ^ value) & 255).astype(jnp.int32)] ^ (crc >> 8), None

        start = jnp.full(data.shape[1], 0xFFFFFFFF, jnp.uint32)
        return lax.scan(byte, start, data.astype(jnp.uint32))[0] ^ jnp.uint32(0xFFFFFFFF)

    return run, (Draws(8).integers(256, 200, 1024, dtype=np.uint8),)


@INTEGER.program(
    "modular_power", "modular exponentiation by squaring of u32[32768], 16-bit modulus", loops=True
)
def _modular_power() -> Built:
    def run(base: Array, power: Array) -> Tree:
        def step(bit: Array, carry: Tree) -> Tree:
            result, square = carry
            use = (power >> bit.astype(jnp.uint32)) & 1 == 1
            result = jnp.where(use, result * square % 65521, result)
            return result, square * square % 65521

        return lax.fori_loop(0, 16, step, (jnp.ones_like(base), base % 65521))[0]

    draws = Draws(9)
    return run, (
        draws.integers(65521, 32768, dtype=np.uint32),
        draws.integers(1 << 16, 32768, dtype=np.uint32),
    )


@INTEGER.program(
    "xorshift_uniform_sum",
    "300 rounds of 1024 xorshift128 generators, sums of the uniforms",
    loops=True,
)
def _xorshift_uniform_sum() -> Built:
    def run(state: Array) -> Tree:
        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            (x, y, z, w), total = carry
            t = x ^ (x << 11)
            fresh = w ^ (w >> 19) ^ t ^ (t >> 8)
            value = (fresh >> 8).astype(jnp.float32) * 2.0**-24
            return (jnp.stack([y, z, w, fresh]), total + value), fresh & 7

        return lax.scan(step, (state, jnp.zeros(state.shape[1])), length=300)

    return run, (Draws(10).integers(1 << 32, 4, 1024, low=1, dtype=np.uint32),)


@INTEGER.program(
    "fixed_point_filter",
    "Q15 fixed-point biquad and saturation over i32[32], 400 samples",
    loops=True,
)
def _fixed_point_filter() -> Built:
    def run(xs: Array) -> Tree:
        def step(carry: Tree, x: Array) -> tuple[Tree, Array]:
            x1, x2, y1, y2 = carry
            total = 6000 * (x + 2 * x1 + x2) + 30000 * y1 - 18000 * y2
            y = jnp.clip((total + (1 << 14)) >> 15, -2048, 2047)
            return (x, x1, y, y1), y

        zeros = jnp.zeros(xs.shape[1], jnp.int32)
        return lax.scan(step, (zeros,) * 4, xs)

    return run, (Draws(11).integers(1000, 400, 32, low=-1000),)


@AUTOMATA.program("game_of_life", "40 generations of Conway's game on i32[96,96]", loops=True)
def _game_of_life() -> Built:
    def run(grid: Array) -> Tree:
        def step(grid: Array, _: None) -> tuple[Array, Array]:
            rows = grid + jnp.roll(grid, 1, 0) + jnp.roll(grid, -1, 0)
            near = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - grid
            grid = ((near == 3) | ((near == 2) & (grid == 1))).astype(jnp.int32)
            return grid, jnp.sum(grid)

        return lax.scan(step, grid, length=40)

    return run, (Draws(12).integers(2, 96, 96),)


@AUTOMATA.program(
    "rule_tables_packed",
    "800 steps of four elementary rules on bit-packed u32[4,64] rows",
    loops=True,
)
def _rule_tables_packed() -> Built:
    rules = np.array([30, 90, 110, 184], np.uint32)[:, None]

    def run(rows: Array) -> Tree:
        def step(row: Array, _: None) -> tuple[Array, Array]:
            left = (row << 1) | (jnp.roll(row, 1, 1) >> 31)
            right = (row >> 1) | (jnp.roll(row, -1, 1) << 31)
            out = jnp.zeros_like(row)
            for pattern in range(8):
                parts = [
                    bits if pattern >> place & 1 else ~bits
                    for place, bits in ((2, left), (1, row), (0, right))
                ]
                chosen = jnp.where((rules >> pattern) & 1 == 1, ~jnp.uint32(0), jnp.uint32(0))
                out = out | (parts[0] & parts[1] & parts[2] & chosen)
            return out, lax.population_count(out).sum(axis=1)

        return lax.scan(step, rows, length=800)

    return run, (Draws(13).integers(1 << 32, 4, 64, dtype=np.uint32),)


@AUTOMATA.program(
    "sandpile_topple", "60 parallel topplings of an abelian sandpile, i32[64,64]", loops=True
)
def _sandpile_topple() -> Built:
    def run(grid: Array) -> Tree:
        def step(grid: Array, _: None) -> tuple[Array, Array]:
            falls = grid // 4
            p = jnp.pad(falls, 1)
            near = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
            return grid - 4 * falls + near, jnp.sum(falls > 0)

        return lax.scan(step, grid, length=60)

    return run, (Draws(14).integers(12, 64, 64),)


@AUTOMATA.program("langton_ant", "400 moves of one ant on i32[32,32], in place", loops=True)
def _langton_ant() -> Built:
    def run(grid: Array, place: Array) -> Tree:
        moves = jnp.array([[-1, 0], [0, 1], [1, 0], [0, -1]])

        def step(_: Array, carry: Tree) -> Tree:
            grid, place, heading = carry
            cell = grid[place[0], place[1]]
            heading = (heading + jnp.where(cell == 0, 1, 3)) % 4
            grid = grid.at[place[0], place[1]].set(1 - cell)
            return grid, (place + moves[heading]) % 32, heading

        return lax.fori_loop(0, 400, step, (grid, place, jnp.int32(0)))

    return run, (np.zeros((32, 32), np.int32), np.array([16, 16], np.int32))


@AUTOMATA.program(
    "lenia_fft", "20 steps of the continuous automaton Lenia by FFT, f32[64,64]", loops=True
)
def _lenia_fft() -> Built:
    def run(world: Array) -> Array:
        grid = jnp.arange(64.0)
        distance = jnp.minimum(grid, 64.0 - grid)
        radius = jnp.sqrt(distance[:, None] ** 2 + distance[None] ** 2) / 9.0
        ring = jnp.where(radius < 1.0, jnp.exp(-((radius - 0.5) ** 2) / 0.045), 0.0)
        spectrum = jnp.fft.rfft2(ring / jnp.sum(ring))

        def step(_: Array, world: Array) -> Array:
            near = jnp.fft.irfft2(jnp.fft.rfft2(world) * spectrum)
            growth = 2.0 * jnp.exp(-((near - 0.2) ** 2) / 0.01) - 1.0
            return jnp.clip(world + 0.05 * growth, 0.0, 1.0)

        out: Array = lax.fori_loop(0, 20, step, world)
        return out

    return run, (Draws(15).uniform(64, 64),)


@AUTOMATA.program(
    "neural_automaton_grad",
    "gradient through 10 steps of a neural automaton, f32[24,24,8]",
    gradient=True,
    loops=True,
)
def _neural_automaton_grad() -> Built:
    draws = Draws(16)

    def loss(params: Tree, world: Array, goal: Array) -> Array:
        def step(world: Array, _: None) -> tuple[Array, None]:
            dx = jnp.roll(world, 1, 0) - jnp.roll(world, -1, 0)
            dy = jnp.roll(world, 1, 1) - jnp.roll(world, -1, 1)
            seen = jnp.concatenate([world, dx, dy], axis=-1)
            change = jax.nn.relu(seen @ params[0]) @ params[1]
            alive = jax.nn.sigmoid(10.0 * (jnp.max(jnp.abs(world), axis=-1, keepdims=True) - 0.1))
            return world + 0.1 * alive * change, None

        return jnp.mean((lax.scan(step, world, length=10)[0][..., 0] - goal) ** 2)

    params = (draws.dense(24, 48), draws.dense(48, 8))
    return jax.value_and_grad(loss), (params, draws.normal(24, 24, 8), draws.normal(24, 24))
