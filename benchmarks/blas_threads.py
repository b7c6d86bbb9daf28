"""Factorizations by XLA's default and installed, each in processes of its own, in turn.

    python -m benchmarks.blas_threads [--only svd] [--rounds 3] [--pinned]

`install()` takes threads away from SciPy's OpenBLAS where they keep each other waiting, in the whole process:
so default and installed cannot be measured in one. Each cell: milliseconds, median over processes of the
median call, by default / installed, and the ratio of these medians. ``--pinned`` gives all threads one core:
so have workers that are pinned after they have started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

import graphopt
from benchmarks.dispatch import heads, row
from benchmarks.progress import counted, ended

ROUTINES: Final[dict[str, Callable[[jax.Array], object]]] = {
    "triangular solve": lambda a: jax.lax.linalg.triangular_solve(a, a + 1, left_side=True),
    "cholesky": jnp.linalg.cholesky,
    "lu": lambda a: jax.lax.linalg.lu(a)[0],
    "qr": lambda a: jnp.linalg.qr(a)[1],
    "eigh": jnp.linalg.eigh,
    "svd": jnp.linalg.svd,
}
ORDERS: Final = (16, 64, 128, 256, 512)
CALL_S: Final = 0.15
"""About so long every routine is called in one process, at least `CALLS` times."""

CALLS: Final = 3
ROOT: Final = Path(__file__).resolve().parents[1]


def milliseconds(function: Callable[[jax.Array], object], order: int) -> float:
    """Median time of a call that is waited for."""
    x = np.random.default_rng(0).normal(size=(order, order)).astype(np.float32)
    matrix = jnp.asarray(x @ x.T + order * np.eye(order, dtype=np.float32))
    program = jax.jit(lambda a: function(a)).lower(matrix).compile()
    jax.block_until_ready(program(matrix))
    times: list[float] = []
    while len(times) < CALLS or sum(times) < CALL_S:
        start = time.perf_counter()
        jax.block_until_ready(program(matrix))
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


def measured(name: str, installed: bool, pinned: bool) -> list[float]:
    """Milliseconds by order, in a new process."""
    command = [sys.executable, "-m", "benchmarks.blas_threads", "--child", name]
    command += ["--pinned"] * pinned
    environment = {**os.environ, "GRAPHOPT_DISABLE": "" if installed else "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def pin() -> None:
    """Gives all threads of this process one core, those of OpenBLAS included."""
    jnp.linalg.cholesky(jnp.eye(2)).block_until_ready()  # starts them
    core = min(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), [core])


def child(name: str, pinned: bool) -> None:
    """Prints the times of one routine."""
    if pinned:
        pin()
    graphopt.install(store=False)
    print(json.dumps([milliseconds(ROUTINES[name], order) for order in ORDERS]))


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blas_threads")
    parser.add_argument("--only", nargs="+", choices=ROUTINES, default=list(ROUTINES))
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind per routine")
    parser.add_argument("--pinned", action="store_true", help="all threads on one core")
    parser.add_argument("--child", choices=ROUTINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.pinned)
        return 0
    heads("routine", *(f"{order}" for order in ORDERS))
    with counted(options.only, "routines") as names:
        for name in names:
            rounds = [
                [measured(name, installed, options.pinned) for installed in (False, True)]
                for _ in range(options.rounds)
            ]
            default, installed = np.median(rounds, axis=0)
            cells = zip(default, installed, strict=True)
            row([name, *(f"{d:.2f} / {i:.2f}: {d / i:.2f}x" for d, i in cells)])
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
