"""How long XLA compiles matrix products in native code, against its own default.

    python -m benchmarks.compile_times

A loop computes a chain of products, each with a tanh; the difference between the compile times of a long and
of a short chain is what one product costs. The default calls the matrix library, and compiles only the tanh.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.progress import counted, ended
from benchmarks.rates import ways
from graphopt.hlo import build_graph, rewrite
from graphopt.measure.compiling.functions import compile_with

SIZES = (
    (1, 32, 32), (1, 64, 64), (2, 8, 8), (2, 16, 16), (2, 32, 32), (2, 48, 48), (2, 64, 64),
    (8, 32, 32), (32, 32, 32),
)  # fmt: skip
"""Rows, contracted dimension, columns."""

CHAINS = (4, 12)
COMPILES = 3


def chain(rows: int, inner: int, columns: int, length: int) -> tuple[Callable[..., Any], Any]:
    """A loop over `length` products with different weights, and its arguments."""
    rng = np.random.default_rng(0)
    sizes = [(inner, columns), (columns, inner)] * (length // 2)
    weights = [rng.random(size, np.float32) / inner for size in sizes]

    def run(x: Any, weights: Sequence[Any]) -> Any:
        def body(_: Any, x: Any) -> Any:
            for weight in weights:
                x = jnp.tanh(x @ weight)
            return x

        return lax.fori_loop(0, 20, body, x)

    return run, (np.ones((rows, inner), np.float32), weights)


def compile_ms(size: tuple[int, int, int], way: int) -> float:
    """Milliseconds of one product with its tanh, the fastest of `COMPILES` compiles of each chain.

    Args:
        size: one of `SIZES`.
        way: number of one of `benchmarks.rates.ways`; nan where that is not legal.
    """

    def transform(data: bytes) -> bytes | None:
        graph = build_graph(data)
        vector = ways(graph)[way]
        return None if vector is None else rewrite(graph, vector).data

    fastest = []
    for length in CHAINS:
        fn, args = chain(*size, length)
        first = compile_with(fn, args, transform)
        if ways(build_graph(first.modules[0]))[way] is None:
            return math.nan
        times = [compile_with(fn, args, transform).compile_s for _ in range(COMPILES)]
        fastest.append(min(times))
    return 1e3 * (fastest[1] - fastest[0]) / (CHAINS[1] - CHAINS[0])


def main() -> None:
    """Prints a Markdown table."""
    print("| rows, contracted, columns | default, ms | plain loops | in blocks |")
    print("| --- | --- | --- | --- |")
    with counted(SIZES, "sizes compiled") as rest:
        for size in rest:
            times = [compile_ms(size, way) for way in range(3)]
            row = [f"{ms:.1f}" if ms == ms else "-" for ms in times]
            print(f"| {', '.join(map(str, size))} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(ended(main))
