"""What calls of short programs take, run by a worker or by the caller: the figures behind `caller-thread`.

    python -m benchmarks.dispatch

Each program is a chain of operations on 2,000 numbers, called 200 times in turn, each time on its own
result. The caller waits for every result, or only for the last one; between two calls it does nothing, or
works for some time.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.hlo import build_graph, rewrite
from graphopt.hlo.restructure import CODE
from graphopt.learn.tune.subject import make_subject

DEPTHS = (1, 4, 10, 25, 60, 150, 400)
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


def moved(data: bytes) -> bytes | None:
    """A module with its program on the thread of the caller, and nothing else changed."""
    graph = build_graph(data)
    code = CODE["caller-thread"]
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


def main() -> None:
    """Prints a Markdown table; every pair is worker / caller."""
    kinds = [(work, wait) for wait in (True, False) for work in WORK_US]
    heads = [f"{'wait' if wait else 'no wait'}, {work} us" for work, wait in kinds]
    print(f"| program, us | {' | '.join(heads)} |")
    print("| --- |" + " --- |" * len(kinds))
    x = jnp.linspace(0.1, 0.9, 2000)
    for depth in DEPTHS:
        subject = make_subject(chain(depth), (x,), name=f"chain_{depth}")
        programs = [subject.default.executable, subject.compile(moved).executable]
        cells, alone = [], 0.0
        for work, wait in kinds:
            rounds = [[microseconds(p, x, work, wait) for p in programs] for _ in range(ROUNDS)]
            worker, caller = np.median(rounds, axis=0)
            alone = alone or float(caller)
            ratio = float(np.median([a / b for a, b in rounds]))
            cells.append(f"{worker:.0f} / {caller:.0f}: {ratio:.2f}x")
        print(f"| {alone:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
