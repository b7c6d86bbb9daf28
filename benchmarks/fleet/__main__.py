"""``python -m benchmarks.fleet PART``: throughput, equality, kills, service-times or simulation.

The cluster is Ray's own for tests: several nodes on this machine. Each part prints a table and writes JSON.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import tyro

from benchmarks.progress import ended

PARTS = {
    "throughput": "benchmarks.fleet.throughput:run",
    "equality": "benchmarks.fleet.equality:run",
    "kills": "benchmarks.fleet.kills:run",
    "service-times": "benchmarks.fleet.service_times:run",
    "simulation": "benchmarks.fleet.simulation:run",
}
"""Part -> ``module:function``."""


@dataclass(frozen=True)
class Arguments:
    """Measuring on several machines."""

    part: Annotated[
        Literal["throughput", "equality", "kills", "service-times", "simulation"],
        tyro.conf.Positional,
    ]
    """What is measured."""
    count: int = 0
    """Nodes, tasks, kills or repeats, as the part has it; 0 for its default."""
    out: Path = Path("report/fleet")
    """Folder of the JSON."""


def main() -> None:
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.fleet")
    module, _, name = PARTS[arguments.part].partition(":")
    getattr(import_module(module), name)(arguments.count, arguments.out)


if __name__ == "__main__":
    sys.exit(ended(main))
