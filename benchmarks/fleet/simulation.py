"""Collecting on 1 to 1,000 machines, simulated: who is busy, and where it breaks.

A driver prepares tasks and takes answers, one thing at a time; machines answer requests of eight duels;
rows go to one PostgreSQL server, which takes one at a time. Times are those of
`benchmarks.fleet.service_times`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import simpy
from rich.console import Console
from rich.table import Table

from benchmarks.fleet.cluster import write
from benchmarks.fleet.service_times import PATH
from benchmarks.progress import counted

MACHINES: Final = (1, 10, 100, 1000)
DRIVERS: Final = (1, 16, 64)

BATCH: Final = 8
"""Duels of a request."""

REQUESTS: Final = 4
"""Of a task: some thirty duels."""

HORIZON_S: Final = 1200.0


@dataclass
class Model:
    """One simulated run.

    Attributes:
        times: service times.
        machines: that measure.
        drivers: that prepare tasks and take answers.
        duels: held so far.
        rows: written so far.
    """

    times: dict[str, Any]
    machines: int
    drivers: int
    duels: int = 0
    rows: int = 0
    busy: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("driver", "machine", "store"), 0.0)
    )

    def run(self) -> dict[str, Any]:
        """Rates and the busy share of each part, over the last three quarters of the time."""
        self.random = random.Random(self.machines * 31 + self.drivers)
        self.env = simpy.Environment()
        self.waiting = simpy.Store(self.env, capacity=2 * self.machines + REQUESTS * self.drivers)
        self.answers = [simpy.Store(self.env) for _ in range(self.drivers)]
        self.store = simpy.Resource(self.env)
        for number in range(self.drivers):
            self.env.process(self._driver(number))
        for _ in range(self.machines):
            self.env.process(self._machine())
        self.env.run(HORIZON_S / 4)
        before = (self.duels, self.rows, dict(self.busy))
        self.env.run(HORIZON_S)
        span = HORIZON_S * 0.75
        shares = {
            part: (self.busy[part] - before[2][part]) / span / count
            for part, count in (("driver", self.drivers), ("machine", self.machines), ("store", 1))
        }
        return {
            "machines": self.machines, "drivers": self.drivers,
            "duels_per_s": (self.duels - before[0]) / span,
            "rows_per_s": (self.rows - before[1]) / span,
            **{f"{part}_busy": share for part, share in shares.items()},
        }  # fmt: skip

    def _work(self, part: str, seconds: float) -> simpy.Timeout:
        self.busy[part] += seconds
        return self.env.timeout(seconds)

    def _driver(self, number: int) -> Iterator[simpy.Event]:
        """Takes answers first; prepares a task where requests run short."""
        answers = self.answers[number]
        while True:
            if answers.items:
                rows = yield answers.get()
                yield self._work("driver", rows * self.times["take_duel_s"])
                with self.store.request() as turn:
                    yield turn
                    yield self._work("store", rows * self.times["row_s"])
                self.rows += rows
            elif len(self.waiting.items) < 2 * self.machines:
                yield self._work("driver", self.random.choice(self.times["prepare_task_s"]))
                for _ in range(REQUESTS):
                    yield self.waiting.put(number)
            else:
                yield self.env.timeout(0.05)

    def _machine(self) -> Iterator[simpy.Event]:
        """Answers; every fourth request is of another task, whose default is compiled first."""
        while True:
            number = yield self.waiting.get()
            seconds = self.times["round_trip_s"]
            seconds += self.times["start_task_s"] / REQUESTS
            seconds += sum(self.random.choice(self.times["duel_s"]) for _ in range(BATCH))
            yield self._work("machine", seconds)
            self.duels += BATCH
            yield self.answers[number].put(BATCH)


def run(count: int, out: Path) -> None:
    """All sizes; `count` limits the machines."""
    times = json.loads(PATH.read_text())
    wanted = [(d, m) for d in DRIVERS for m in MACHINES if not count or m <= count]
    rows = []
    with counted(wanted, "sizes simulated") as rest:
        for drivers, machines in rest:
            rows.append(Model(times, machines, drivers).run())
    table = Table(
        title=f"simulated collecting; a row costs the store {times['row_s'] * 1e3:.2g} ms"
    )
    for name in (
        "drivers",
        "machines",
        "duels/s",
        "rows/s",
        "machines busy",
        "driver busy",
        "store busy",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['drivers']}", f"{row['machines']}", f"{row['duels_per_s']:.1f}",
            f"{row['rows_per_s']:.1f}", f"{row['machine_busy']:.0%}", f"{row['driver_busy']:.0%}",
            f"{row['store_busy']:.1%}",
        )  # fmt: skip
    Console(width=100).print(table)
    write(out, "simulation", {"service_times": times, "rows": rows})
