"""Whole numbers and bits: hashes, generators, sieves, automata."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.common import Program, Sizes, integers, words


def _rotl(x: jax.Array, r: int) -> jax.Array:
    return (x << r) | (x >> (32 - r))


def murmur(size: int, rounds: int) -> Program:
    """MurmurHash3 of rows of words, and a histogram of buckets."""

    def hash_row(row, seed):
        def mix(h, k):
            k = _rotl(k * jnp.uint32(0xCC9E2D51), 15) * jnp.uint32(0x1B873593)
            return _rotl(h ^ k, 13) * jnp.uint32(5) + jnp.uint32(0xE6546B64), None

        h, _ = lax.scan(mix, seed, row)
        h = h ^ jnp.uint32(row.shape[0] * 4)
        h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
        return h ^ (h >> 16)

    def run(rows: jax.Array) -> Any:
        seeds = jnp.arange(rounds, dtype=jnp.uint32)
        hashes = jax.vmap(lambda s: jax.vmap(hash_row, (0, None))(rows, s))(seeds)
        return hashes, jnp.bincount((hashes % 64).reshape(-1).astype(jnp.int32), length=64)

    return run, (words(size, 16),)


def xxhash(size: int, stripes: int) -> Program:
    """xxHash32 of messages, four lanes at a time."""
    p1, p2, p3 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917))

    def run(messages: jax.Array) -> jax.Array:
        def one(words):
            lanes = jnp.array([606290984, 2246822519, 0, 1640531535], jnp.uint32)

            def stripe(acc, w):
                return _rotl(acc + w * p2, 13) * p1, None

            lanes, _ = lax.scan(stripe, lanes, words.reshape(-1, 4))
            h = _rotl(lanes[0], 1) + _rotl(lanes[1], 7) + _rotl(lanes[2], 12) + _rotl(lanes[3], 18)
            h = h + jnp.uint32(words.shape[0] * 4)
            h = (h ^ (h >> 15)) * p2
            h = (h ^ (h >> 13)) * p3
            return h ^ (h >> 16)

        return jax.vmap(one)(messages)

    return run, (words(size, 4 * stripes),)


def bloom(size: int, probes: int) -> Program:
    """FNV-1a of keys byte by byte, then a Bloom filter built and asked."""

    def fnv(keys, salt):
        h = jnp.full(keys.shape, 2166136261, jnp.uint32) ^ salt
        for shift in (0, 8, 16, 24):
            h = (h ^ ((keys >> shift) & 0xFF)) * jnp.uint32(16777619)
        return h

    def run(keys: jax.Array, queries: jax.Array) -> Any:
        bits = 8 * size

        def insert(i, table):
            return table.at[fnv(keys, i.astype(jnp.uint32)) % bits].set(True)

        table = lax.fori_loop(0, probes, insert, jnp.zeros(bits, bool))
        found = lax.fori_loop(
            0,
            probes,
            lambda i, ok: ok & table[fnv(queries, i.astype(jnp.uint32)) % bits],
            jnp.ones(queries.shape, bool),
        )
        return table.mean(), found.sum()

    return run, (words(size), words(size, seed=1))


def generators(size: int, steps: int) -> Program:
    """Linear congruential and xorshift generators side by side, and pi out of both."""

    def run(lcg: jax.Array, xs: jax.Array) -> Any:
        def step(_, state):
            lcg, xs, hits = state
            lcg = lcg * jnp.uint32(1664525) + jnp.uint32(1013904223)
            xs = xs ^ (xs << 13)
            xs = xs ^ (xs >> 17)
            xs = xs ^ (xs << 5)
            u = (lcg >> 8).astype(jnp.float32) / (1 << 24)
            v = (xs >> 8).astype(jnp.float32) / (1 << 24)
            return lcg, xs, hits + (u * u + v * v < 1)

        lcg, xs, hits = lax.fori_loop(0, steps, step, (lcg, xs, jnp.zeros(lcg.shape, jnp.int32)))
        return lcg, xs, 4 * hits.sum() / (steps * lcg.shape[0])

    return run, (words(size), words(size, seed=1) | np.uint32(1))


def crc32(size: int, length: int) -> Program:
    """CRC of messages of bytes: the table made on the spot, then a scan of look-ups."""

    def run(messages: jax.Array) -> jax.Array:
        def shift(_, c):
            return jnp.where(c & 1, (c >> 1) ^ jnp.uint32(0xEDB88320), c >> 1)

        table = lax.fori_loop(0, 8, shift, jnp.arange(256, dtype=jnp.uint32))

        def one(message):
            def byte(crc, b):
                return table[(crc ^ b.astype(jnp.uint32)) & 0xFF] ^ (crc >> 8), None

            return ~lax.scan(byte, jnp.uint32(0xFFFFFFFF), message)[0]

        return jax.vmap(one)(messages)

    return run, (integers(256, size, length),)


def calendar(size: int, _: int) -> Program:
    """Days to dates by `//` and `%`, back again, and phases of the sun by float `mod`."""

    def civil(z):
        z = z + 719468
        era = z // 146097
        doe = z % 146097
        yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
        doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
        mp = (5 * doy + 2) // 153
        month = jnp.where(mp < 10, mp + 3, mp - 9)
        return yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) // 5 + 1

    def run(days: jax.Array) -> Any:
        year, month, day = civil(days)
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        y = year - (month <= 2)
        doy = (153 * jnp.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
        back = (
            (y // 400) * 146097 + (y % 400) * 365 + (y % 400) // 4 - (y % 400) // 100 + doy - 719468
        )
        mean = jnp.mod(280.46 + 0.9856474 * (days - 10957), 360.0)
        anomaly = jnp.deg2rad(jnp.mod(357.528 + 0.9856003 * (days - 10957), 360.0))
        sun = (mean + 1.915 * jnp.sin(anomaly) + 0.02 * jnp.sin(2 * anomaly)) % 360.0
        weekday = (days + 4) % 7
        season = (sun // 90).astype(jnp.int32)
        table = jnp.zeros((7, 12), jnp.int32).at[weekday, month - 1].add(1)
        return jnp.sum(back != days), leap.sum(), table, jnp.bincount(season, length=4)

    return run, (integers(60000, size, low=-60000),)


def sieve(size: int, _: int) -> Program:
    """Eratosthenes' sieve with a mask per divisor, then counts of twins and of bits set."""

    def run(start: jax.Array) -> Any:
        n = jnp.arange(size) + start

        def strike(i, prime):
            return jnp.where(prime[i], prime & ~((n % i == 0) & (n > i)), prime)

        prime = lax.fori_loop(2, int(size**0.5) + 1, strike, n >= 2)
        twins = jnp.sum(prime[:-2] & prime[2:])
        ones = jnp.where(prime, lax.population_count(n), 0)
        return prime.sum(), twins, jnp.bincount(ones, length=32), jnp.max(jnp.where(prime, n, 0))

    return run, (jnp.int32(0),)


def packed_life(size: int, steps: int) -> Program:
    """Game of life, 32 cells a word, neighbours added by full adders."""

    def run(board: jax.Array) -> Any:
        def sideways(x):
            left = (x << 1) | (jnp.roll(x, 1, axis=1) >> 31)
            right = (x >> 1) | (jnp.roll(x, -1, axis=1) << 31)
            return left, right

        def step(board, _):
            up, down = jnp.roll(board, 1, axis=0), jnp.roll(board, -1, axis=0)
            cells = [up, down, *sideways(board), *sideways(up), *sideways(down)]
            one = two = four = jnp.zeros_like(board)
            for c in cells:
                carry = one & c
                one = one ^ c
                four = four | (two & carry)
                two = two ^ carry
            board = two & ~four & (one | board)
            return board, lax.population_count(board).sum()

        return lax.scan(step, board, None, length=steps)

    return run, (words(size, max(1, size // 32)),)


def collatz(size: int, _: int) -> Program:
    """Length of each number's way to one."""

    def length(n: jax.Array) -> jax.Array:
        def step(state):
            n, count = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    def run(numbers: jax.Array) -> Any:
        lengths = jax.vmap(length)(numbers)
        return lengths.max(), numbers[jnp.argmax(lengths)], lengths.mean()

    return run, (jnp.arange(1, size + 1, dtype=jnp.uint32),)


def fermat(size: int, bases: int) -> Program:
    """Fermat's test of odd numbers: powers modulo each of them, by squaring."""

    def power(base, exponent, modulus):
        def step(state):
            result, base, exponent = state
            result = jnp.where(exponent & 1, result * base % modulus, result)
            return result, base * base % modulus, exponent >> 1

        start = (jnp.uint32(1), base % modulus, exponent)
        return lax.while_loop(lambda s: s[2] > 0, step, start)[0]

    def run(numbers: jax.Array, bases: jax.Array) -> Any:
        over = jax.vmap(jax.vmap(power, (None, 0, 0)), (0, None, None))
        likely = jnp.all(over(bases, numbers - 1, numbers) == 1, axis=0)
        return likely, likely.sum()

    numbers = np.random.default_rng(0).integers(1 << 10, 1 << 15, size) * 2 + 1
    primes = np.array([2, 3, 5, 7, 11, 13, 17, 19][:bases])
    return run, (jnp.asarray(numbers, jnp.uint32), jnp.asarray(primes, jnp.uint32))


def fibonacci(size: int, _: int) -> Program:
    """Fibonacci's numbers modulo a prime by powers of a 2 by 2 matrix, and by a scan."""
    modulus = 32749

    def times(a, b):
        return (a[:, :, None] * b[None] % modulus).sum(1) % modulus

    def nth(n: jax.Array) -> jax.Array:
        def step(_, state):
            n, result, square = state
            result = jnp.where(n % 2 == 1, times(result, square), result)
            return n // 2, result, times(square, square)

        start = (n, jnp.eye(2, dtype=jnp.int32), jnp.array([[1, 1], [1, 0]]))
        return lax.fori_loop(0, 20, step, start)[1][0, 1]

    def run(ns: jax.Array) -> Any:
        def step(ab, _):
            a, b = ab
            return (b, (a + b) % modulus), a

        _, sequence = lax.scan(step, (jnp.int32(0), jnp.int32(1)), None, length=4096)
        values = jax.vmap(nth)(ns)
        return values, jnp.bincount(sequence % 10, length=10)

    return run, (integers(1_000_000, size),)


def zobrist(size: int, moves: int) -> Program:
    """Zobrist's hashes kept up to date along random moves, and repeats found in a table."""

    def run(table: jax.Array, boards: jax.Array, squares: jax.Array, pieces: jax.Array) -> Any:
        def whole(board):
            return lax.reduce(table[jnp.arange(64), board], np.uint32(0), lax.bitwise_xor, (0,))

        def play(state, move):
            board, h, seen = state
            square, piece = move
            h = h ^ table[square, board[square]] ^ table[square, piece]
            board = board.at[square].set(piece)
            slot = h & jnp.uint32(1023)
            hit = seen[slot] == h
            return (board, h, seen.at[slot].set(h)), hit

        def game(board, squares, pieces):
            start = (board, whole(board), jnp.zeros(1024, jnp.uint32))
            (board, h, _), hits = lax.scan(play, start, (squares, pieces))
            return h, h == whole(board), hits.sum()

        return jax.vmap(game)(boards, squares, pieces)

    table = words(64, 13)
    return run, (
        table,
        integers(13, size, 64),
        integers(64, size, moves, seed=1),
        integers(13, size, moves, seed=2),
    )


SIZES: Final[Sizes] = {
    ("murmur", murmur): ((6000, 16), (16_000, 16), (100_000, 8)),
    ("xxhash", xxhash): ((32, 5000), (512, 1000), (8192, 50)),
    ("bloom", bloom): ((20_000, 10), (80_000, 7), (300_000, 5)),
    ("generators", generators): ((64, 10_000), (2000, 1000), (100_000, 50)),
    ("crc32", crc32): ((32, 10_000), (512, 2000), (8192, 256)),
    ("calendar", calendar): ((10_000, 0), (100_000, 0), (200_000, 0)),
    ("sieve", sieve): ((5000, 0), (20_000, 0), (70_000, 0)),
    ("packed-life", packed_life): ((64, 2000), (256, 200), (1024, 50)),
    ("collatz", collatz): ((1000, 0), (8000, 0), (50_000, 0)),
    ("fermat", fermat): ((1000, 8), (5000, 8), (40_000, 4)),
    ("fibonacci", fibonacci): ((1500, 0), (6000, 0), (40_000, 0)),
    ("zobrist", zobrist): ((4, 500), (64, 300), (512, 80)),
}
