"""``graphopt capture``: the graphs of a program, as text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from graphopt.corpus.capture import capture_modules
from graphopt.corpus.entries import add_to_corpus
from graphopt.corpus.workloads import build_program, find_program
from graphopt.hlo import Graph, build_graph
from graphopt.jax_private import hlo_text
from graphopt.progress import waiting


def print_graphs(workload: str, hlo: bool) -> None:
    """Prints every graph of a built-in program or of ``pkg.module:builder``.

    Raises:
        WorkloadError: there is no such program.
    """
    program = find_program(workload)
    fn, args = build_program(program, workload)
    with waiting(Console(), f"{workload}: compiling, up to the hook"):
        modules = capture_modules(fn, *args)
    for data in modules:
        print(describe(build_graph(data)))
        if hlo:
            print(hlo_text(data))


def add_program(workload: str, split: str, directory: Path | None) -> None:
    """Captures ``pkg.module:builder`` into the corpus directory and prints its graphs.

    Raises:
        WorkloadError: there is no such builder, or it cannot be built.
    """
    with waiting(Console(), f"{workload}: compiling, up to the hook"):
        entry = add_to_corpus(workload, split, directory)
    print(f"{entry.name} ({entry.split}) is in {entry.cache.directory}")
    for graph in entry.graphs:
        print(describe(graph))


def describe(graph: Graph) -> str:
    """A few lines about one graph."""
    common = Counter(op.name for op in graph.ops).most_common(8)
    lines = [
        repr(graph),
        "  operations: " + ", ".join(f"{count} {name}" for name, count in common),
    ]
    for computation in graph.computations:
        trips = "" if computation.trip_count is None else f", {computation.trip_count} trips"
        size = computation.end - computation.first
        lines.append(f"  {computation.role.name.lower()} {computation.name}: {size} nodes{trips}")
    return "\n".join(lines)
