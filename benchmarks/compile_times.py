"""How long XLA compiles native code, against its own default.

    python -m benchmarks.compile_times [products | kernels | programs | unrolled]

``products``: a loop computes a chain of products, each with a tanh; the difference between the compile times
of a long and of a short chain is what one product costs. The default calls the matrix library, and compiles
only the tanh. ``kernels``: different small kernels, one by one and as one native function. ``programs``: the
reported programs with forms and the heuristic, its own work not counted. ``unrolled``: the same for programs
whose loops Python unrolled, and what they gain. All but the first are processor time of the whole process,
jax's lowering included, which other work on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.progress import counted, ended
from benchmarks.rates import ways
from benchmarks.reported.suite import PROGRAMS
from benchmarks.unrolled_programs import UNROLLED
from graphopt.hlo import build_graph, rewrite
from graphopt.machine import UnitKind, unit_index
from graphopt.measure.comparing.timing import compare
from graphopt.measure.compiling.functions import Transform, compile_with
from graphopt.policy.heuristic.steps import heuristic

SIZES = (
    (1, 32, 32), (1, 64, 64), (2, 8, 8), (2, 16, 16), (2, 32, 32), (2, 48, 48), (2, 64, 64),
    (8, 32, 32), (32, 32, 32),
)  # fmt: skip
"""Rows, contracted dimension, columns."""

CHAINS = (4, 12)
COMPILES = 3

RUNNING_S = 1.0
"""Seconds in which an unrolled program runs in turn with its default."""

KERNELS = (4, 8, 16, 32)
ELEMENTS = 256
"""Of the first small kernel; each further one has one more, so that no two are equal."""


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


def processor_s(
    fn: Callable[..., Any],
    args: Any,
    transform: Transform | None = None,
    forms: bool = False,
    compiles: int = COMPILES,
) -> float:
    """Seconds of the processor to lower and compile a function, the fewest of some; no transform's own."""
    spent = 0.0

    def timed(data: bytes) -> bytes | None:
        nonlocal spent
        start = time.process_time()
        try:
            return None if transform is None else transform(data)
        finally:
            spent = time.process_time() - start

    found = []
    for _ in range(compiles):
        start = time.process_time()
        compile_with(fn, args, timed, forms=forms)
        found.append(time.process_time() - start - spent)
    return min(found)


def all_native(data: bytes) -> bytes:
    """The module with every kernel in native code."""
    graph = build_graph(data)
    decisions = graph.default.copy()
    native = unit_index(graph.units, UnitKind.NATIVE)
    decisions.unit[graph.masks.unit[:, native] & ~decisions.fuse] = native
    return rewrite(graph, decisions).data


def decided(data: bytes) -> bytes | None:
    """The module as the heuristic has it."""
    graph = build_graph(data)
    decisions = heuristic(graph)
    return None if decisions is None else rewrite(graph, decisions).data


FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    "multiply, add": lambda x, i: x * (i + 1.5) + x,
    "rsqrt": lambda x, i: lax.rsqrt(x * (i + 1.5) + 0.1),
    "exp": lambda x, i: jnp.exp(x * (i + 1.5)),
}
"""What the small kernels compute."""


def print_products() -> None:
    """Prints a Markdown table."""
    print("| rows, contracted, columns | default, ms | plain loops | in blocks |")
    print("| --- | --- | --- | --- |")
    with counted(SIZES, "sizes compiled") as rest:
        for size in rest:
            times = [compile_ms(size, way) for way in range(3)]
            row = [f"{ms:.1f}" if ms == ms else "-" for ms in times]
            print(f"| {', '.join(map(str, size))} | {' | '.join(row)} |", flush=True)


def print_kernels() -> None:
    """Prints a Markdown table: milliseconds of each kernel, the program around it shared among them."""
    print("| kernels | default, ms each | one native function |")
    print("| --- | --- | --- |")
    cases = [(name, count) for name in FUNCTIONS for count in KERNELS]
    with counted(cases, "programs compiled") as rest:
        for name, count in rest:
            args = [np.ones(ELEMENTS + i, np.float32) for i in range(count)]

            def several(*arrays: Any, name: str = name) -> Any:
                return [FUNCTIONS[name](x, i) for i, x in enumerate(arrays)]

            pair = [processor_s(several, args, transform) for transform in (None, all_native)]
            row = " | ".join(f"{1e3 * seconds / count:.1f}" for seconds in pair)
            print(f"| {count} of {name} | {row} |", flush=True)


def print_programs() -> None:
    """Prints a Markdown table, and the geometric mean below it."""
    print("| program | default, s | graphopt | ratio |")
    print("| --- | --- | --- | --- |")
    logs = []
    with counted(PROGRAMS.values(), "programs compiled") as rest:
        for program in rest:
            jax.config.update("jax_enable_x64", program.x64)
            fn, args = program.build()
            ours = processor_s(fn, args, decided, forms=True, compiles=2)
            default = processor_s(fn, args, compiles=2)
            logs.append(math.log(ours / default))
            row = f"{default:.3f} | {ours:.3f} | {ours / default:.2f}"
            print(f"| {program.name} | {row} |", flush=True)
    print(f"\ngeometric mean: {math.exp(sum(logs) / len(logs)):.2f}x")


def print_unrolled() -> None:
    """Prints a Markdown table: compile times, and default time over new time, in turn."""
    print("| program | default, s | graphopt | ratio | speed-up |")
    print("| --- | --- | --- | --- | --- |")
    with counted(UNROLLED.items(), "programs compiled") as rest:
        for name, build in rest:
            fn, args = build()
            default, ours = (
                processor_s(fn, args, transform, forms=transform is not None, compiles=2)
                for transform in (None, decided)
            )
            row = f"{default:.2f} | {ours:.2f} | {ours / default:.2f} | {speedup(fn, args)}"
            print(f"| {name} | {row} |", flush=True)


def speedup(fn: Callable[..., Any], args: Any) -> str:
    """Default time over new time, in turn."""
    programs = [compile_with(fn, args), compile_with(fn, args, decided, forms=True)]
    found = compare(*programs, budget_s=RUNNING_S)
    return f"{found.speedup:.2f}x ({found.low:.2f}-{found.high:.2f})"


TABLES: dict[str, Callable[[], None]] = {
    "products": print_products,
    "kernels": print_kernels,
    "programs": print_programs,
    "unrolled": print_unrolled,
}
"""What may be asked for -> what prints it."""


def main() -> None:
    """Prints the table that the command line names, of products by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=TABLES, nargs="?", default="products")
    TABLES[parser.parse_args().table]()


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(ended(main))
