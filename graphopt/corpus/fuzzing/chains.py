"""Small programs with loops of a few elementwise iterations, such as the rounds of random numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import integers, normal
from graphopt.corpus.program import Built, ProgramSet

CHAINS = ProgramSet()

Arrays = tuple[Array, ...]
Pair = tuple[Array, Array]


@CHAINS.register("draws", family="chain", description="random numbers that several kernels read")
def _draws() -> Built:
    def fn(seed: Array, x: Array) -> Arrays:
        one, two, three = jax.random.split(jax.random.key(seed), 3)
        noise = jax.random.normal(one, (40, 24))
        kept = jax.random.bernoulli(two, 0.7, x.shape)
        dropped = jnp.where(kept, x, 0.0)
        bits = jax.random.bits(three, (96,))
        return (
            noise, dropped @ noise, noise.sum(0), noise[3] + noise[:, 3].mean(), bits, jnp.sort(bits),
            (bits >> 7) & 1, jax.random.permutation(one, 33), jax.random.gumbel(two, ()),
        )  # fmt: skip

    return fn, (np.int32(3), normal(8, 40))


@CHAINS.register("draws_in_loop", family="chain", description="a random walk, f32[50], keys split")
def _draws_in_loop() -> Built:
    def fn(seed: Array, x: Array) -> Arrays:
        def step(carry: Pair, _: None) -> tuple[Pair, Array]:
            key, x = carry
            key, a, b = jax.random.split(key, 3)
            y = x + 0.1 * jax.random.normal(a, x.shape)
            accepted = jax.random.uniform(b, x.shape) < jnp.exp(x * x - y * y)
            x = jnp.where(accepted, y, x)
            return (key, x), accepted.sum()

        (key, x), accepted = lax.scan(step, (jax.random.key(seed), x), None, length=12)
        return jax.random.key_data(key), x, accepted

    return fn, (np.int32(5), normal(50))


@CHAINS.register("draws_of_many_keys", family="chain", description="24 keys, split in a loop")
def _draws_of_many_keys() -> Built:
    def fn(seed: Array) -> Arrays:
        keys = jax.random.split(jax.random.key(seed), 24)

        def step(keys: Array, _: None) -> tuple[Array, Array]:
            both = jax.vmap(jax.random.split)(keys)
            return both[:, 0], jax.vmap(lambda key: jax.random.randint(key, (), 0, 9))(both[:, 1])

        last, moves = lax.scan(step, keys, None, length=5)
        noise = jax.vmap(lambda key: jax.random.normal(key, (6,)))(keys)
        return jax.random.key_data(last), moves, noise, noise.sum(1)

    return fn, (np.int32(11),)


@CHAINS.register("newton_rounds", family="chain", description="six rounds of two carried f32[7,9]")
def _newton_rounds() -> Built:
    def fn(x: Array) -> Arrays:
        start = 1.0 + jnp.abs(x)

        def round_(i: Array, pair: Pair) -> Pair:
            root, _ = pair
            return 0.5 * (root + start / root) + 0.0 * i, root

        root, last = lax.fori_loop(0, 6, round_, (start, x))
        return root, (root - last).sum(), x + last, root @ last.T

    return fn, (normal(7, 9),)


@CHAINS.register(
    "hash_rounds", family="chain", description="rounds of u32[130] and a scalar, nested"
)
def _hash_rounds() -> Built:
    def fn(words: Array, salt: Array) -> Arrays:
        def mix(i: Array, state: Arrays) -> Arrays:
            a, b, salt = state
            a = (a ^ (b >> 3)) * jnp.uint32(0x9E3779B1) + salt
            return b, a, salt + i.astype(jnp.uint32)

        def block(words: Array, i: Array) -> Pair:
            a, b, mixed = lax.fori_loop(0, 5, mix, (words, words[::-1], salt + i))
            return a ^ b, mixed

        words, salts = lax.scan(block, words, jnp.arange(4, dtype=jnp.uint32))
        a, b, mixed = lax.fori_loop(0, 3, mix, (words, words + 1, salt))
        return words, salts, a, b, mixed, (a & 1).sum(), jnp.take(b, a % 130)

    return fn, (integers(1 << 31, 130, dtype=np.uint32), np.uint32(17))


@CHAINS.register(
    "rounds_that_end", family="chain", description="rounds whose carry another loop overwrites"
)
def _rounds_that_end() -> Built:
    def fn(x: Array, times: Array) -> Arrays:
        def halve(_: Array, y: Array) -> Array:
            return 0.5 * y + x

        first = lax.fori_loop(0, 4, halve, x * x)
        table = lax.fori_loop(0, times, lambda i, t: t.at[i % 20].add(t[0] * 0.25), first)
        second = lax.fori_loop(0, 4, halve, table)
        return first.sum(), table, second, jnp.cumsum(second)

    return fn, (normal(20), np.int32(7))


@CHAINS.register(
    "elements_that_end", family="chain", description="f32[2100]: each element as long as it goes on"
)
def _elements_that_end() -> Built:
    def root(x: Array, slope: Array) -> Array:
        def newton(state: Pair) -> Pair:
            y, trips = state
            return y - (y * y * y + slope * y - x) / (3 * y * y + slope), trips + 1

        wide = lambda s: (jnp.abs(s[0] ** 3 + slope * s[0] - x) > 1e-3) & (s[1] < 20)  # noqa: E731
        return lax.while_loop(wide, newton, (x, jnp.int32(0)))[0]

    def fn(x: Array, slopes: Array) -> Arrays:
        def halve(state: Pair) -> Pair:
            y, trips = state
            return jnp.where(y > 0.1, y * 0.5, y), trips + 1

        roots = jax.vmap(jax.vmap(root, (0, None)), (None, 0))(x, slopes)
        halves, trips = lax.while_loop(
            lambda s: jnp.any(s[0] > 0.1) & (s[1] < 9), halve, (jnp.abs(roots), jnp.int32(0))
        )
        return roots, halves.sum(1), halves, trips

    return fn, (normal(700), np.array([0.5, 1.0, 2.5], np.float32))


@CHAINS.register(
    "checkpointed_steps", family="chain", description="a gradient through steps behind barriers"
)
def _checkpointed_steps() -> Built:
    def step(carry: Array, x: Array) -> Pair:
        rolled = jnp.roll(carry, 1)
        return jnp.tanh(0.9 * carry + x), rolled.sum() * rolled

    def fn(x: Array, xs: Array) -> Arrays:
        def loss(start: Array) -> Array:
            last, parts = lax.scan(jax.checkpoint(step), start, xs)
            total: Array = last.sum() + parts.mean()
            return total

        value, gradient = jax.value_and_grad(loss)(x)
        scaled, doubled = lax.optimization_barrier((gradient * value, gradient * 2))
        return value, gradient, scaled.sum() + doubled, lax.cumsum(scaled)

    return fn, (normal(24), normal(12, 24, seed=1))
