"""Gathers, scatters, sums by segment, sorts and running sums."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal, uniform


def lower_triangles() -> Built:
    """Lower triangles of matrices from vectors, by adding at indices into zeros.

    After jax-ml/jax#695: the scatter takes seconds on a CPU.
    """
    size, batch = 79, 64
    where = np.ravel_multi_index(np.tril_indices(size), (size, size))

    def fn(values: Any) -> Any:
        flat = jnp.zeros((values.shape[0], size * size)).at[:, where].add(values)
        return flat.reshape(-1, size, size)

    return fn, (normal(generator(), batch, len(where)),)


def column_ranks() -> Built:
    """Order of the numbers in each column of a matrix.

    After jax-ml/jax#10434: argsort over the first axis is 5 to 20 times slower than NumPy's.
    """

    def fn(x: Any) -> Any:
        return jnp.argsort(x, axis=0)

    return fn, (uniform(generator(), 100, 300),)


def running_sums() -> Built:
    """Running sums along the first axis of a four-dimensional array.

    After jax-ml/jax#4135: several times slower than NumPy on one CPU.
    """

    def fn(x: Any) -> Any:
        return jnp.cumsum(x, axis=0)

    return fn, (uniform(generator(), 180, 16, 12, 3),)


def running_parity() -> Built:
    """Running exclusive or of the rows of a matrix of words, by an associative scan.

    After jax-ml/jax#28097: accumulations of ufuncs are slower than a plain loop.
    """

    def fn(x: Any) -> Any:
        return lax.associative_scan(jnp.bitwise_xor, x)

    words = generator().integers(0, 2**32, (2048, 128), dtype=np.uint32)
    return fn, (jnp.asarray(words),)


def geometric_products() -> Built:
    """Products of multivectors of five dimensions: all pairs of blades, summed by segment.

    After RobinKa/jaxga#1: sums by segment run 100 times slower than unrolled additions on a CPU.
    """
    blades, batch = 32, 100
    i, j = np.divmod(np.arange(blades * blades), blades)
    segments = i ^ j
    swaps = np.zeros(blades * blades, np.int64)
    for shift in range(1, 5):
        shared = (i >> shift) & j
        swaps += np.array([int(v).bit_count() for v in shared])
    sign = jnp.asarray(np.where(swaps % 2, -1.0, 1.0), jnp.float32)

    def fn(a: Any, b: Any) -> Any:
        pairs = (a[:, None] * b[None, :]).reshape(blades * blades, batch) * sign[:, None]
        return jax.ops.segment_sum(pairs, jnp.asarray(segments), num_segments=blades)

    rng = generator()
    return fn, (normal(rng, blades, batch), normal(rng, blades, batch))


def allele_counts() -> Built:
    """Counts of alleles in genotype calls: one count of bins per call by two vmaps.

    After sgkit-dev/sgkit#1266: significantly slower than Numba.
    """
    variants, samples, alleles = 1000, 100, 4

    def fn(calls: Any) -> Any:
        def count(call: Any) -> Any:
            known = jnp.bincount(call.astype(jnp.int32) + 1, length=alleles + 1)
            return known[1:].astype(jnp.uint8)

        return jax.vmap(jax.vmap(count))(calls)

    calls = generator().integers(-1, alleles, (variants, samples, 2)).astype(np.int8)
    return fn, (jnp.asarray(calls),)


def column_queries() -> Built:
    """Share of rows whose values in three chosen columns are all one, for many choices by vmap.

    After jax-ml/jax#6312: much slower than the same written by hand.
    """
    rows, columns, queries = 6000, 100, 100

    def fn(data: Any, chosen: Any) -> Any:
        def share(query: Any) -> Any:
            return jnp.sum(jnp.prod(data[:, query], axis=1)) / rows

        return jax.vmap(share)(chosen)

    rng = generator()
    data = jnp.asarray(rng.integers(0, 2, (rows, columns)), jnp.float32)
    chosen = [rng.choice(columns, 3, replace=False) for _ in range(queries)]
    return fn, (data, jnp.asarray(np.array(chosen), jnp.int32))


def chained_lookups() -> Built:
    """Sums of matrix elements whose column is itself looked up, in two nested loops under vmap.

    After jax-ml/jax#9366: one index depending on another lookup makes it far slower.
    """
    lanes, outer, inner, size = 500, 10, 12, 100

    def walk(start: Any, table: Any, matrix: Any) -> Any:
        def far(i: Any, state: Any) -> Any:
            def near(k: Any, state: Any) -> Any:
                total, row = state
                column = table[row, k]
                total = total + matrix[row, column]
                return total, (row + column + i) % size

            return lax.fori_loop(0, inner, near, state)

        return lax.fori_loop(0, outer, far, (jnp.float32(0), start))[0]

    rng = generator()
    table = jnp.asarray(rng.integers(0, size, (size, inner)), jnp.int32)
    starts = jnp.asarray(rng.integers(0, size, lanes), jnp.int32)
    return jax.vmap(walk, (0, None, None)), (starts, table, normal(rng, size, size))


def permutation() -> Built:
    """A permutation by two rounds of sorting with random keys, of which the first part is kept.

    After jax-ml/jax#5328: nearly 70 times slower than PyTorch's.
    """
    size, rounds = 4000, 2

    def fn(keys: Any, values: Any) -> Any:
        order = jnp.arange(size, dtype=jnp.int32)
        for i in range(rounds):
            _, order = lax.sort((keys[i], order), num_keys=1)
        return values[order[:500]]

    rng = generator()
    keys = rng.integers(0, 2**32, (rounds, size), dtype=np.uint32)
    return fn, (jnp.asarray(keys), normal(rng, size))


REPORTS: tuple[Reported, ...] = (
    Reported("lower_triangles", "jax-ml/jax#695", lower_triangles),
    Reported("column_ranks", "jax-ml/jax#10434", column_ranks),
    Reported("running_sums", "jax-ml/jax#4135", running_sums, x64=True),
    Reported("running_parity", "jax-ml/jax#28097", running_parity),
    Reported("geometric_products", "RobinKa/jaxga#1", geometric_products),
    Reported("allele_counts", "sgkit-dev/sgkit#1266", allele_counts),
    Reported("column_queries", "jax-ml/jax#6312", column_queries),
    Reported("chained_lookups", "jax-ml/jax#9366", chained_lookups),
    Reported("permutation", "jax-ml/jax#5328", permutation),
)
"""The programs of this family."""
