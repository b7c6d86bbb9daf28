"""What calls of short programs take, run by a worker or by the caller: the figures behind `caller-thread`.

    python -m benchmarks.dispatch

Eight tables. A chain of operations on 2,000 numbers, called 200 times in turn, each time on its own result:
the caller waits for every result, or only for the last one; between two calls it does nothing, or works for
some time. Products of the kernel library and calls of LAPACK, likewise, without work between calls. What a
call takes that computes next to nothing, by how many arrays go in and come out. What one iteration of a loop
takes, by how many kernels its body has. Kernels of vector code that XLA splits over the cores, beside one
core. The same for arrays of one dimension, where the cores' parts are equal or not. And updates in place of
an array by what is read from it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.progress import counted, ended
from benchmarks.rates import all_in
from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.steps import heuristic_steps

DEPTHS = (1, 4, 10, 25, 60, 150, 400)
PRODUCTS = tuple((rows, size, count) for rows, size in ((8, 32), (32, 128)) for count in (1, 4, 16))
"""Rows and columns of the operands, and how many products in a row."""

BUFFERS = ((1, 1), (16, 1), (16, 16), (40, 40))
"""Arrays that go in and come out."""

FACTORISATIONS = (6, 12, 24, 48)
"""Calls of LAPACK in a row."""

KERNELS = (1, 2, 4, 7, 8, 9, 12, 20, 40)
"""Kernels in the body of a loop, each of its own array of 256 numbers."""

TRIPS = 1000

LOOPS = tuple((passes, size) for passes in (1, 8) for size in (1 << 16, 1 << 17, 1 << 18, 1 << 19))
"""Kernels in a row, and their elements."""

LINES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "each by itself": lambda x: jnp.where(x > 0, x * 0.9, x * 0.8) + 0.1,
    "differences": lambda x: x[1:] - x[:-1],
    "curvature": lambda x: x[2:] - 2 * x[1:-1] + x[:-2],
    "rolled": lambda x: jnp.roll(x, 1) + 2 * x,
    "roots": lambda x: jnp.sqrt(x * x + 1) / (x * x + 2),
    "exponentials": lambda x: jnp.exp(-x * x),
}
"""What kernels compute of an array of one dimension."""

LENGTHS = (100_000, 100_001, 1_000_000, 1_000_001)
"""Its elements."""

UPDATES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "add 1": lambda x: x.at[1:-1, 1:-1].add(1.0),
    "product": lambda x: x.at[1:-1, 1:-1].multiply(x[2:, 1:-1]),
    "curvature of whole rows": lambda x: x.at[1:-1].add(x[2:] - 2 * x[1:-1] + x[:-2]),
    "product of whole rows": lambda x: x.at[1:-1].multiply(x[2:]),
    "stencil": lambda x: x.at[1:-1, 1:-1].add(_stencil(x)),
    "mean of neighbours": lambda x: x.at[1:-1, 1:-1].set(0.25 * _around(x)),
    "mean of rows": lambda x: x.at[1:-1].set(0.5 * (x[2:] + x[:-2])),
    "stencil and edges": lambda x: x.at[1:-1, 1:-1].set(_stencil(x)).at[0].set(1.0).at[-1].set(0.0),
    "five steps": lambda x: jax.lax.fori_loop(
        0, 5, lambda _, x: x.at[1:-1, 1:-1].add(_stencil(x)), x
    ),
}
"""Updates in place of a square array."""

SIDES = (64, 256, 1024)

WORK_US = (0, 50, 200)
"""What the caller computes between two calls."""

CALLS = 200
ROUNDS = 9


def chain(depth: int) -> Any:
    """A program whose time grows with `depth`."""

    def fn(x: jax.Array) -> jax.Array:
        for _ in range(depth):
            x = jnp.tanh(x * 1.01)
        return x

    return fn


def with_row(data: bytes, row: str) -> bytes | None:
    """A module with one row of the table of restructures wherever it is legal, and nothing else changed."""
    graph = build_graph(data)
    code = CODE[row]
    codes = np.where(graph.masks.restructure[:, code], code, 0).astype(np.int8)
    return (
        rewrite(graph, graph.default.with_changes(restructure=codes)).data if codes.any() else None
    )


def microseconds(program: Any, x: Any, work_us: float, wait: bool) -> float:
    """Mean time of one call and of the work between two."""
    start = time.perf_counter()
    for _ in range(CALLS):
        until = time.perf_counter() + work_us * 1e-6
        while time.perf_counter() < until:
            pass
        x = program(x)
        if wait:
            x.block_until_ready()
    x.block_until_ready()
    return (time.perf_counter() - start) / CALLS * 1e6


def products(count: int) -> Any:
    """Products in a row, each the operand of the next."""

    def fn(x: jax.Array, weights: jax.Array) -> jax.Array:
        for _ in range(count):
            x = jnp.sin(x @ weights)
        return x

    return fn


def factorisations(count: int) -> Any:
    """Calls of LAPACK in a row, each for the result of the one before."""

    def fn(x: jax.Array) -> jax.Array:
        for i in range(count):
            x = jax.lax.linalg.lu(x + jnp.eye(len(x)) * (2.0 + i))[0]
        return x

    return fn


def buffers(outputs: int) -> Any:
    """A program that computes next to nothing from its arguments."""
    return lambda *xs: tuple(x + 1.0 for x in xs) if outputs > 1 else sum(xs)


def pair(fn: Any, args: tuple[Any, ...], name: str) -> list[Any]:
    """The program as a worker runs it, and as its caller does."""
    subject = make_subject(fn, args, name=name)
    return [
        subject.default.executable,
        subject.compile(partial(with_row, row="caller-thread")).executable,
    ]


def compared(programs: list[Any], once: Callable[[Any], float]) -> tuple[float, str]:
    """Median time of the second program, and a cell of both: `once` times one of them."""
    rounds = [[once(program) for program in programs] for _ in range(ROUNDS)]
    worker, caller = np.median(rounds, axis=0)
    ratio = float(np.median([a / b for a, b in rounds]))
    return float(caller), f"{worker:.0f} / {caller:.0f}: {ratio:.2f}x"


def without_work(programs: list[Any], x: Any) -> list[str]:
    """Cells of both: with a caller that waits for every result and one that does not, nothing else to do."""
    return [
        compared(programs, partial(microseconds, x=x, work_us=0.0, wait=wait))[1]
        for wait in (True, False)
    ]


def row(cells: Sequence[str]) -> None:
    """Prints one row of a Markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def heads(*names: str) -> None:
    """Prints the head of a Markdown table."""
    row(names)
    row(["---"] * len(names))


def print_chains() -> None:
    """Chains of elementwise operations, by what the caller does between two calls."""
    kinds = [(work, wait) for wait in (True, False) for work in WORK_US]
    heads("program, us", *(f"{'wait' if wait else 'no wait'}, {work} us" for work, wait in kinds))
    x = jnp.linspace(0.1, 0.9, 2000)
    with counted(DEPTHS, "chains measured") as rest:
        for depth in rest:
            programs = pair(chain(depth), (x,), f"chain_{depth}")
            found = [
                compared(programs, partial(microseconds, x=x, work_us=work, wait=wait))
                for work, wait in kinds
            ]
            row([f"{found[0][0]:.0f}", *(cell for _, cell in found)])


def _with_weights(program: Any, weights: jax.Array, x: jax.Array) -> Any:
    return program(x, weights)


def print_products() -> None:
    """Products of the kernel library."""
    heads("products", "wait", "no wait")
    with counted(PRODUCTS, "products measured") as rest:
        for rows, size, count in rest:
            x, weights = jnp.ones((rows, size)), jnp.ones((size, size)) / size
            programs = pair(products(count), (x, weights), f"products_{count}")
            bound = [partial(_with_weights, program, weights) for program in programs]
            row([f"{count} of {rows} x {size} by {size} x {size}", *without_work(bound, x)])


def print_factorisations() -> None:
    """Calls of LAPACK."""
    heads("factorisations", "wait", "no wait")
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)), jnp.float32)
    with counted(FACTORISATIONS, "programs measured") as rest:
        for count in rest:
            programs = pair(factorisations(count), (x,), f"factorisations_{count}")
            row([str(count), *without_work(programs, x)])


def print_buffers() -> None:
    """Calls of programs that compute next to nothing."""
    heads("arrays in", "arrays out", "us a call, no wait")
    with counted(BUFFERS, "calls measured") as rest:
        for inputs, outputs in rest:
            xs = [jnp.ones(8) for _ in range(inputs)]
            program = jax.jit(buffers(outputs)).lower(*xs).compile()
            times = []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                for _ in range(CALLS):
                    result = program(*xs)
                jax.block_until_ready(result)
                times.append((time.perf_counter() - start) / CALLS * 1e6)
            row([str(inputs), str(outputs), f"{np.median(times):.0f}"])


def loop(kernels: int) -> Any:
    """A loop whose body has so many kernels that do not depend on each other."""

    def body(_: Any, xs: Any) -> Any:
        return tuple(jax.lax.optimization_barrier(x * 1.01 + i) for i, x in enumerate(xs))

    return lambda x: jax.lax.fori_loop(0, TRIPS, body, (x,) * kernels)


def print_loops() -> None:
    """Iterations of loops in the thunk executor."""
    heads("kernels in the body", "ns an iteration")
    x = jnp.linspace(0.1, 0.9, 256)
    with counted(KERNELS, "loops measured") as rest:
        for kernels in rest:
            program = jax.jit(loop(kernels)).lower(x).compile()
            times = []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                jax.block_until_ready(program(x))
                times.append((time.perf_counter() - start) / TRIPS * 1e9)
            row([str(kernels), f"{np.median(times):.0f}"])


def passes(count: int) -> Any:
    """Kernels of vector code in a row, which are not fused."""

    def fn(x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = jax.lax.optimization_barrier(jnp.where(x > 0, x * 0.9, x * 0.8) + 0.1)
        return x

    return fn


def on_one_core(data: bytes) -> bytes | None:
    """A module with its loops on one core, and nothing else changed."""
    graph = build_graph(data)
    return rewrite(graph, all_in(graph, graph.default, UnitKind.LOOP)).data


def print_splits() -> None:
    """Loops of vector code split over the cores, and on one."""
    heads("kernels", "elements", "wait", "no wait")
    with counted(LOOPS, "splits measured") as rest:
        for count, size in rest:
            x = jnp.linspace(-1.0, 1.0, size)
            subject = make_subject(passes(count), (x,), name=f"passes_{count}")
            programs = [subject.default.executable, subject.compile(on_one_core).executable]
            row([str(count), f"{size:,}", *without_work(programs, x)])


def waited(program: Any, x: jax.Array, calls: int) -> float:
    """Mean microseconds of a call on one array, with a caller that waits for all results."""
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(program(x))
    return (time.perf_counter() - start) / calls * 1e6


Sized = dict[str, Callable[[jax.Array], jax.Array]]
"""Programs of one array."""


def print_sizes(
    programs: Sized, arrays: Sequence[jax.Array], transform: Callable[[bytes], bytes | None]
) -> None:
    """One row per program: XLA's default / what a transform makes of it, by the array."""
    with counted(programs, "programs measured") as rest:
        for name in rest:
            cells = []
            for x in arrays:
                subject = make_subject(programs[name], (x,), name=f"program_{x.size}")
                pair = [subject.default.executable, subject.compile(transform).executable]
                calls = max(10, min(CALLS, CALLS * 100_000 // x.size))
                cells.append(compared(pair, partial(waited, x=x, calls=calls))[1])
            row([name, *cells])


def print_lines() -> None:
    """Loops over arrays of one dimension, split over the cores and on one."""
    heads("kernel", *(f"{length:,}" for length in LENGTHS))
    print_sizes(LINES, [jnp.linspace(-1.0, 1.0, length) for length in LENGTHS], on_one_core)


def _around(x: jax.Array) -> jax.Array:
    return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]


def _stencil(x: jax.Array) -> jax.Array:
    return 0.1 * (_around(x) - 4 * x[1:-1, 1:-1])


def updated(data: bytes) -> bytes | None:
    """A module with the step "updates" of the heuristic, and nothing else changed."""
    graph = build_graph(data)
    return rewrite(graph, heuristic_steps(graph, ("updates",))).data


def print_updates() -> None:
    """Updates in place as one kernel, and with their new values computed before."""
    heads("update", *(f"{side} x {side}" for side in SIDES))
    squares = [jnp.linspace(-1.0, 1.0, side * side).reshape(side, side) for side in SIDES]
    print_sizes(UPDATES, squares, updated)


TABLES = {
    "chains": print_chains,
    "products": print_products,
    "factorisations": print_factorisations,
    "buffers": print_buffers,
    "loops": print_loops,
    "splits": print_splits,
    "lines": print_lines,
    "updates": print_updates,
}


def main() -> None:
    """Prints Markdown tables; every pair is worker / caller, or cores / one core."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dispatch")
    parser.add_argument("--only", choices=TABLES, nargs="+", default=[*TABLES], help="tables")
    for name in parser.parse_args().only:
        TABLES[name]()
        print()


if __name__ == "__main__":
    sys.exit(ended(main))
