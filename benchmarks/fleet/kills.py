"""Actors, nodes and the driver of collecting runs, killed at random moments: is anything lost?

Measuring is pretended, each duel 0.1 s of a child process; everything else is ``graphopt collect``. The
driver is started again when it was killed, as a user would. A run that is complete is checked against one
that nobody disturbed, on this machine without Ray; then the next one begins. The head of the cluster is not
killed: without it there is no cluster, and Ray's own answer to that is a Redis outside.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.fleet.cluster import cluster, marked, write
from graphopt.executing.local_cluster import node_options
from graphopt.tasks.parts import read_parts

KILLS: Final = 200
NODES: Final = 3
"""Measuring nodes beside the head."""

SHARES: Final = {"actor": 0.65, "node": 0.2, "driver": 0.15}
"""What is killed -> how often."""

PAUSE_S: Final = (0.3, 3.0)
"""Between two kills."""

RUN_S: Final = 1800.0
"""Longest time of one run without an end."""


class Runs:
    """Collecting runs, one after the other, and who kills them."""

    def __init__(self, made: Any, folder: Path, kills: int) -> None:
        self.made, self.folder, self.kills = made, folder, kills
        self.random = random.Random(32)
        self.done: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.nodes = list(made.worker_nodes)
        self.runs: list[Path] = []
        self.driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The driver of the last run, again."""
        command = [sys.executable, "-m", "benchmarks.fleet.collecting"]
        command += [f"ray:{self.made.address}", str(self.runs[-1])]
        log = self.folder / "driver.log"
        with log.open("a") as file:
            self.driver = subprocess.Popen(command, stdout=file, stderr=file)

    def run(self) -> None:
        """Kills until there were enough; lets the last run end undisturbed."""
        while self.done.total() < self.kills:
            self.runs.append(self.folder / f"run-{len(self.runs)}")
            self.start()
            begin = time.monotonic()
            while not self._ended():
                print(f"{self.runs[-1].name}: {dict(self.done)}", end="\r", flush=True)
                if time.monotonic() - begin > RUN_S:
                    raise AssertionError(f"{self.runs[-1]} does not end")
                time.sleep(self.random.uniform(*PAUSE_S))
                if self.done.total() < self.kills:
                    self._kill()

    def _ended(self) -> bool:
        assert self.driver is not None
        status = self.driver.poll()
        if status is None:
            return False
        if status == 0:
            return True
        self.start()  # killed, or its cluster had no machine left
        return False

    def _kill(self) -> None:
        what = self.random.choices(list(SHARES), list(SHARES.values()))[0]
        hit = {"actor": self._actor, "node": self._node, "driver": self._driver}[what]()
        (self.done if hit else self.missed)[what] += 1

    def _actor(self) -> bool:
        found = [pid for pid, command in marked() if "MeasuringActor" in command]
        if found:
            os.kill(self.random.choice(found), signal.SIGKILL)
        return bool(found)

    def _node(self) -> bool:
        node = self.nodes.pop(self.random.randrange(len(self.nodes)))
        self.made.remove_node(node, allow_graceful=False)
        self.nodes.append(self.made.add_node(**node_options(), wait=False))
        return True

    def _driver(self) -> bool:
        assert self.driver is not None
        if self.driver.poll() is not None:
            return False
        self.driver.kill()
        self.driver.wait()
        return True


def keys(folder: Path) -> Counter[str]:
    """Keys of all duels of all parts of a run, and how often each is there."""
    return Counter(row["key"] for part in read_parts(folder) for row in part.duels)


def run(count: int, out: Path) -> None:
    """So many kills."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="graphopt-kills-") as name:
        folder = Path(name)
        plain = folder / "undisturbed"
        command = [sys.executable, "-m", "benchmarks.fleet.collecting", "local", str(plain)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        expected = set(keys(plain))
        with cluster(NODES + 1, head_measures=False) as made:
            runs = Runs(made, folder, count or KILLS)
            runs.run()
        found = [keys(path) for path in runs.runs]
        lost = sum(len(expected - set(one)) for one in found)
        extra = sum(len(set(one) - expected) for one in found)
        twice = sum(one.total() - len(one) for one in found)
        parts = sum(len(list(path.glob("*.zip"))) for path in runs.runs)
    result = {
        "kills": dict(runs.done), "runs": len(found), "duels": sum(one.total() for one in found),
        "duels_of_one_run": len(expected), "parts": parts, "lost": lost, "unexpected": extra,
        "twice": twice, "processes_left": 0, "seconds": time.monotonic() - begin,
    }  # fmt: skip
    table = Table(title="kills of collecting runs")
    table.add_column("what")
    table.add_column("count", justify="right")
    for what in SHARES:
        table.add_row(f"kills: {what}", f"{runs.done[what]}")
    for what in ("runs", "duels", "lost", "unexpected", "twice", "processes_left"):
        table.add_row(what.replace("_", " "), f"{result[what]}")
    Console(width=80).print(table)
    write(out, "kills", result)
    if lost or extra or twice:
        raise AssertionError("duels were lost, or are there twice")
