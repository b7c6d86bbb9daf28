"""Loops over arrays as XLA has them, and cut in parts by the form `scan-parts`.

    python -m benchmarks.recurrences [--only PREFIX] [--seconds 3]

Programs of this file and those of the corpus that the form changes, in one process: XLA's default, installed
without the form, installed. Their order changes at random from round to round. Prints a Markdown table of
medians.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import graphopt
from benchmarks.progress import counted, ended
from graphopt.corpus.registry import select_corpus
from graphopt.corpus.split import SPLITS
from graphopt.forms import enabled
from graphopt.forms.table import ALL
from graphopt.measure import compare_outputs

Program = tuple[Callable[..., Any], tuple[Any, ...]]

FORM: Final = "scan-parts"

CORPUS: Final = (
    "garch_likelihood_grad", "gnmt_2_grad", "pointer_network_grad",
    "rnn_lm_2_grad", "rnn_lm_4_grad", "rnn_lm_8_grad",
)  # fmt: skip


def _normal(seed: int, *shape: int, scale: float = 1.0) -> jax.Array:
    return scale * jax.random.normal(jax.random.PRNGKey(seed), shape)


def lstm_step(width: int, batch: int, trips: int, inputs: int) -> Program:
    """A step of training of a long short-term memory."""
    weights = {
        "x": _normal(0, inputs, 4 * width, scale=0.1),
        "h": _normal(1, width, 4 * width, scale=0.1),
        "b": jnp.zeros(4 * width),
    }

    def loss(w: Any, xs: jax.Array, wanted: jax.Array) -> jax.Array:
        def cell(carry: Any, x: jax.Array) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x @ w["x"] + h @ w["h"] + w["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((batch, width))
        return jnp.mean((lax.scan(cell, (zeros, zeros), xs)[1] - wanted) ** 2)

    def step(w: Any, xs: jax.Array, wanted: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, xs, wanted)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient)

    return step, (weights, _normal(2, trips, batch, inputs), _normal(3, batch, width))


def network_by_row() -> Program:
    """A network of three layers, one row after the other by `lax.map`."""
    weights = [_normal(n, *s, scale=0.3) for n, s in enumerate([(8, 64), (64, 64), (64, 1)])]

    def run(xs: jax.Array, weights: list[jax.Array]) -> Any:
        def one(x: jax.Array) -> jax.Array:
            for w in weights[:-1]:
                x = jnp.tanh(x @ w)
            return (x @ weights[-1])[0]

        return lax.map(one, xs)

    return run, (_normal(9, 512, 8), weights)


def moving_moments() -> Program:
    """Moving mean and variance of a series, and what is made of them."""

    def run(series: jax.Array) -> Any:
        def step(carry: Any, x: jax.Array) -> Any:
            mean, variance = carry
            off = x - mean
            mean, variance = mean + 0.01 * off, 0.99 * (variance + 0.01 * off * off)
            score = (x - mean) / jnp.sqrt(variance + 1e-6)
            return (mean, variance), (score, jnp.tanh(score), jnp.exp(-0.5 * score * score))

        return lax.scan(step, (0.0, 1.0), series)[1]

    return run, (_normal(0, 5000),)


OWN: Final[dict[str, Callable[[], Program]]] = {
    "lstm of 32, batch 1": lambda: lstm_step(32, 1, 200, 8),
    "lstm of 64, batch 8": lambda: lstm_step(64, 8, 100, 32),
    "lstm of 128, batch 16": lambda: lstm_step(128, 16, 50, 64),
    "lstm of 256, batch 32": lambda: lstm_step(256, 32, 50, 64),
    "network by row": network_by_row,
    "moving moments": moving_moments,
}


def programs() -> dict[str, Callable[[], Program]]:
    """Those of this file, and those of the corpus, by name."""
    known = {name: build for split in SPLITS for name, build in select_corpus(split).items()}
    return {**OWN, **{name: known[name] for name in CORPUS}}


def compiled(program: Program) -> Callable[[], Any]:
    """A program under what is installed now."""
    function, args = program
    run = jax.jit(lambda *a: function(*a)).lower(*args).compile()
    return lambda: jax.block_until_ready(run(*args))


def ways(program: Program) -> list[Callable[[], Any]]:
    """By XLA's default, installed without the form, and installed."""
    default = compiled(program)
    graphopt.install(store=False)
    try:
        with enabled(ALL - {FORM}):
            without = compiled(program)
        with enabled(ALL):
            return [default, without, compiled(program)]
    finally:
        graphopt.uninstall()


def medians(runs: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Seconds of a call each; the second and later ones of some in a row count."""
    rng, times = np.random.default_rng(0), [list[float]() for _ in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not times[0]:
        for place in rng.permutation(len(runs)):
            runs[place]()
            for _ in range(3):
                start = time.perf_counter()
                runs[place]()
                times[place].append(time.perf_counter() - start)
    return [float(np.median(t)) for t in times]


def main() -> int:
    """Prints the table; 1 if results differ by more than rounding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="programs whose name starts so")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring, per program")
    options = parser.parse_args()
    print(
        "| program | default, ms | without, ms | in parts, ms | over the default | over without | error |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    wrong = False
    with counted(programs().items(), "programs measured") as rest:
        for name, build in rest:
            if not name.startswith(options.only):
                continue
            runs = ways(build())
            default, without, parts = medians(runs, options.seconds)
            cells = [f"{1e3 * t:.3f}" for t in (default, without, parts)]
            cells += [f"{default / parts:.2f}x", f"{without / parts:.2f}x"]
            difference = compare_outputs(runs[0](), runs[2]())
            wrong |= not difference.equal
            cells.append(f"{difference.relative:.1e}")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(ended(main))
