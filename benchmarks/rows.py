"""Rows of small arrays: those that are no vector code, and reductions along them.

    python -m benchmarks.rows
    python -m benchmarks.rows --columns
    python -m benchmarks.rows --places
    python -m benchmarks.rows --odd

The first table has sums, maxima and normalisations of rows in native loops: as XLA's code computes them, and
in slices that are combined first. The second table (``--columns``) has the same of columns: by XLA as it is,
which calls its library, and in slices by XLA's kernels and in native code; what is fused into them is written
to memory for the slices. The third table
(``--places``) has places of maxima, by XLA's kernels and in native code. The fourth table
(``--odd``) has elementwise operations in loops on arrays whose rows do not fill vectors, or are short: by
XLA, as graphopt decides, and by XLA as a program about one row of as many elements.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.few_vectors import median_us
from benchmarks.progress import counted, ended
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import UnitKind, unit_index
from graphopt.measure.children.runner import Runner
from graphopt.policy.heuristic.steps import heuristic
from graphopt.store import Store

TIMES: Final = 300
"""Iterations of a loop; also in `median_us`."""

REDUCED: Final = [(4, 24), (4, 32), (4, 64), (4, 128), (16, 32), (16, 64), (16, 128), (64, 32)]
"""Rows and elements of a row."""

REDUCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "sum": lambda x: 0.9 * x + 1e-3 * x.sum(-1, keepdims=True),
    "maximum": lambda x: 0.9 * x + 1e-3 * x.max(-1, keepdims=True),
    "softmax": lambda x: jax.nn.softmax(1.01 * x) - 0.1 * x,
    "layer norm": lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 0.1),
}

COLUMNS: Final = [(40, 40), (64, 64), (100, 100), (128, 128), (1000, 32), (256, 256)]
"""Rows and columns."""

DOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "sum": lambda x: 0.9 * x + 1e-3 * x.sum(0),
    "maximum": lambda x: 0.9 * x + 1e-3 * x.max(0),
    "sum of squares": lambda x: 0.9 * x + 1e-3 * jnp.square(x - 0.3).sum(0),
    "sum of products": lambda x: 0.9 * x + 1e-3 * (x * x[::-1]).sum(0),
    "sum of exponentials": lambda x: 0.9 * x + 1e-3 * jnp.exp(x).sum(0),
    "sum of hyperbolic tangents": lambda x: 0.9 * x + 1e-3 * jnp.tanh(x).sum(0),
}

PLACES: Final[dict[str, Callable[[Any], Any]]] = {
    "along rows": lambda x: x + 1e-3 * jnp.argmax(x, -1, keepdims=True),
    "along columns": lambda x: x + 1e-3 * jnp.argmax(x, -2, keepdims=True),
}

PLACED: Final = [
    (12, 12),
    (16, 12, 8),
    (16, 12, 12),
    (16, 12, 16),
    (16, 12, 32),
    (256, 16),
    (16, 256),
]
"""Arrays of rows and columns, some of several."""

ODD: Final = [
    (8, 10), (16, 20), (4, 40), (64, 10), (100, 20), (4, 100), (500, 33), (1000, 3),
    (64, 16), (64, 32), (64, 48), (1000, 16), (1000, 32),
]  # fmt: skip
"""Rows and elements of a row."""


def bias(x: Any) -> Any:
    """A number for each element of a row."""
    return jnp.linspace(0.0, 0.1, x.shape[-1], dtype=x.dtype)


OPERATIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "arithmetic": lambda x: 0.9 * x + 0.01 * x * x,
    "quotient": lambda x: x / (1.0 + x * x),
    "exponential": lambda x: 0.5 * jnp.exp(0.1 * x),
    "tanh": lambda x: 0.9 * jnp.tanh(x),
    "bias and rectifier": lambda x: jnp.maximum(0.9 * x + bias(x), -0.1),
    "tanh of a bias": lambda x: jnp.tanh(0.9 * x + bias(x)),
}


def loop(step: Callable[[Any], Any], shape: tuple[int, ...]) -> tuple[bytes, Any]:
    """Module and inputs of a loop over an array."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    fn = lambda x: lax.fori_loop(0, TIMES, lambda _, x: step(x), x)  # noqa: E731
    return make_subject(fn, (x,), name="rows").modules[0]


def native(graph: Graph) -> Decisions:
    """XLA's decisions with all loops native."""
    out = graph.default.copy()
    unit = unit_index(graph.units, UnitKind.NATIVE)
    out.unit[
        [i for i in np.flatnonzero(graph.masks.unit[:, unit]) if graph.ops[i].name == "while"]
    ] = unit
    return out


def with_row(graph: Graph, decisions: Decisions, name: str) -> Decisions:
    """Decisions with a restructure wherever it is legal."""
    out = decisions.copy()
    out.restructure[graph.masks.restructure[:, CODE[name]]] = CODE[name]
    return out


def print_table(
    columns: str,
    programs: dict[str, Callable[[Any], Any]],
    shapes: Sequence[tuple[int, ...]],
    measure: Callable[[Callable[[Any], Any], tuple[int, ...]], list[float]],
) -> None:
    """A Markdown table of programs and shapes; `measure` gives microseconds for each column."""
    print(f"| operation | array | {columns} |")
    print("|" + " --- |" * (3 + columns.count("|")))
    cases = [(name, shape) for name in programs for shape in shapes]
    with counted(cases, "programs measured") as rest:
        for name, shape in rest:
            cells = " | ".join(f"{1e3 * us:.0f}" for us in measure(programs[name], shape))
            print(f"| {name} | {' x '.join(map(str, shape))} | {cells} |", flush=True)


def in_slices(graph: Graph) -> Decisions:
    """All loops native, reductions in slices."""
    return with_row(graph, native(graph), "slice-reduce")


def of_memory(graph: Graph, decisions: Decisions) -> Decisions:
    """The same, what is reduced in slices in memory; it and the reductions on one core."""
    out = decisions.copy()
    single = next(
        i for i, u in enumerate(graph.units) if u.kind is UnitKind.LOOP and u.threads == 1
    )
    for node in np.flatnonzero(out.restructure == CODE["slice-reduce"]).tolist():
        operand = graph.operand_lists[node][0]
        out.fuse[operand] &= not graph.masks.fuse[operand, 0]
        alone = [n for n in (node, operand) if not out.fuse[n] and graph.masks.unit[n, single]]
        out.unit[alone] = single
    return out


def forms_of(graph: Graph, columns: bool) -> list[Decisions]:
    """Decisions for each column of a table."""
    if not columns:
        return [graph.default, native(graph), in_slices(graph)]
    kernels = of_memory(graph, with_row(graph, graph.default, "slice-reduce"))
    return [graph.default, kernels, native(graph), of_memory(graph, in_slices(graph))]


def print_reductions(store: Store, columns: bool) -> None:
    """A Markdown table of reductions along rows, or along columns."""

    def measure(step: Callable[[Any], Any], shape: tuple[int, int]) -> list[float]:
        data, inputs = loop(step, shape)
        graph = build_graph(data)
        with Runner(data, inputs, store) as runner:
            runner.start()
            return [median_us(runner, f) for f in forms_of(graph, columns)]

    programs, shapes = (DOWN, COLUMNS) if columns else (REDUCTIONS, REDUCED)
    forms = "slices by kernels | native | native slices" if columns else "native | in slices"
    print_table(f"XLA, ns per iteration | {forms}", programs, shapes, measure)


def print_places(store: Store) -> None:
    """A Markdown table of places of maxima."""

    def measure(step: Callable[[Any], Any], shape: tuple[int, ...]) -> list[float]:
        data, inputs = loop(step, shape)
        graph = build_graph(data)
        with Runner(data, inputs, store) as runner:
            runner.start()
            return [median_us(runner, f) for f in (graph.default, native(graph))]

    print_table("XLA, ns per iteration | native", PLACES, PLACED, measure)


def print_odd(store: Store) -> None:
    """A Markdown table of elementwise operations."""

    def measure(step: Callable[[Any], Any], shape: tuple[int, int]) -> list[float]:
        data, inputs = loop(step, shape)
        graph = build_graph(data)
        with Runner(data, inputs, store) as runner:
            runner.start()
            chosen = (graph.default, heuristic(graph) or graph.default)
            times = [median_us(runner, decisions) for decisions in chosen]
        data, inputs = loop(step, (math.prod(shape),))
        with Runner(data, inputs, store) as runner:
            runner.start()
            return [*times, median_us(runner, build_graph(data).default)]

    print_table("XLA, ns per iteration | graphopt | XLA, as one row", OPERATIONS, ODD, measure)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--columns", action="store_true", help="reductions along columns instead")
    which.add_argument("--places", action="store_true", help="places of maxima instead")
    which.add_argument("--odd", action="store_true", help="rows that are no vector code instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.sqlite")
        if options.odd:
            print_odd(store)
        elif options.places:
            print_places(store)
        else:
            print_reductions(store, options.columns)


if __name__ == "__main__":
    sys.exit(ended(main))
