"""`lt.capture` and `lt.tune`: what a program's graphs are good for beside running them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from graphopt.errors import GraphOptError, WorkloadError
from graphopt.lazy.core import metrics
from graphopt.lazy.runtime import compiling, cut, optimizer
from graphopt.lazy.runtime.cache import Entry

if TYPE_CHECKING:
    from graphopt.hlo import Graph

INDEX = "graphs.json"
"""Name of the table of contents that `capture` writes."""


@dataclass
class Captured:
    """One graph of a lazy program.

    Attributes:
        name: of the graph.
        operations: recorded operations in it.
        runs: times it ran inside the capture.
        data: the serialised HLO module that XLA receives for it; empty where there is no hook.
    """

    name: str
    operations: int
    runs: int
    data: bytes = b""

    def graph(self) -> Graph:
        """The graph for policies and environments.

        Raises:
            UnsupportedModuleError: a module that graphopt leaves alone.
        """
        from graphopt.hlo import build_graph

        return build_graph(self.data)


@dataclass
class _Seen:
    entry: Entry
    arrays: list[Any]
    scalars: list[Any]
    runs: int = 0
    seconds: float = 0.0


@dataclass
class _Observer:
    seen: dict[str, _Seen] = field(default_factory=dict)

    def __call__(self, entry: Entry, arrays: list[Any], scalars: list[Any]) -> None:
        known = self.seen.setdefault(entry.name, _Seen(entry, arrays, scalars))
        known.runs += 1


@contextmanager
def _observed() -> Iterator[_Observer]:
    cut.run_waiting()
    observer = _Observer()
    cut.observers.append(observer)
    try:
        yield observer
    finally:
        cut.observers.remove(observer)


@contextmanager
def capture(directory: str | os.PathLike[str] | None = None) -> Iterator[list[Captured]]:
    """Collects every graph that runs inside, whichever tier runs it.

    The list is filled at the end of the block; graphs that were not compiled by then are compiled for it.

    Args:
        directory: also write each module as ``<name>.hlo.pb`` there, with an index ``graphs.json``.
    """
    graphs: list[Captured] = []
    with _observed() as observer:
        yield graphs
    for seen in observer.seen.values():
        entry = seen.entry
        try:
            data = compiling.module_of(entry)
        except GraphOptError as error:
            metrics.fallback(f"capture: {error.what}")
            continue
        graphs.append(Captured(entry.name, len(entry.plan.steps), seen.runs, data))
    if directory is not None:
        write(graphs, Path(directory))


def write(graphs: list[Captured], directory: Path) -> None:
    """Writes modules and their index into a directory, which is made if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = []
    for graph in graphs:
        file = re.sub(r"\W", "_", graph.name) + ".hlo.pb"
        (directory / file).write_bytes(graph.data)
        rows.append(
            {"name": graph.name, "file": file, "operations": graph.operations, "runs": graph.runs}
        )
    (directory / INDEX).write_text(json.dumps({"graphs": rows}, indent=1) + "\n")


def read(directory: str | os.PathLike[str]) -> list[Captured]:
    """Graphs that `capture` wrote.

    Raises:
        WorkloadError: there is no readable index.
    """
    path = Path(directory)
    try:
        rows = json.loads((path / INDEX).read_text())["graphs"]
        return [
            Captured(
                row["name"], row["operations"], row["runs"],
                (path / Path(row["file"]).name).read_bytes(),
            )
            for row in rows
        ]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkloadError(
            what=f"no captured graphs: {error}",
            where=str(path),
            fix="Write them with lt.capture(directory) or graphopt capture --lazy.",
        ) from error


@contextmanager
def tune(budget_s: float = 60.0, **options: Any) -> Iterator[list[Any]]:
    """Tunes the graphs that run inside, at the end of the block; their winners are used from then on.

    The budget is shared by the graphs that run most. The list receives one `TuneResult` per graph tuned.

    Args:
        budget_s: seconds to spend after the block.
        **options: of `graphopt.tune`, such as ``store`` and ``seed``.
    """
    results: list[Any] = []
    with _observed() as observer:
        yield results
    from graphopt.learn.tune import tune as search

    compiling.background.drain()  # the tuner must not meet the modules of other compiles
    todo = sorted(observer.seen.values(), key=lambda s: s.runs * len(s.entry.plan.steps))
    end = time.perf_counter() + budget_s
    while todo:
        seen = todo.pop()
        share = (end - time.perf_counter()) / min(len(todo) + 1, 3)
        if share < 1.0:
            break
        result = _tuned(search, seen, share, options)
        if result is not None:
            results.append(result)
    optimizer.renew()


def _tuned(search: Any, seen: _Seen, budget_s: float, options: dict[str, Any]) -> Any:
    entry = seen.entry
    packs = entry.packing.pack(seen.scalars)
    try:
        with jax.enable_x64(True), jax.default_device(entry.plan.device):
            # Arrays bound to a device would put a sharding into the module: another fingerprint
            # than that of the module which the runtime compiles.
            arrays = [jax.numpy.array(np.asarray(x)) for x in seen.arrays]
            return search(
                compiling.flat_function(entry), *arrays, *packs,
                budget_s=budget_s, name=entry.name, **options,
            )  # fmt: skip
    except GraphOptError as error:
        metrics.fallback(f"tune: {error.what}")
        return None
