"""What sine, cosine and tangent of arrays take by XLA and by the form `wide-functions`, by how far angles go.

    python -m benchmarks.angles [--only sin]

XLA calls a function for each number, which takes longer the larger the angle is; the form has a shorter way
where every angle of an array is at most `circular.FARTHEST`. Each cell: nanoseconds per element by XLA's
default / installed, and the ratio of medians of alternating rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import graphopt
from benchmarks.dispatch import heads, row, waited
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


def cell(programs: list[Any], x: jax.Array) -> str:
    """Nanoseconds per element of both, and their ratio."""
    calls = max(3, ELEMENTS // x.size)
    for program in programs:
        waited(program, x, 1)
    rounds = [[waited(program, x, calls) for program in programs] for _ in range(ROUNDS)]
    default, installed = 1e3 * np.median(rounds, axis=0) / x.size
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
            arrays = [jnp.asarray(most * unit, jnp.float32) for most in ANGLES]
            row([name, f"{length:,}", *(cell(programs, x) for x in arrays)])
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
