"""``python -m benchmarks``: research questions about searches, scores, the environment and placement.

They need the packages of ``graphopt[all]`` and take minutes each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from benchmarks.progress import ended
from graphopt.errors import WorkloadError

BENCHES: dict[str, str] = {
    "bank": "benchmarks.bank:bench_demo",
    "bank-corpus": "benchmarks.bank_corpus:bench_bank_corpus",
    "env": "benchmarks.environment:bench_env",
    "agents": "benchmarks.agents:bench_agents",
    "search": "benchmarks.search:bench_search",
    "methods": "benchmarks.methods:bench_methods",
    "tasks": "benchmarks.tasks:bench_tasks",
    "models": "benchmarks.models.bench:bench_models",
    "policy": "benchmarks.policy_times:bench_policy",
    "faults": "benchmarks.faults:bench_faults",
    "lazy": "benchmarks.lazy_tensors:run_lazy_bench",
    "placement-real": "benchmarks.placement_real:bench_real",
    "placement": "benchmarks.placement_real:bench_model",
    "placement-models": "benchmarks.placement_models:bench_models",
    "placement-scale": "benchmarks.placement_models:bench_scale",
}
"""Name -> module and function; each is imported when it runs."""

SEARCHES = ("search", "methods", "models")
"""Those that take names of programs, and go on where they were interrupted."""


@dataclass(frozen=True)
class Benchmarks:
    """Run one benchmark."""

    what: Annotated[str, tyro.conf.Positional]
    """bank, bank-corpus, env, agents, search, methods, tasks, models, policy, faults, lazy, placement,
    placement-real, placement-models or placement-scale."""
    budget_s: float = 4.0
    """Seconds of timing per program; for tasks, of the search."""
    graphs: tuple[str, ...] = ()
    """For search and methods: names of held-out programs; every fourth if none is given. For models: parts
    of names, such as regnet."""
    out: Path = Path("report/bench")
    """Directory for what has been finished: the same command goes on after an interruption."""


def run(asked: Benchmarks, console: Console | None = None) -> None:
    """Runs one benchmark and prints tables.

    Raises:
        WorkloadError: there is no such benchmark, or no such program, or it takes no names.
    """
    console = console or Console(width=110)
    if asked.what not in BENCHES:
        raise WorkloadError(
            what=f"no benchmark {asked.what!r}",
            where="python -m benchmarks",
            fix=f"Use {', '.join(BENCHES)}.",
        )
    if asked.graphs and asked.what not in SEARCHES:
        raise WorkloadError(
            what=f"benchmark {asked.what} takes no names of programs",
            where="python -m benchmarks --graphs",
            fix=f"Leave them out, or use {' or '.join(SEARCHES)}.",
        )
    module, _, name = BENCHES[asked.what].partition(":")
    bench: Callable[..., None] = getattr(import_module(module), name)
    if asked.what in SEARCHES:
        bench(console, asked.out, asked.graphs)
    else:
        bench(console, asked.budget_s)


if __name__ == "__main__":
    sys.exit(ended(lambda: run(tyro.cli(Benchmarks))))
