"""What functions of short arrays cost in native code, alone and packed, and how exact forms of functions are.

    python -m benchmarks.functions [--only tanh] [--f64] [--arrays 1]
    python -m benchmarks.functions --errors [--f64] [--every 257] [--only atan]

A loop of 500 iterations carries eight arrays (`--arrays`) and applies one function, a multiplication and an
addition to each. These are the figures behind `graphopt.policy.heuristic.packed_functions`. Errors: see
`benchmarks.function_errors`.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax

from benchmarks import function_errors
from benchmarks.progress import counted, ended
from graphopt.hlo import Decisions, Graph, build_graph
from graphopt.hlo.restructure import CODE
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import UnitKind, unit_index
from graphopt.measure.children.runner import Runner
from graphopt.store import Store

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "(none)": lambda x: x,
    "divide": lambda x: 1.3 / x,
    "erf": lax.erf,
    "exponential": lax.exp,
    "exponential-minus-one": lax.expm1,
    "log": lax.log,
    "log-plus-one": lax.log1p,
    "logistic": lax.logistic,
    "rsqrt": lax.rsqrt,
    "sine": lax.sin,
    "tanh": lax.tanh,
}
SIZES = (1, 4, 8, 16, 32, 64, 256)
PACKED_SIZES = (1, 4, 8, 16, 32)
TIMES = 500


def loop(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """The program that is measured."""

    def run(*arrays: Any) -> Any:
        def body(carried: Any, _: None) -> Any:
            return tuple(function(x) * 0.37 + 0.61 for x in carried), None

        return lax.scan(body, arrays, None, length=TIMES)[0]

    return run


def native_loop(graph: Graph, packed: bool) -> Decisions | None:
    """The loop as native code, the functions packed or as they are; None where that is not legal."""
    out = graph.default.copy()
    loops = [node for node, op in enumerate(graph.ops) if op.name == "while"]
    out.unit[loops] = unit_index(graph.units, UnitKind.NATIVE)
    chosen = np.flatnonzero(graph.masks.restructure[:, CODE["pack"]]) if packed else np.array([])
    if packed and not len(chosen):
        return None
    for node in chosen.tolist():
        out.restructure[node] = CODE["pack"]
        for value in (node, *graph.operand_lists[node]):
            out.fuse[value] = out.fuse[value] and not graph.masks.fuse[value, 0]
    return out


def element_ns(
    function: Callable[[Any], Any], shape: tuple[int, int], dtype: Any, packed: bool, store: Store
) -> float:
    """Nanoseconds per element and iteration, of so many arrays of a size; nan where it cannot be packed."""
    count, size = shape
    arrays = [np.linspace(0.3 + 0.01 * k, 0.9, size).astype(dtype) for k in range(count)]
    data, inputs = make_subject(loop(function), tuple(arrays)).modules[0]
    graph = build_graph(data)
    decisions = native_loop(graph, packed)
    if decisions is None:
        return math.nan
    with Runner(data, inputs, store) as runner:
        runner.start()
        found = runner.measure(decisions, budget_s=0.3)
    seconds = found.seconds if found.ok and found.seconds else math.nan
    return 1e9 * seconds / (TIMES * count * size)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions", description=__doc__)
    parser.add_argument("--only", default="", help="functions whose name starts so")
    parser.add_argument("--f64", action="store_true", help="double precision")
    parser.add_argument("--arrays", type=int, default=8, help="arrays that the loop carries")
    parser.add_argument("--errors", action="store_true", help="largest errors of functions' forms")
    parser.add_argument(
        "--every", type=int, default=257, help="distance of the floats for --errors"
    )
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.f64)  # type: ignore[no-untyped-call]
    if options.errors:
        for line in function_errors.table(options.every, options.only, double=options.f64):
            print(line, flush=True)
        return
    dtype = np.float64 if options.f64 else np.float32
    sizes = [(size, False) for size in SIZES] + [(size, True) for size in PACKED_SIZES]
    count = options.arrays
    heads = [f"{count} x {size}{', packed' if packed else ''}" for size, packed in sizes]
    print(f"| ns per element, {np.dtype(dtype).name} | {' | '.join(heads)} |")
    print(f"| --- |{' --- |' * len(heads)}")
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.sqlite")
        with counted(FUNCTIONS.items(), "functions measured") as rest:
            for name, function in rest:
                if not name.startswith(options.only):
                    continue
                row = [
                    element_ns(function, (count, n), dtype, packed, store) for n, packed in sizes
                ]
                cells = ["-" if ns != ns else f"{ns:.2f}" for ns in row]
                print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(ended(main))
