"""Writes that wait for a server: a SQLite file beside the copy of its store.

They are sent in the order in which they came, each once: the server notes what has arrived.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from graphopt.errors import StoreError
from graphopt.store.engines.asking import MOST_PAUSE_S
from graphopt.store.engines.connections import Connection, connect, use_wal
from graphopt.store.engines.server import Changes, UnreachableError

MOST_ROWS: Final = 100_000
"""Writes that wait at most; further ones are refused."""

MOST_BYTES: Final = 256 << 20
"""Bytes of all that waits."""

BUSY_S: Final = 5.0
"""Longest wait for another process's write."""

FIRST_PAUSE_S: Final = 1.0

Deliver = Callable[[str | None, Changes], None]

_logger = logging.getLogger("graphopt")

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS waiting (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL,             -- of the delivery
  changes TEXT NOT NULL,        -- JSON: list of [name of a statement, values]
  refused TEXT,                 -- why the server does not take it; NULL while it waits
  seen REAL NOT NULL
)
"""


class Outbox:
    """The queue of one server on this machine, shared by its processes."""

    def __init__(self, path: Path, where: str) -> None:
        """Names the file; nothing is touched before the first use.

        Args:
            path: of the file.
            where: the server, for messages.
        """
        self.path = path
        self.where = where
        self._lock = threading.Lock()
        self._flusher: threading.Thread | None = None

    def put(self, changes: Changes, key: str | None = None) -> None:
        """Keeps the changes of one transaction until they are sent.

        Args:
            changes: names of statements with their values.
            key: of the delivery, where it was tried before; a new one by default.

        Raises:
            StoreError: too much waits already, or the file cannot be written.
        """
        text = json.dumps(changes)
        with self._opened() as connection:
            count, size = _measure(connection)
            if count >= MOST_ROWS or size + len(text) > MOST_BYTES:
                raise self._error(f"is full: {count} writes wait for the server")
            connection.execute(
                "INSERT INTO waiting (id, changes, seen) VALUES (?, ?, ?)",
                (key or uuid.uuid4().hex, text, time.time()),
            )

    def counts(self) -> tuple[int, int]:
        """How many writes wait, and how many the server refused."""
        if not self.path.is_file():
            return 0, 0
        with self._opened() as connection:
            query = "SELECT count(*), count(refused) FROM waiting"
            whole, refused = connection.execute(query).fetchone()
        return whole - refused, refused

    def refusals(self, most: int = 10) -> list[str]:
        """Why the server refused writes, the last ones first; at most so many."""
        query = "SELECT refused FROM waiting WHERE refused IS NOT NULL ORDER BY number DESC LIMIT ?"
        with self._opened() as connection:
            return [str(row[0]) for row in connection.execute(query, (most,))]

    def flush(self, deliver: Deliver) -> int:
        """Sends what waits, the oldest first; returns how many writes the server took.

        What it refuses stays, with the reason, and is not sent again.

        Args:
            deliver: sends the changes of one transaction under an id, unless they have arrived before.

        Raises:
            UnreachableError: the server does not answer; the rest waits on.
            StoreError: the file cannot be used.
        """
        sent = 0
        while (found := self._oldest()) is not None:
            number, key, text = found
            try:
                deliver(key, [(name, values) for name, values in json.loads(text)])
            except UnreachableError:
                raise
            except StoreError as error:
                self._run("UPDATE waiting SET refused=? WHERE number=?", (error.what, number))
            else:
                self._run("DELETE FROM waiting WHERE number=?", (number,))
                sent += 1
        return sent

    def flush_later(self, deliver: Deliver) -> None:
        """Sends what waits on a thread of its own, again and again until the server takes it."""
        with self._lock:
            if self._flusher is None or not self._flusher.is_alive():
                self._flusher = threading.Thread(
                    target=self._keep_flushing, args=(deliver,), name="graphopt-outbox", daemon=True
                )
                self._flusher.start()

    def _keep_flushing(self, deliver: Deliver) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                self.flush(deliver)
                return
            except UnreachableError:
                time.sleep(pause)
                pause = min(2 * pause, MOST_PAUSE_S)
            except StoreError as error:
                _logger.warning("%s", error)
                return

    def _oldest(self) -> tuple[int, str, str] | None:
        if not self.path.is_file():
            return None
        query = (
            "SELECT number, id, changes FROM waiting WHERE refused IS NULL ORDER BY number LIMIT 1"
        )
        with self._opened() as connection:
            found: tuple[int, str, str] | None = connection.execute(query).fetchone()
        return found

    def _run(self, query: str, values: tuple[Any, ...]) -> None:
        with self._opened() as connection:
            connection.execute(query, values)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(connect(self.path, BUSY_S)) as connection:
                if not connection.execute("PRAGMA user_version").fetchone()[0]:
                    use_wal(connection, BUSY_S)
                    connection.execute(_CREATE)
                    connection.execute("PRAGMA user_version=1")
                yield connection
        except (sqlite3.Error, OSError, OverflowError, UnicodeError) as error:
            raise self._error(f"cannot be used: {error}") from error

    def _error(self, what: str) -> StoreError:
        return StoreError(
            what=f"the file of writes for {self.where} {what}",
            where=str(self.path),
            fix="See whether the server can be reached: graphopt store flush.",
        )


def _measure(connection: Connection) -> tuple[int, int]:
    """About how many writes wait, at least as many, and the bytes of the file in use."""
    query = "SELECT coalesce(max(number) - min(number) + 1, 0) FROM waiting"
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int(connection.execute(query).fetchone()[0]), (pages - free) * size
