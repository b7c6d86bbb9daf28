"""What sine, cosine and tangent of arrays take by XLA and by the form `wide-functions`, by how far angles go.

    python -m benchmarks.angles [--only sin]

XLA calls a function for each number, which takes longer the larger the angle is; the form has a shorter way
where every angle of an array is at most `circular.FARTHEST`. Each cell: nanoseconds per element by XLA's
default / installed, and the ratio of medians of alternating rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import graphopt
from benchmarks.dispatch import heads, row
from benchmarks.progress import counted, ended
from graphopt.forms import enabled
from graphopt.forms.table import ALL

FUNCTIONS: Final[dict[str, Callable[[jax.Array], jax.Array]]] = {
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "sin of a sum": lambda x: jnp.sin(2 * x + 0.1),
    "sin times cos": lambda x: jnp.sin(x) * jnp.cos(x),
}
LENGTHS: Final = (20_000, 200_000, 2_000_000)
ANGLES: Final = (0.5, 1.0, 3.0, 1000.0, 3e6)
"""The largest magnitude of uniform angles."""

ROUNDS: Final = 9
ELEMENTS: Final = 2_000_000
"""Computed per round and way."""


def ways(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> list[Any]:
    """The function as XLA compiles it, and installed."""

    def compiled() -> Any:
        return jax.jit(lambda y: function(y)).lower(x).compile()

    default = compiled()
    graphopt.install(store=False)
    try:
        with enabled(ALL):
            return [default, compiled()]
    finally:
        graphopt.uninstall()


def seconds(program: Any, x: jax.Array) -> float:
    """Of one call, the mean of several."""
    calls = max(3, ELEMENTS // x.size)
    return sum(_timed(program, x) for _ in range(calls)) / calls


def _timed(program: Any, x: jax.Array) -> float:
    start = time.perf_counter()
    jax.block_until_ready(program(x))
    return time.perf_counter() - start


def cell(programs: list[Any], x: jax.Array) -> str:
    """Nanoseconds per element of both, and their ratio."""
    for program in programs:
        jax.block_until_ready(program(x))
    rounds = [[seconds(program, x) for program in programs] for _ in range(ROUNDS)]
    default, installed = 1e9 * np.median(rounds, axis=0) / x.size
    ratio = np.median([a / b for a, b in rounds])
    return f"{default:.1f} / {installed:.1f}: {ratio:.2f}x"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="functions whose name starts so")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    heads("function", "numbers", *(f"up to {most:,g}" for most in ANGLES))
    cases = [(n, s) for n in FUNCTIONS if n.startswith(options.only) for s in LENGTHS]
    with counted(cases, "arrays measured") as rest:
        for name, length in rest:
            unit = rng.uniform(-1, 1, length)
            programs = ways(FUNCTIONS[name], jnp.asarray(unit, jnp.float32))
            row([name, f"{length:,}", *map(partial(_at, programs, unit), ANGLES)])
    return 0


def _at(programs: list[Any], unit: Any, most: float) -> str:
    return cell(programs, jnp.asarray(most * unit, jnp.float32))


if __name__ == "__main__":
    sys.exit(ended(main))
