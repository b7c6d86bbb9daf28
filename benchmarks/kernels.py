"""What single kernels take: the figures behind `graphopt.policy.heuristic.loop_kernels` and `.reductions`.

    python -m benchmarks.kernels
    python -m benchmarks.kernels --reductions

Every kernel runs again and again in a loop, each time on its own result. Elementwise kernels: as XLA
compiles them (by its tiled code generator) and by its loop generator, on the same threads. Reductions: by
the library, and in a loop kernel on one core.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.progress import counted, ended
from graphopt.forms.switch import VARIABLE as forms_variable
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import UnitKind, unit_index
from graphopt.measure.children.runner import Runner
from graphopt.store import Store

TIMES = 50
BUDGET_S = 0.3

KERNELS: tuple[tuple[str, tuple[int, ...], str, Callable[[Any, Any], Any]], ...] = (
    *(
        ("x + y", shape, "float32", lambda x, y: x + y)
        for shape in ((1024,), (16384,), (8, 96), (64, 64), (32, 100), (1000, 3), (192, 384), (4096, 256))
    ),
    ("five products and sums", (64, 256), "float32", lambda x, y: ((x * y + y) * x - y) * x + y),
    ("x / y", (64, 256), "float32", lambda x, y: x / y),
    ("x > y ? x : y", (64, 256), "float32", lambda x, y: jnp.where(x > y, x, y)),
    ("exp(x) * y", (64, 256), "float32", lambda x, y: jnp.exp(x) * y),
    ("tanh(x)", (64, 256), "float32", lambda x, y: jnp.tanh(x)),
    *(
        ("x + y", (64, 256), dtype, lambda x, y: x + y)
        for dtype in ("float64", "bfloat16", "float16", "int32", "int8")
    ),
    ("x xor y", (64, 256), "bool", lambda x, y: x ^ y),
    *(
        (name, (64, 256), dtype, fn)
        for name, fn in (
            ("1 / sqrt(x + y)", lambda x, y: lax.rsqrt(x + y)),
            ("exp(x - y)", lambda x, y: jnp.exp(x - y)),
            ("exp(x - y) - 1", lambda x, y: lax.expm1(x - y)),
        )
        for dtype in ("float32", "float64")
    ),
    *(
        ("remainder of x + y by y", (64, 256), dtype, lambda x, y: lax.rem(x + y, y))
        for dtype in ("int8", "int16", "int32", "int64")
    ),
    *(
        (name, (64, 256), dtype, fn)
        for name, fn in (
            ("x + y", lambda x, y: x + y),
            ("x * y", lambda x, y: x * y),
            ("a cubic of x", lambda x, y: ((x * 0.1 + y) * x - y) * x * 0.01 + y),
            ("x / y", lambda x, y: x / y),
            ("exp(real(x)) * y", lambda x, y: jnp.exp(-x.real) * y),
            ("log(|x|^2) * y", lambda x, y: jnp.log(x.real**2 + x.imag**2) * y),
        )
        for dtype in ("complex64", "complex128")
    ),
    (
        "quotient of x + y and y, as floats", (64, 256), "int32",
        lambda x, y: ((x + y).astype(jnp.float64) / y.astype(jnp.float64)).astype(jnp.int32),
    ),
)  # fmt: skip
"""What is computed, of arrays of which shape and type."""

REDUCTIONS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    **{
        f"sums of rows of {n}": ((-1, n), lambda x: jnp.sum(x * x, 1))
        for n in (4, 8, 16, 32, 64, 128, 512)
    },
    **{f"maxima of rows of {n}": ((-1, n), lambda x: jnp.max(x * x, 1)) for n in (8, 32, 64, 256)},
    **{
        f"maxima of rows of {n} as they are": ((-1, n), lambda x: jnp.max(x, 1)) for n in (128, 256)
    },
    **{
        f"sums of columns, {n} of them": ((-1, n), lambda x: jnp.sum(x * x, 0))
        for n in (4, 16, 64, 512)
    },
    "sums of the middle of [8, n, 64]": ((8, -1, 64), lambda x: jnp.sum(x * x, 1)),
    "sums over both sides of [n, 8, 64]": ((-1, 8, 64), lambda x: jnp.sum(x * x, (0, 2))),
    **{f"one sum of rows of {n}": ((-1, n), lambda x: jnp.sum(x * x)) for n in (32, 128, 512)},
    "one sum": ((-1,), lambda x: jnp.sum(x * x)),
}
"""Name -> shape of an array, -1 what is left; what is computed from it."""

SIZES = (1 << 12, 1 << 14, 1 << 16)


def microseconds(
    graph: Graph, data: bytes, inputs: Any, ways: list[Decisions], store: Store
) -> list[float]:
    """Microseconds of one iteration of the program's loop under each decision vector; nan where it failed."""
    with Runner(data, inputs, store) as runner:
        runner.start()
        found = [runner.measure(way, budget_s=BUDGET_S) for way in ways]
    return [1e6 * f.seconds / TIMES if f.ok and f.seconds else math.nan for f in found]


def captured(fn: Callable[..., Any], *args: Any) -> tuple[Graph, bytes, Any]:
    """Graph, module and inputs of a program of one module."""
    data, inputs = make_subject(fn, args).modules[-1]
    return build_graph(data), data, inputs


def print_kernels(store: Store) -> None:
    """A Markdown table of elementwise kernels by both code generators."""
    print("| kernel | arrays | tiled generator, us | loop generator, us | ratio |")
    print("| --- | --- | --- | --- | --- |")
    rng = np.random.default_rng(0)
    with counted(KERNELS, "kernels measured") as rest:
        for name, shape, dtype, fn in rest:
            x, y = (jnp.asarray(rng.uniform(0.1, 1.0, shape) * 9, dtype) for _ in range(2))

            def run(x: Any, y: Any, fn: Callable[[Any, Any], Any] = fn) -> Any:
                """The kernel on its own result."""
                return lax.fori_loop(0, TIMES, lambda _, c: fn(c, y), x)

            graph, data, inputs = captured(run, x, y)
            code = CODE["loop-kernel"]
            codes = np.where(graph.masks.restructure[:, code], code, 0).astype(np.int8)
            ways = [graph.default, graph.default.with_changes(restructure=codes)]
            tiled, loop = microseconds(graph, data, inputs, ways, store)
            size = ", ".join(map(str, shape))
            print(
                f"| {name} | {dtype}[{size}] | {tiled:.2f} | {loop:.2f} | {tiled / loop:.1f}x |",
                flush=True,
            )


def print_reductions(store: Store) -> None:
    """A Markdown table of reductions by the library and in loop kernels."""
    sizes = " | ".join(f"{size} elements: library, us | loop" for size in SIZES)
    print(f"| reduction | {sizes} |\n| --- |{' --- | --- |' * len(SIZES)}")
    rng = np.random.default_rng(0)
    with counted(REDUCTIONS.items(), "reductions measured") as rest:
        for name, (shape, fn) in rest:
            row: list[str] = []
            for size in SIZES:

                def run(x: Any, fn: Callable[[Any], Any] = fn) -> Any:
                    """The reduction of an array that its last result changes."""

                    def body(_: int, carry: tuple[Any, Any]) -> tuple[Any, Any]:
                        """One iteration."""
                        x = carry[0].at[(0,) * carry[0].ndim].set(carry[1])
                        return x, fn(x).ravel()[0] * 1e-6

                    return lax.fori_loop(0, TIMES, body, (x, jnp.float32(0.1)))[1]

                x = rng.random(size).astype(np.float32).reshape(shape)
                graph, data, inputs = captured(run, x)
                library, loop = (
                    unit_index(graph.units, k) for k in (UnitKind.LIBRARY, UnitKind.LOOP)
                )
                units = graph.default.unit.copy()
                units[~graph.default.fuse & (units == library) & graph.masks.unit[:, loop]] = loop
                ways = [graph.default, graph.default.with_changes(unit=units)]
                row += [f"{us:.2f}" for us in microseconds(graph, data, inputs, ways, store)]
            print(f"| {name} | {' | '.join(row)} |", flush=True)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--reductions", action="store_true", help="reductions instead")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    os.environ[forms_variable] = "0"  # what kernels of XLA's own operations take
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.sqlite")
        (print_reductions if options.reductions else print_kernels)(store)


if __name__ == "__main__":
    sys.exit(ended(main))
