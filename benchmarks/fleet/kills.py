"""All that a collecting run needs, killed at random moments: is anything lost?

Killed are measuring actors, nodes, child processes, the driver, and the PostgreSQL server that the machines
write a row of each duel to. Measuring is pretended, each duel 0.1 s of a child process; everything else is
``graphopt collect``. The driver is started again when it was killed or has given something up, as a user
would; so is the server. A run that is complete is checked against one that nobody disturbed, on this machine
without Ray; then the next one begins, with an empty table. The head of the cluster is not killed: without it
there is no cluster, and Ray's own answer to that is a Redis outside.
"""

from __future__ import annotations

import os
import random
import shutil
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
from graphopt.progress import Show, steps
from graphopt.store import Store
from graphopt.store.engines.places import COPY_VARIABLE, VARIABLE
from graphopt.store.engines.roles import initialise
from graphopt.tasks.parts import read_parts
from tests.support.servers import Server, programs

KILLS: Final = 200
NODES: Final = 3
"""Measuring nodes beside the head."""

SHARES: Final = {"actor": 0.45, "node": 0.15, "driver": 0.15, "child": 0.1, "server": 0.15}
"""What is killed -> how often."""

PAUSE_S: Final = (0.3, 3.0)
"""Between two kills."""

DOWN_S: Final = (0.0, 3.0)
"""How long the server is away."""

WRONG: Final = {"lost": "lost", "twice": "there twice", "unexpected": "unexpected"}
"""What must not be -> in words."""

RUN_S: Final = 1800.0
"""Longest time of one run without an end."""


class Runs:
    """Collecting runs, one after the other, and who kills what they need.

    Attributes:
        done: what was killed -> how often.
        ends: how a driver ended that was not killed -> how often.
        runs: folders of the runs.
        rows: per run, keys of the rows in the store.
    """

    def __init__(self, made: Any, server: Server, folder: Path, kills: int) -> None:
        self.made, self.server, self.folder, self.kills = made, server, folder, kills
        self.random = random.Random(32)
        self.done: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.nodes = list(made.worker_nodes)
        self.runs: list[Path] = []
        self.rows: list[Counter[str]] = []
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
        with steps(Console(), self.kills, "kills made") as show:
            self._run(show)

    def _run(self, show: Show) -> None:
        while self.done.total() < self.kills:
            self.runs.append(self.folder / f"run-{len(self.runs)}")
            self.start()
            begin = time.monotonic()
            while not self._ended():
                show(f"{self.runs[-1].name}: {dict(self.done)}", self.done.total())
                if time.monotonic() - begin > RUN_S:
                    raise AssertionError(f"{self.runs[-1]} does not end")
                time.sleep(self.random.uniform(*PAUSE_S))
                if self.done.total() < self.kills:
                    self._kill()
            self.rows.append(stored(Store(), clear=True))

    def _ended(self) -> bool:
        assert self.driver is not None
        status = self.driver.poll()
        if status is None:
            return False
        if status != -signal.SIGKILL:
            self.ends[f"{status}"] += 1
        if status == 0:
            return True
        self.start()  # killed, or something was given up
        return False

    def _kill(self) -> None:
        what = self.random.choices(list(SHARES), list(SHARES.values()))[0]
        self.done[what] += getattr(self, f"_{what}")()

    def _actor(self) -> bool:
        return self._one_of("MeasuringActor")

    def _child(self) -> bool:
        return self._one_of("run_watched")

    def _one_of(self, word: str) -> bool:
        found = [pid for pid, command in marked() if word in command]
        if not found:
            return False
        try:
            os.kill(self.random.choice(found), signal.SIGKILL)
        except ProcessLookupError:  # it has just ended
            return False
        return True

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

    def _server(self) -> bool:
        self.server.kill()
        time.sleep(self.random.uniform(*DOWN_S))
        self.server.start()
        return True


def keys(folder: Path) -> Counter[str]:
    """Keys of all duels of all parts of a run, and how often each is there."""
    return Counter(row["key"] for part in read_parts(folder) for row in part.duels)


def stored(store: Store, clear: bool = False) -> Counter[str]:
    """Which duels' rows are in a store once all has arrived; with `clear` they are removed."""
    store.flush()
    found = store.rows("SELECT fingerprint, decisions FROM evaluations")
    if clear:
        with store.transaction() as connection:
            connection.exec_driver_sql("DELETE FROM evaluations")
    store.close()
    return Counter(" ".join(map(str, row)) for row in found)


def compared(expected: Counter[str], found: list[Counter[str]]) -> dict[str, int]:
    """What several runs have too few and too many."""
    return {
        "lost": sum(len(expected.keys() - one.keys()) for one in found),
        "unexpected": sum(len(one.keys() - expected.keys()) for one in found),
        "twice": sum(one.total() - len(one) for one in found),
    }


def undisturbed(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Duels of a run that nobody disturbs, without Ray and server, and what it writes to a store."""
    plain, place = folder / "undisturbed", folder / "undisturbed.sqlite"
    command = [sys.executable, "-m", "benchmarks.fleet.collecting", "local", str(plain)]
    # Nothing is measured: others may measure on this machine meanwhile.
    own = {VARIABLE: str(place), "GRAPHOPT_COLLECT_LOCK": str(folder / "lock")}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **own})
    return keys(plain), stored(Store(place))


def disturbed(folder: Path, count: int) -> Runs:
    """The runs, complete, after so many kills."""
    binaries = programs()
    if binaries is None:
        raise AssertionError("there is no PostgreSQL")
    server = Server(binaries)
    os.environ[VARIABLE] = server.url("fleet")
    os.environ[COPY_VARIABLE] = str(folder / "copies")
    with cluster(NODES + 1, head_measures=False) as made, server:
        server.execute("CREATE DATABASE fleet")
        initialise(server.url("fleet"))
        runs = Runs(made, server, folder, count)
        runs.run()
    return runs


def run(count: int, out: Path) -> None:
    """So many kills."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="graphopt-kills-") as name:
        folder = Path(name)
        duels, rows = undisturbed(folder)
        try:
            runs = disturbed(folder, count or KILLS)
        finally:
            out.mkdir(parents=True, exist_ok=True)
            if (folder / "driver.log").exists():
                shutil.copy(folder / "driver.log", out / "kills-driver.log")
        found = [keys(path) for path in runs.runs]
        parts = sum(len(list(path.glob("*.zip"))) for path in runs.runs)
    result = {
        "kills": {what: runs.done[what] for what in SHARES}, "runs": len(found),
        "drivers_that_ended": dict(runs.ends), "duels": sum(one.total() for one in found),
        "duels_of_one_run": len(duels), "parts": parts, **compared(duels, found),
        "rows": {"count": sum(one.total() for one in runs.rows), **compared(rows, runs.rows)},
        "processes_left": 0, "seconds": time.monotonic() - begin,
    }  # fmt: skip
    command = f"python -m benchmarks.fleet kills --count {runs.done.total()}"
    result |= {"command": command, "counts": counts(result)}
    show(result)
    write(out, "kills", result)
    wrong = [f"{part}" for part in (result, result["rows"]) if any(part[name] for name in WRONG)]
    if wrong:
        raise AssertionError(f"duels or rows were lost, or are there twice: {wrong}")


def counts(result: dict[str, Any]) -> dict[str, float]:
    """What a table shows of it."""
    rows = result["rows"]
    return {
        **{f"kills: {what}": times for what, times in result["kills"].items()},
        **{what: result[what] for what in ("runs", "duels")},
        **{f"duels {text}": result[what] for what, text in WRONG.items()},
        "rows in the store": rows["count"],
        **{f"rows {text}": rows[what] for what, text in WRONG.items()},
        "processes left": result["processes_left"],
        "minutes": result["seconds"] / 60.0,
    }


def show(result: dict[str, Any]) -> None:
    """The table."""
    table = Table(title="kills of collecting runs")
    table.add_column("what")
    table.add_column("count", justify="right")
    for what, count in counts(result).items():
        table.add_row(what, f"{count:.4g}")
    Console(width=80).print(table)
