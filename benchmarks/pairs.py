"""One operation behind another by XLA's default and by graphopt: what a rule for one costs the other.

    python -m benchmarks.pairs [--x64] [--only REGEX] [--below 0.93] [--seconds 0.1]

Pairs that graphopt leaves to XLA are counted only. Results must be equal. Prints the slowest pairs as a
Markdown table, and the geometric mean of all.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import graphopt
from benchmarks.progress import counted, ended
from graphopt.outcomes import Outcome

SIZE: Final = 512
"""Rows and columns."""

Function = Callable[[Array], Array]

REAL: Final[dict[str, Function]] = {
    **{
        name: getattr(jnp, name)
        for name in "sin cos tan arctan exp tanh abs floor sinh cosh".split()
    },
    **{name: getattr(jax.nn, name) for name in "sigmoid gelu softplus silu softmax".split()},
    "erf": lax.erf,
    "sinc": jnp.sinc,
    "mod": lambda x: jnp.mod(x, 1.3),
    "fmod": lambda x: jnp.fmod(x, x[::-1]),
    "atan2": lambda x: jnp.arctan2(x, x[::-1]),
    "hypot": lambda x: jnp.hypot(x, x.T),
    "logaddexp": lambda x: jnp.logaddexp(x, x.T),
    "normalised": lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3),
    "cumsum": lambda x: jnp.cumsum(x, -1),
    "sort": lambda x: jnp.sort(x, -1),
    "rows taken": lambda x: x[_places(x)],
    "columns taken": lambda x: x[:, _places(x)],
    "rows added": lambda x: x.at[_places(x)].add(1.0),
    "matmul": lambda x: x @ x,
    "outer": lambda x: x[0][:, None] * x[1],
    "uniform": lambda x: x + jax.random.uniform(jax.random.key(0), x.shape, x.dtype),
    "normal": lambda x: x + jax.random.normal(jax.random.key(0), x.shape, x.dtype),
    "where": lambda x: jnp.where(x > 0, x, 0.1 * x),
    "clip": lambda x: jnp.clip(x, -1, 1),
    "roll": lambda x: jnp.roll(x, 3, -1) - x,
    "diff": lambda x: jnp.pad(jnp.diff(x, axis=-1), ((0, 0), (0, 1))),
    "triangle": jnp.tril,
    "transpose": lambda x: x.T + 1,
    "line pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 1), "SAME"),
    "pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME"),
    "interp": lambda x: jnp.interp(x, jnp.linspace(-3, 3, 64), jnp.linspace(-3, 3, 64) ** 2),
}
"""Of numbers from -3 to 3."""

POSITIVE: Final[dict[str, Function]] = {
    **{name: getattr(jnp, name) for name in "log log1p sqrt cbrt reciprocal".split()},
    "rsqrt": lax.rsqrt,
    "lgamma": lax.lgamma,
    "digamma": lax.digamma,
    "power of a number": lambda x: x**1.7,
    "power": lambda x: x**x,
}
"""Of numbers from 0.1 to 3."""

WHOLE: Final[dict[str, Function]] = {
    "quotient by 7": lambda i: (i // 7).astype(float),
    "quotient": lambda i: (i // i[::-1]).astype(float),
    "remainder": lambda i: (i % i[::-1]).astype(float),
    "one hot": lambda i: jax.nn.one_hot(i[:, 0] % SIZE, SIZE),
}
"""Of whole numbers from 1 to 1000."""

COMPLEX: Final[dict[str, Function]] = {
    "angle": jnp.angle,
    "magnitude": jnp.abs,
    "complex exp": lambda z: jnp.exp(z).real,
    "complex log": lambda z: jnp.log(z).imag,
    "complex product": lambda z: (z * z[::-1]).imag,
}
"""Of complex numbers with parts from -3 to 3."""

THEN: Final[dict[str, Function]] = {
    "nothing": lambda v: v,
    "sum of rows": lambda v: v.sum(1),
    "sum of columns": lambda v: v.sum(0),
    "sum": lambda v: v.sum(),
    "maximum": lambda v: v.max(1),
    "argmax": lambda v: v.argmax(1),
    "deviation": lambda v: v.std(1),
    "product": lambda v: v * v[::-1],
    "matmul": lambda v: v @ v.T,
    "where": lambda v: jnp.where(v > 0.5, v, -v),
    "concatenate": lambda v: jnp.concatenate([v, v[:3] * 2]),
    "parts": lambda v: v[:, None, :8] * v[:, :4, None],
    "cumsum": lambda v: jnp.cumsum(v, 0),
    "complex": lambda v: lax.complex(v, v * 2),
}
"""What follows."""

GRADIENT: Final = "gradient"
"""Instead of what follows: the gradient of a sum of products."""


@dataclass(frozen=True)
class Pair:
    """Two operations, one behind the other.

    Attributes:
        name: of both.
        function: computes both.
        argument: of the first.
    """

    name: str
    function: Function
    argument: Array


@dataclass(frozen=True)
class Timed:
    """What one pair took, in microseconds: medians."""

    name: str
    default_us: float
    graphopt_us: float

    @property
    def speedup(self) -> float:
        """Over the default."""
        return self.default_us / self.graphopt_us


def _places(x: Array) -> Array:
    return jnp.asarray(np.random.default_rng(1).integers(0, x.shape[0], x.shape[0]))


def pairs() -> list[Pair]:
    """All of them; arrays have jax's floating-point type."""
    rng, shape = np.random.default_rng(0), (SIZE, SIZE)
    real, other = (jnp.asarray(rng.uniform(-3, 3, shape), float) for _ in range(2))
    groups: list[tuple[dict[str, Function], Array]] = [
        (REAL, real),
        (POSITIVE, jnp.asarray(rng.uniform(0.1, 3, shape), float)),
        (WHOLE, jnp.asarray(rng.integers(1, 1000, shape), np.int32)),
        (COMPLEX, lax.complex(real, other)),
    ]
    found = []
    for firsts, argument in groups:
        for (name, first), (next_name, then) in product(firsts.items(), THEN.items()):
            found.append(Pair(f"{name}, {next_name}", _chained(first, then), argument))
        if argument.dtype.kind == "f":
            found += [
                Pair(f"{n}, {GRADIENT}", jax.grad(_squared(f)), argument) for n, f in firsts.items()
            ]
    return found


def _chained(first: Function, then: Function) -> Function:
    return lambda x: then(first(x))


def _squared(function: Function) -> Function:
    return lambda x: (function(x) * x).sum()


def timed(pair: Pair, seconds: float) -> Timed | None:
    """Both ways in turn for so long; None where graphopt leaves the pair to XLA.

    Raises:
        AssertionError: results differ.
    """
    default = _compiled(pair)
    graphopt.install(store=False)
    graphopt.reset_report()
    ours = _compiled(pair)
    report = graphopt.report()
    left = not report.counts.get(Outcome.REWRITTEN) and not report.forms
    graphopt.uninstall()
    _check_equal(pair.name, default(pair.argument), ours(pair.argument))
    if left:
        return None
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for taken, run in zip(times, (default, ours), strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run(pair.argument))
            taken.append(time.perf_counter() - start)
    return Timed(pair.name, *(1e6 * float(np.median(taken)) for taken in times))


def _compiled(pair: Pair) -> Any:
    return jax.jit(lambda x: pair.function(x)).lower(pair.argument).compile()


def _check_equal(name: str, want: Array, got: Array) -> None:
    a, b = np.asarray(want), np.asarray(got)
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=1e-9)
    if a.dtype.kind in "fc":
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4 * scale, err_msg=name)
    else:
        np.testing.assert_array_equal(b, a, err_msg=name)


def main() -> None:
    """Measures pairs; those below the limit are measured again, five times as long, before they count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("--x64", action="store_true", help="in double precision")
    parser.add_argument("--only", default="", help="pairs whose name holds this expression")
    parser.add_argument("--below", type=float, default=0.93, help="speed-ups that are listed")
    parser.add_argument("--seconds", type=float, default=0.05, help="of timing per pair")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.x64)
    wanted = [pair for pair in pairs() if re.search(options.only, pair.name)]
    found: list[Timed] = []
    with counted(wanted, "pairs measured") as rest:
        for pair in rest:
            taken = timed(pair, options.seconds)
            if taken is not None and taken.speedup < options.below:
                taken = timed(pair, 5 * options.seconds)
            found += [] if taken is None else [taken]
    slow = sorted((t for t in found if t.speedup < options.below), key=lambda t: t.speedup)
    kind = "float64" if options.x64 else "float32"
    print("| pair | type | default us | `install()` us | speed-up |")
    print("| --- | --- | --- | --- | --- |")
    for t in slow:
        print(
            f"| {t.name} | {kind} | {t.default_us:,.0f} | {t.graphopt_us:,.0f} | {t.speedup:.2f}x |"
        )
    mean = math.exp(float(np.mean([math.log(t.speedup) for t in found]))) if found else math.nan
    print(
        f"\n{len(found)} of {len(wanted)} pairs changed: {mean:.2f}x; {len(slow)} below {options.below:g}x"
    )


if __name__ == "__main__":
    sys.exit(ended(main))
