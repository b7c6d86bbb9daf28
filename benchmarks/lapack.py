"""What factorizations and solves of small matrices take: the figures behind `graphopt.machine.cost_tables`.

    python -m benchmarks.lapack

Per routine, order and number of matrices: the call of LAPACK, and the replacement in native code; from the
profiler's trace of every kernel, medians of twenty runs.
"""

from __future__ import annotations

import itertools
import shutil
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
from graphopt.costs.opaque import wall_costs
from graphopt.hlo import build_graph, rewrite
from graphopt.learn.tune.confirm import Runs
from graphopt.learn.tune.subject import make_subject
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.support.walls import opening_code

ROUTINES: dict[str, Callable[[Any, Any], Any]] = {
    "potrf": lambda a, b: lax.linalg.cholesky(a, symmetrize_input=False),
    "getrf": lambda a, b: lax.linalg.lu(a)[0],
    "trsm": lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
}
ORDERS = (2, 4, 6, 12, 24, 40)
COUNTS = (1, 16, 512)
MAX_WORK = 1 << 21
RUNS = 20


def replaced(data: bytes) -> bytes:
    """A module whose calls of LAPACK are loops in native code."""
    graph = build_graph(data)
    decisions = graph.default.copy()
    for node, op in enumerate(graph.ops):
        if op.name == "custom-call":
            decisions.restructure[node] = opening_code(graph, node)
            decisions.unit[node] = unit_index(graph.units, UnitKind.NATIVE)
    return rewrite(graph, decisions).data


def nanoseconds(run: Runs) -> dict[str, float]:
    """Kernel -> median time of one run."""
    for _ in range(RUNS):
        run()
    directory = tempfile.mkdtemp(prefix="graphopt-lapack-")
    try:
        with jax.profiler.trace(directory):
            for _ in range(RUNS):
                run()
        (trace,) = Path(directory).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(trace))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    times: dict[str, list[float]] = {}
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                times.setdefault(event.name, []).append(event.duration_ns)
    return {name: float(np.median(found)) for name, found in times.items()}


def main() -> None:
    """Prints a Markdown table."""
    print("| routine | order | matrices | call, us | native code, us | estimates, us |")
    print("| --- | --- | --- | --- | --- | --- |")
    rng = np.random.default_rng(0)
    wanted = [
        (name, order, count)
        for name, order, count in itertools.product(ROUTINES, ORDERS, COUNTS)
        if order**3 * count <= MAX_WORK
    ]
    with counted(wanted, "calls measured") as rest:
        for name, order, count in rest:
            fn = ROUTINES[name]
            a = rng.standard_normal((count, order, order)).astype(np.float32)
            a = a @ a.transpose(0, 2, 1) + order * np.eye(order, dtype=np.float32)
            b = rng.standard_normal((count, order, 1)).astype(np.float32)
            subject = make_subject(fn, (jnp.asarray(a), jnp.asarray(b)), name=name)
            graph = max((build_graph(data) for data, _ in subject.modules), key=len)
            (node,) = (n for n, op in enumerate(graph.ops) if op.name == "custom-call")
            call = nanoseconds(Runs(subject.default, False))[graph.source.names[node]]
            times = nanoseconds(Runs(subject.compile(replaced), False))
            native = max(ns for name, ns in times.items() if name.startswith("native_region"))
            guess = ", ".join(f"{ns / 1e3:.1f}" for ns in wall_costs(graph, node))
            print(
                f"| {name} | {order} | {count} | {call / 1e3:.1f} | {native / 1e3:.1f} | {guess} |",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(ended(main))
