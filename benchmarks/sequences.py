"""Kernels as XLA's executor hands them out, and in order on one thread: the figures behind `sequential`.

    python -m benchmarks.sequences

Programs of many kernels, none of which reads another's result, and loops with such bodies, by how many
kernels there are and how many numbers each computes. A caller waits for every result. The third table has
chains, each kernel of which reads the one before: only bookkeeping is saved there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.dispatch import compared, heads, row, waited, with_row
from benchmarks.progress import counted, ended
from graphopt.learn.tune.subject import make_subject

KERNELS = (10, 20, 40, 100)

NUMBERS = (16, 256, 4096, 65536)
"""Numbers that each kernel computes."""

TRIPS = 50
"""Iterations of the loops."""

CALLS = 100


def kernel(x: jax.Array, k: Any) -> jax.Array:
    """One kernel, which is fused with none of its kind."""
    return jax.lax.optimization_barrier(jnp.tanh(x * 1.01 + k))


def wide(kernels: int) -> Callable[..., Any]:
    """A program of kernels that do not read each other."""
    return lambda x: tuple(kernel(x, float(k)) for k in range(kernels))


def loop(kernels: int) -> Callable[..., Any]:
    """A loop with such a body, each kernel of which has an array of its own."""

    def body(i: Any, xs: Any) -> Any:
        return tuple(kernel(x, i) for x in xs)

    return lambda x: jax.lax.fori_loop(0, TRIPS, body, (x,) * kernels)


def chain(kernels: int) -> Callable[..., Any]:
    """A program of kernels that read each other."""

    def fn(x: jax.Array) -> jax.Array:
        for k in range(kernels):
            x = kernel(x, float(k))
        return x

    return fn


TABLES: dict[str, Callable[[int], Callable[..., Any]]] = {
    "programs": wide, "loops": loop, "chains": chain,
}  # fmt: skip


def print_table(name: str) -> None:
    """One row per number of kernels: microseconds as XLA runs them / in order."""
    heads("kernels", *(f"{numbers:,} numbers" for numbers in NUMBERS))
    with counted(KERNELS, f"{name} measured") as rest:
        for kernels in rest:
            cells = []
            for numbers in NUMBERS:
                x = jnp.linspace(0.1, 0.9, numbers)
                subject = make_subject(TABLES[name](kernels), (x,), name=f"{name}_{kernels}")
                ordered = subject.compile(partial(with_row, row="sequential"))
                pair = [subject.default.executable, ordered.executable]
                calls = max(5, min(CALLS, CALLS * 20_000 // (numbers * kernels)))
                cells.append(compared(pair, partial(waited, x=x, calls=calls))[1])
            row([str(kernels), *cells])


def main() -> None:
    """Prints Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sequences")
    parser.add_argument("--only", choices=TABLES, nargs="+", default=[*TABLES], help="tables")
    for name in parser.parse_args().only:
        print_table(name)
        print()


if __name__ == "__main__":
    sys.exit(ended(main))
