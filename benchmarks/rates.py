"""What single operations cost XLA:CPU: the figures behind `graphopt.machine.CpuCosts`.

    python -m benchmarks.rates [--only sine]
    python -m benchmarks.rates --products
    python -m benchmarks.rates --shared
    python -m benchmarks.rates --windows
    python -m benchmarks.rates --quotients
    python -m benchmarks.rates --tall

An elementwise operation is a program of one loop, kept on one core, at two sizes; the difference of their
times over the difference of their elements takes the cost of the call away. A matrix product is run again
and again in a loop: by the matrix library, as plain loops in native code, and there in blocks; larger ones
by XLA's kernel library and by its runtime, both of which decide by themselves how many cores they use.
Overlapping windows: by XLA's loop kernel and in native code, as shifted arrays, and as a loop over rows in
both. Quotients of whole numbers, by an array and by a number that the compiler knows: in loops over one
kernel, and as native code. Tall matrices by vectors, from both sides: native loops that read the matrix as it
is, and turned.
"""

from __future__ import annotations

import argparse
import itertools
import math
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
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import UnitKind, unit_index
from graphopt.measure import compile_with
from graphopt.measure.children.runner import Runner
from graphopt.store import Store

SIZES = (1 << 15, 1 << 17)
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1.5,
    "atan2": lambda x: lax.atan2(x, x + 2),
    "cbrt": lax.cbrt,
    "compare and select": lambda x: jnp.where(x > 0, x, 2 * x),
    "cosine": lax.cos,
    "divide": lambda x: 1.5 / (x + 2),
    "erf": lax.erf,
    "exponential": lax.exp,
    "exponential-minus-one": lax.expm1,
    "log": lambda x: lax.log(x * x + 1),
    "log-plus-one": lambda x: lax.log1p(x * x),
    "logistic": lax.logistic,
    "power": lambda x: lax.pow(x * x + 1, x),
    "remainder": lambda x: lax.rem(x, x + 2),
    "rsqrt": lambda x: lax.rsqrt(x * x + 1),
    "sine": lax.sin,
    "sqrt": lambda x: lax.sqrt(x + 2),
    "tan": lax.tan,
    "tanh": lax.tanh,
    "sum of rows": lambda x: jnp.sum(x.reshape(-1, 64), axis=1),
    "sum of columns": lambda x: jnp.sum(x.reshape(-1, 64), axis=0),
    "maximum of rows": lambda x: jnp.max(x.reshape(-1, 64), axis=1),
    "place of the maximum of rows": lambda x: jnp.argmax(x.reshape(-1, 64), axis=1),
    "transpose": lambda x: x.reshape(-1, 128).T + 1,
    "gather": lambda x: x[(jnp.arange(x.size) * 7919) % x.size],
}
"""Name -> what is computed from an array."""

FORMS = {"a b": ((1,), (0,)), "aT b": ((0,), (0,)), "a bT": ((1,), (1,))}
PRODUCTS = (
    (1, 64, 64), (2, 16, 64), (8, 24, 24), (8, 12, 96), (32, 8, 32), (4, 64, 64), (16, 64, 64), (64, 64, 64),
    (4, 256, 64), (4, 64, 8), (64, 48, 8), (3, 1024, 16), (400, 30, 1), (30, 400, 1), (1, 400, 30),
    (100, 100, 1), (1000, 4, 1), (4, 1000, 1), (400, 60, 1), (1, 400, 60), (256, 3, 3), (256, 6, 6),
    (256, 6, 16), (256, 17, 16), (2000, 3, 3), (2000, 6, 6), (2000, 7, 64), (1000, 16, 4), (1000, 16, 16),
    (32, 64, 4), (64, 64, 10), (64, 1024, 2), (64, 1024, 16), (128, 256, 10), (256, 512, 6), (16, 2000, 2),
    (16, 2000, 10), (784, 64, 10), (64, 1024, 32), (256, 32, 256), (128, 256, 128), (300, 128, 100),
    (64, 2000, 64), (128, 128, 400),
)  # fmt: skip
"""(rows, contracted, columns)."""

SHARED = (
    (64, 64, 64), (256, 64, 64), (512, 64, 64), (1024, 32, 64), (1024, 64, 64), (1000, 60, 60),
    (300, 100, 100), (256, 128, 128), (512, 128, 128), (256, 64, 256), (256, 256, 256), (1024, 16, 128),
    (4096, 32, 32), (32, 1024, 64), (1024, 256, 64), (1024, 256, 256),
)  # fmt: skip
"""(rows, contracted, columns) of products from which on the library or the runtime uses two cores."""

BATCHES = (
    (8, 4, 4, 4), (64, 4, 4, 4), (500, 4, 4, 4), (60, 6, 6, 6), (100, 3, 3, 3), (32, 8, 8, 8),
    (16, 12, 12, 12), (80, 1, 80, 2), (32, 1, 16, 8), (80, 1, 2, 80), (4, 16, 16, 16),
)  # fmt: skip
"""(matrices, rows, contracted, columns)."""

TIMES = 400

WINDOWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]], Any]] = {
    "cumulative sums, rows of 16": ((-1, 16), (1, 16), [(0, 0), (15, 0)], lax.add),
    "sums of 5 along rows of 64": ((-1, 64), (1, 5), [(0, 0), (2, 2)], lax.add),
    "sums of 32 along columns of 256": ((256, -1), (32, 1), [(16, 15), (0, 0)], lax.add),
    "sums of 3 x 3": ((-1, 128), (3, 3), [(1, 1), (1, 1)], lax.add),
    "maxima of 3 x 3": ((-1, 128), (3, 3), [(1, 1), (1, 1)], lax.max),
    "sums of 7 x 7": ((-1, 128), (7, 7), [(3, 3), (3, 3)], lax.add),
    "sums of 3 x 3, 8 channels": (
        (-1, 32, 32, 8), (1, 3, 3, 1), [(0, 0), (1, 1), (1, 1), (0, 0)], lax.add,
    ),
}  # fmt: skip
"""Name -> shape (-1: what is left), window, padding, combiner."""

QUOTIENTS: dict[str, Callable[[Any], Any]] = {
    "neither": lambda x: x ^ (x >> 3),
    "divide by an array": lambda x: lax.div(x, x >> 5),
    "remainder by an array": lambda x: lax.rem(x, x >> 5),
    "divide by 7": lambda x: lax.div(x, x.dtype.type(7)),
    "remainder by 7": lambda x: lax.rem(x, x.dtype.type(7)),
    "remainder by 1000": lambda x: lax.rem(x, x.dtype.type(1000)),
    "remainder by 64": lambda x: lax.rem(x, x.dtype.type(64)),
}
"""Name -> what is computed from whole numbers."""

TALL = [(n, k) for n in (50, 200, 1000) for k in (3, 5, 8, 10, 15, 16, 20, 25, 32)]
"""Rows and columns of tall matrices."""

QUOTIENT_SIZES = (1 << 12, 1 << 14)
QUOTIENT_TIMES = 20


def median_s(runner: Runner, decisions: Decisions) -> float:
    """Seconds of one call of the program; nan where the vector could not be measured."""
    found = runner.measure(decisions, budget_s=0.3)
    return found.seconds if found.ok and found.seconds else math.nan


def all_in(graph: Graph, decisions: Decisions, kind: UnitKind) -> Decisions:
    """All kernels that may be in loops on one core, or in native code, put there."""
    unit = unit_index(graph.units, kind)
    units = decisions.unit.copy()
    units[~decisions.fuse & graph.masks.unit[:, unit]] = unit
    return decisions.with_changes(unit=units)


def per_element(fn: Callable[[Any], Any], dtype: Any, store: Store) -> float:
    """Nanoseconds of one element, the program's loops on one core."""
    rng, times = np.random.default_rng(0), []
    for size in SIZES:
        data, inputs = make_subject(fn, ((rng.random(size) - 0.5).astype(dtype),)).modules[0]
        graph = build_graph(data)
        with Runner(data, inputs, store) as runner:
            runner.start()
            times.append(median_s(runner, all_in(graph, graph.default, UnitKind.LOOP)))
    return 1e9 * (times[1] - times[0]) / (SIZES[1] - SIZES[0])


def repeated(numbers: Any) -> Callable[[Any, Any], Any]:
    """A loop of products, each of which depends on the one before."""

    def run(a: Any, b: Any) -> Any:
        def body(_: Any, last: Any) -> Any:
            first = a.at[(0,) * a.ndim].set(last)
            return lax.dot_general(first, b, numbers).ravel()[0] * 1e-3

        return lax.fori_loop(0, TIMES, body, jnp.float32(0.1))

    return run


def product_ns(
    form: str,
    sizes: tuple[int, ...],
    store: Store,
    made: Callable[[Graph], list[Any]] | None = None,
) -> list[float]:
    """Nanoseconds of one product, or a batch of them, in each of `ways` (nan: not legal)."""
    *batch, rows, inner, columns = sizes
    left, right = FORMS[form]
    rng, n = np.random.default_rng(0), len(batch)
    a = rng.random((*batch, *((rows, inner) if left == (1,) else (inner, rows))))
    b = rng.random((*batch, *((inner, columns) if right == (0,) else (columns, inner))))
    numbers = (((left[0] + n,), (right[0] + n,)), (tuple(range(n)),) * 2)
    args = (a.astype(np.float32), b.astype(np.float32))
    data, inputs = make_subject(repeated(numbers), args).modules[0]
    graph = build_graph(data)
    with Runner(data, inputs, store) as runner:
        runner.start()
        return [
            1e9 / TIMES * median_s(runner, vector) if vector else math.nan
            for vector in (made or ways)(graph)
        ]


def ways(graph: Graph) -> list[Decisions | None]:
    """XLA's default; native loops with plain products, blocks, reductions; then, outside of native code, a
    reduction, swapped operands, and the runtime.

    None where that is not legal.
    """
    units = graph.default.unit.copy()
    units[[op.name == "while" for op in graph.ops]] = unit_index(graph.units, UnitKind.NATIVE)
    plain = graph.default.with_changes(unit=units)
    made: list[Decisions | None] = [graph.default, plain]
    for start, name in (
        (plain, "dot-blocks"),
        (plain, "dot-reduce"),
        (graph.default, "dot-reduce"),
        (graph.default, "dot-swap"),
    ):
        legal = graph.masks.restructure[:, CODE[name]]
        codes = np.where(legal, CODE[name], start.restructure).astype(np.int8)
        made.append(start.with_changes(restructure=codes) if legal.any() else None)
    return [*made, by_runtime(graph)]


def by_runtime(graph: Graph) -> Decisions | None:
    """Products by the runtime instead of the kernel library; None where they are already, or may not be."""
    runtime, library = (unit_index(graph.units, k) for k in (UnitKind.RUNTIME, UnitKind.LIBRARY))
    units = graph.default.unit.copy()
    products = [n for n, op in enumerate(graph.ops) if op.name == "dot"]
    moved = [n for n in products if units[n] == library and graph.masks.unit[n, runtime]]
    units[moved] = runtime
    return graph.default.with_changes(unit=units) if moved else None


def library_and_runtime(graph: Graph) -> list[Decisions | None]:
    """XLA's default, which is its kernel library, and the runtime."""
    return [graph.default, by_runtime(graph)]


def print_operations(only: str, store: Store) -> None:
    """A Markdown table of elementwise operations and reductions."""
    print("| operation | ns per element, f32 | f64 |\n| --- | --- | --- |")
    with counted(OPERATIONS.items(), "operations measured") as rest:
        for name, fn in rest:
            if name.startswith(only):
                row = [f"{per_element(fn, dtype, store):.2f}" for dtype in (np.float32, np.float64)]
                print(f"| {name} | {' | '.join(row)} |", flush=True)


def print_products(store: Store) -> None:
    """A Markdown table of matrix products."""
    print(
        "| product | (batch,) rows, contracted, columns | default, us | native, plain loops "
        "| native, in blocks | native, as a reduction | loop kernel, as a reduction | operands swapped "
        "| runtime |"
    )
    print("|" + " --- |" * 9)
    with counted(itertools.product(FORMS, (*PRODUCTS, *BATCHES)), "products measured") as rest:
        for form, sizes in rest:
            row = [f"{ns / 1e3:.2f}" if ns == ns else "-" for ns in product_ns(form, sizes, store)]
            print(f"| {form} | {', '.join(map(str, sizes))} | {' | '.join(row)} |", flush=True)


def print_shared(store: Store) -> None:
    """A Markdown table of products by the kernel library and by the runtime."""
    print("| product | rows, contracted, columns | library, us | runtime, us | ratio |")
    print("|" + " --- |" * 5)
    with counted(itertools.product(("a b", "a bT"), SHARED), "products measured") as rest:
        for form, sizes in rest:
            library, runtime = product_ns(form, sizes, store, library_and_runtime)
            cells = [f"{library / 1e3:.0f}", f"{runtime / 1e3:.0f}", f"{library / runtime:.2f}"]
            print(f"| {form} | {', '.join(map(str, sizes))} | {' | '.join(cells)} |", flush=True)


def window_ns(name: str, store: Store) -> list[float]:
    """Nanoseconds per element: loop kernel and native, as it is, as shifted arrays, and as a loop over rows.

    From two sizes; nan where a form is not legal.
    """
    shape, window, padding, combine = WINDOWS[name]

    def fn(x: Any) -> Any:
        x = (x * np.float32(1.5)).reshape(shape)
        return lax.reduce_window(x, np.float32(0), combine, window, [1] * len(shape), padding)

    rng, times = np.random.default_rng(0), []
    for size in SIZES:
        inputs = (rng.random(size).astype(np.float32),)
        data = compile_with(fn, inputs).modules[0]  # where jax lowers windows as XLA has them
        graph = build_graph(data)
        with Runner(data, inputs, store) as runner:
            runner.start()
            times.append(
                [
                    median_s(runner, all_in(graph, form, kind)) if form else math.nan
                    for form in window_forms(graph)
                    for kind in (UnitKind.LOOP, UnitKind.NATIVE)
                ]
            )
    return [1e9 * (b - a) / (SIZES[1] - SIZES[0]) for a, b in zip(*times, strict=True)]


def window_forms(graph: Graph) -> list[Decisions | None]:
    """XLA's windows, shifted arrays, and a loop over rows; None where that is not legal."""
    made: list[Decisions | None] = [graph.default]
    for name in ("window-doubling", "window-running"):
        legal = graph.masks.restructure[:, CODE[name]]
        codes = np.where(legal, CODE[name], 0).astype(np.int8)
        made.append(graph.default.with_changes(restructure=codes) if legal.any() else None)
    return made


def print_windows(store: Store) -> None:
    """A Markdown table of overlapping windows."""
    print(
        "| window | loop kernel, ns per element | native | shifted, loop kernels | shifted, native "
        "| as a loop, loop kernels | as a loop, native |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with counted(WINDOWS, "windows measured") as rest:
        for name in rest:
            row = [f"{ns:.2f}" if ns == ns else "-" for ns in window_ns(name, store)]
            print(f"| {name} | {' | '.join(row)} |", flush=True)


def quotient_ns(name: str, dtype: Any, store: Store) -> list[float]:
    """Nanoseconds per element: in loops over one kernel, and native."""

    def fn(x: Any) -> Any:
        step = lambda i, x: (QUOTIENTS[name](x) + x) ^ i.astype(dtype)  # noqa: E731
        return lax.fori_loop(0, QUOTIENT_TIMES, step, x)

    rng, times = np.random.default_rng(0), []
    for size in QUOTIENT_SIZES:
        inputs = (rng.integers(1, 1 << 30, size).astype(dtype),)
        data = compile_with(fn, inputs).modules[0]  # no forms: quotients as XLA has them
        graph = build_graph(data)
        kernels = all_in(graph, graph.default, UnitKind.LOOP)
        native = kernels.copy()
        native.unit[[op.name == "while" for op in graph.ops]] = unit_index(
            graph.units, UnitKind.NATIVE
        )
        with Runner(data, inputs, store) as runner:
            runner.start()
            times.append([median_s(runner, vector) for vector in (kernels, native)])
    elements = QUOTIENT_TIMES * (QUOTIENT_SIZES[1] - QUOTIENT_SIZES[0])
    return [1e9 * (b - a) / elements for a, b in zip(*times, strict=True)]


def print_quotients(store: Store) -> None:
    """A Markdown table of quotients of whole numbers."""
    print("| quotient | type | kernels, ns per element | native |")
    print("|" + " --- |" * 4)
    kinds = (np.int32, np.uint32, np.int64)
    with counted(itertools.product(QUOTIENTS, kinds), "quotients measured") as rest:
        for name, dtype in rest:
            row = [f"{ns:.2f}" if ns == ns else "-" for ns in quotient_ns(name, dtype, store)]
            print(f"| {name} | {np.dtype(dtype).name} | {' | '.join(row)} |", flush=True)


def tall_ns(sizes: tuple[int, int], dtype: Any, side: int, store: Store) -> list[float]:
    """Nanoseconds of a tall matrix by a vector in native code: as it is, and turned (nan: not legal).

    Args:
        sizes: rows and columns.
        dtype: of both.
        side: dimension that is summed.
        store: for the compiled modules.
    """
    x = np.random.default_rng(0).normal(size=sizes).astype(dtype)
    numbers = (((side,), (0,)), ((), ()))

    def run(x: Any, v: Any) -> Any:
        def body(_: Any, last: Any) -> Any:
            return lax.dot_general(x, v.at[0].set(last), numbers)[0] * dtype(1e-3)

        return lax.fori_loop(0, TIMES, body, v[0])

    data, inputs = make_subject(run, (x, np.ones(sizes[side], dtype))).modules[0]
    graph = build_graph(data)
    native = ways(graph)[1]
    assert native is not None
    legal = graph.masks.restructure[:, CODE["invariants"]]
    codes = np.where(legal, CODE["invariants"], 0).astype(np.int8)
    turned = native.with_changes(restructure=codes) if legal.any() else None
    with Runner(data, inputs, store) as runner:
        runner.start()
        found = [1e9 / TIMES * median_s(runner, v) if v else math.nan for v in (native, turned)]
    return found


def print_tall(store: Store) -> None:
    """A Markdown table of tall matrices by vectors."""
    print("| rows, columns | type | X b, ns | X turned | Xᵀ r, ns | X turned, Xᵀ r |")
    print("|" + " --- |" * 6)
    with counted(itertools.product(TALL, (np.float32, np.float64)), "matrices measured") as rest:
        for sizes, dtype in rest:
            cells = [ns for side in (1, 0) for ns in tall_ns(sizes, dtype, side, store)]
            row = " | ".join(f"{ns:.0f}" if ns == ns else "-" for ns in cells)
            print(f"| {sizes[0]}, {sizes[1]} | {np.dtype(dtype).name} | {row} |", flush=True)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rates", description=__doc__)
    parser.add_argument("--only", default="", help="operations whose name starts so")
    parser.add_argument("--products", action="store_true", help="matrix products instead")
    parser.add_argument("--shared", action="store_true", help="larger ones, on several cores")
    parser.add_argument("--windows", action="store_true", help="overlapping windows instead")
    parser.add_argument(
        "--quotients", action="store_true", help="quotients of whole numbers instead"
    )
    parser.add_argument("--tall", action="store_true", help="tall matrices by vectors instead")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.sqlite")
        if options.products:
            print_products(store)
        elif options.shared:
            print_shared(store)
        elif options.windows:
            print_windows(store)
        elif options.quotients:
            print_quotients(store)
        elif options.tall:
            print_tall(store)
        else:
            print_operations(options.only, store)


if __name__ == "__main__":
    sys.exit(ended(main))
