"""How many requests of 2 s four machines answer in the time in which one answers one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.fleet.cluster import cluster, write
from graphopt.executing.ray_executor import RayExecutor
from graphopt.executing.request import Request
from graphopt.progress import waiting

SECONDS: Final = 2.0
EACH: Final = 8
"""Requests per node."""

WARM: Final = 4
"""Short requests per node before: all actors run when time is taken."""


def answered(nodes: int) -> dict[str, Any]:
    """Requests per second of so many nodes, once their actors run."""
    with cluster(nodes) as made, RayExecutor(made.address) as executor:
        for number in range(WARM * nodes):
            executor.submit(_request(-1 - number, 0.5))
        begin = time.perf_counter()
        list(executor.results())
        start_s = time.perf_counter() - begin
        for number in range(EACH * nodes):
            executor.submit(_request(number, SECONDS))
        begin = time.perf_counter()
        answers = list(executor.results())
        seconds = time.perf_counter() - begin
        assert len(answers) == EACH * nodes and all(a.ok for a in answers)
        import ray

        executor.close()
        ray.shutdown()
    return {
        "nodes": nodes, "requests": len(answers), "start_s": start_s, "seconds": seconds,
        "per_s": len(answers) / seconds, "busy": len(answers) * SECONDS / seconds / nodes,
    }  # fmt: skip


def _request(number: int, seconds: float) -> Request:
    body = {"number": number, "seconds": seconds}
    return Request("benchmarks.fleet.pretended:wait", body)


def run(count: int, out: Path) -> None:
    """One node, and four (or `count`)."""
    console = Console(width=100)
    rows = []
    for nodes in (1, count or 4):
        with waiting(console, f"{EACH * nodes} requests of {SECONDS:g} s to {nodes} nodes"):
            rows.append(answered(nodes))
    gain = rows[1]["per_s"] / rows[0]["per_s"]
    table = Table(title=f"requests of {SECONDS:g} s")
    for name in ("nodes", "requests", "first actors s", "seconds", "requests a second", "busy"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['nodes']}", f"{row['requests']}", f"{row['start_s']:.1f}", f"{row['seconds']:.1f}",
            f"{row['per_s']:.3f}", f"{row['busy']:.1%}",
        )  # fmt: skip
    console.print(table)
    console.print(f"{gain:.2f} times the throughput of one")
    write(out, "throughput", {"seconds_each": SECONDS, "rows": rows, "gain": gain})
