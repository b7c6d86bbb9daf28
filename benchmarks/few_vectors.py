"""Products of a matrix and a few vectors, as `jax.vmap` makes them of a matrix times a vector, in loops.

    python -m benchmarks.few_vectors
    python -m benchmarks.few_vectors --sums

The first table has loops over a matrix that stays: slopes of a logistic regression for several chains, a
network of two layers and recurrent cells for several states. Each is run by XLA's own kernels, as one native
function in the best forms for the order that everything has, and as graphopt decides. The second table
(``--sums``) has a product in native code, in all its forms, by the length of its sum; other orders are made
ahead of the loop.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.progress import counted, ended
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import UnitKind, unit_index
from graphopt.measure.children.runner import Runner
from graphopt.policy.heuristic.steps import heuristic
from graphopt.store import Store

TIMES: Final = 300
"""Iterations of a loop."""

SIZES: Final = [
    (2, 50, 4),
    (4, 100, 8),
    (4, 200, 10),
    (8, 200, 12),
    (4, 1000, 8),
    (4, 64, 64),
    (8, 64, 16),
]
"""Vectors, rows and columns of the matrix."""

CELL_SIZES: Final = [(2, 24, 8), (4, 48, 16), (8, 48, 16), (4, 96, 32), (8, 96, 32), (16, 192, 64)]
"""The same for the weights of recurrent cells."""

SUMS: Final = (32, 40, 48, 50, 56, 60, 64, 80, 96, 128, 200)
"""Lengths of a sum."""

RESULTS: Final = ((8, 16), (24, 6))
"""Rows and columns of the result."""


def slopes(x: Any, y: Any, b: Any) -> Any:
    """Chains that leap over a logistic regression."""

    def slope(b: Any) -> Any:
        return x.T @ (jax.nn.sigmoid(x @ b) - y) + b

    def leap(_: Any, state: Any) -> Any:
        b, p = state
        return b + 0.01 * p, p - 0.01 * jax.vmap(slope)(b)

    return lax.fori_loop(0, TIMES, leap, (b, jnp.zeros_like(b)))


def layers(x: Any, y: Any, b: Any) -> Any:
    """States that a network of two layers moves."""
    outer = 0.1 * x.T

    def move(b: Any) -> Any:
        return outer @ jnp.tanh(x @ b + y)

    return lax.fori_loop(0, TIMES, lambda _, b: b + 0.1 * jax.vmap(move)(b), b)


def cells(state_w: Any, input_w: Any, h: Any) -> Any:
    """Recurrent cells with gates (GRU), each of which sees a part of its own state."""

    def cell(h: Any) -> Any:
        of_state = jnp.split(state_w @ h, 3)
        of_input = jnp.split(input_w @ h[: input_w.shape[1]], 3)
        reset, keep = (
            jax.nn.sigmoid(a + b) for a, b in zip(of_state[:2], of_input[:2], strict=True)
        )
        fresh = jnp.tanh(of_input[2] + reset * of_state[2])
        return keep * h + (1.0 - keep) * fresh

    return lax.fori_loop(0, TIMES, lambda _, h: jax.vmap(cell)(h), h)


def table_inputs(vectors: int, rows: int, columns: int) -> tuple[Any, ...]:
    """Matrix, targets and vectors."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns)) / columns
    y = rng.random(rows) > 0.5
    return x.astype(np.float32), y.astype(np.float32), np.ones((vectors, columns), np.float32)


def cell_inputs(vectors: int, rows: int, columns: int) -> tuple[Any, ...]:
    """Weights for the state, weights for the input, states."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(rows, columns + 4)).astype(np.float32) / columns
    states = rng.normal(size=(vectors, columns)).astype(np.float32)
    return weights[:, :-4], weights[:, -4:], states


@dataclass(frozen=True)
class Program:
    """A loop over several vectors at once.

    Attributes:
        fn: of a matrix, what goes with it, and vectors.
        inputs: vectors, rows, columns -> its arguments.
        sizes: vectors, rows and columns of the matrix.
    """

    fn: Callable[..., Any]
    inputs: Callable[[int, int, int], tuple[Any, ...]]
    sizes: Sequence[tuple[int, int, int]]


PROGRAMS: Final[dict[str, Program]] = {
    "slopes": Program(slopes, table_inputs, SIZES),
    "layers": Program(layers, table_inputs, SIZES),
    "cells": Program(cells, cell_inputs, CELL_SIZES),
}


def median_us(runner: Runner, decisions: Decisions | None) -> float:
    """Microseconds of one iteration; nan where the vector is missing or could not be measured."""
    if decisions is None:
        return math.nan
    found = runner.measure(decisions, budget_s=0.5)
    return found.seconds * 1e6 / TIMES if found.ok and found.seconds else math.nan


def native(graph: Graph, forms: Mapping[int, str]) -> Decisions:
    """XLA's decisions with all loops native and every product in its form, by node."""
    out = graph.default.copy()
    unit = unit_index(graph.units, UnitKind.NATIVE)
    for node, op in enumerate(graph.ops):
        if op.name == "while" and graph.masks.unit[node, unit]:
            out.unit[node] = unit
        elif op.name == "dot":
            code = CODE[forms[node]]
            out.restructure[node] = code if graph.masks.restructure[node, code] else 0
    return out


def best_before(runner: Runner, graph: Graph) -> float:
    """Microseconds of an iteration in native code, in the best forms that leave every order as it is."""
    forms = ("keep", "dot-blocks", "dot-reduce")
    dots = [node for node, op in enumerate(graph.ops) if op.name == "dot"]
    times = []
    for first in forms:
        for rest in forms:
            forms_of = dict.fromkeys(dots, rest) | {dots[0]: first}
            vector = native(graph, forms_of)
            times.append(median_us(runner, vector))
    return min((t for t in times if t == t), default=math.nan)


def print_programs(store: Store) -> None:
    """A Markdown table of all programs."""
    print(
        "| program | vectors | rows, columns | XLA, us per iteration | native, orders as they are "
        "| graphopt | over XLA |"
    )
    print("|" + " --- |" * 7)
    cases = [(name, p, sizes) for name, p in PROGRAMS.items() for sizes in p.sizes]
    with counted(cases, "programs measured") as rest:
        for name, program, sizes in rest:
            data, inputs = make_subject(program.fn, program.inputs(*sizes), name=name).modules[0]
            graph = build_graph(data)
            with Runner(data, inputs, store) as runner:
                runner.start()
                default = median_us(runner, graph.default)
                before = best_before(runner, graph)
                own = median_us(runner, heuristic(graph) or graph.default)
            cells = f"{default:.2f} | {before:.2f} | {own:.2f} | {default / own:.2f}x"
            print(f"| {name} | {sizes[0]} | {sizes[1]}, {sizes[2]} | {cells} |", flush=True)


def print_sums(store: Store) -> None:
    """A Markdown table of the forms of one product."""
    forms = ("keep", "dot-blocks", "dot-reduce", "dot-rows")
    print("| result | sum | plain loops, ns | in blocks | multiplied and reduced | along rows |")
    print("|" + " --- |" * 6)
    cases = [(result, length) for result in RESULTS for length in SUMS]
    with counted(cases, "products measured") as rest:
        for (rows, columns), length in rest:
            row = (
                f"{us * 1e3:.0f}" if us == us else "-"
                for us in one_product(rows, columns, length, forms, store)
            )
            print(f"| {rows} x {columns} | {length} | {' | '.join(row)} |", flush=True)


def one_product(
    rows: int, columns: int, length: int, forms: tuple[str, ...], store: Store
) -> list[float]:
    """Microseconds of an iteration that multiplies an array that changes by one that stays."""

    def run(a: Any, b: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            product = state[0] @ b
            return state[0] * 0.999 + product[0, 0] * 1e-3, product

        return lax.fori_loop(0, TIMES, step, (a, jnp.zeros((rows, columns), a.dtype)))

    args = np.ones((rows, length), np.float32), np.ones((length, columns), np.float32) / length
    data, inputs = make_subject(run, args, name="product").modules[0]
    graph = build_graph(data)
    found = []
    with Runner(data, inputs, store) as runner:
        runner.start()
        for form in forms:
            vector = native(graph, dict.fromkeys(range(len(graph)), form))
            shared = graph.masks.restructure[:, CODE["invariants"]]
            vector.restructure[shared] = CODE["invariants"]
            legal = form == "keep" or (vector.restructure == CODE[form]).any()
            found.append(median_us(runner, vector if legal else None))
    return found


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.few_vectors", description=__doc__)
    parser.add_argument("--sums", action="store_true", help="one product by the length of its sum")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.sqlite")
        (print_sums if options.sums else print_programs)(store)


if __name__ == "__main__":
    sys.exit(ended(main))
