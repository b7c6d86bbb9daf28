"""Answers given to XLA's hook, kept between processes: a module that was seen before costs one look-up.

A cache beside the store, in a file of its own: it may be deleted at any time, and whatever is wrong with it,
it is a cache without entries.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from graphopt.store.engines.connections import connect, use_wal

VERSION: Final = 2
"""``PRAGMA user_version`` of the file; one of another version is emptied."""

MOST_BYTES: Final = 256 << 20
"""Size of the entries above which the oldest half of them is removed."""

BUSY_S: Final = 0.2
"""Longest wait for another process's write: an entry that is not written costs a decision, nothing else."""

FRESH_S: Final = 86_400.0
"""An entry that was used within this time is not marked as used again: reading should not write."""

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS answers (
  key BLOB PRIMARY KEY,         -- digest_of() what the answer depends on and the module
  record TEXT NOT NULL,         -- what the report says, JSON
  data BLOB,                    -- the rewritten module, zlib; NULL where XLA's default stands
  plain BLOB,                   -- key of the answer for the module without labels; NULL for that itself
  seen REAL NOT NULL            -- Unix time of the last use, to a day
)
"""

T = TypeVar("T")

_logger = logging.getLogger("graphopt")

_pending: Final[dict[tuple[Path, bytes], threading.Event]] = {}
"""Answers of this process that are being written -> set when they are."""


@dataclass(frozen=True)
class Answer:
    """What was answered for a module.

    Attributes:
        record: what the report says, as JSON.
        data: the rewritten module; None where XLA's default stands.
        plain: for a module with its labels, the key under which its answer without labels is kept; for one
            without labels None, and its `data` has references in their place.
    """

    record: str
    data: bytes | None
    plain: bytes | None = None


def digest_of(depends_on: str, *module: bytes | memoryview) -> bytes:
    """The key of a module's answer, 32 bytes.

    Args:
        depends_on: text of everything else that an answer depends on: policy, machine, versions.
        module: serialised, in one or more parts.
    """
    digest = hashlib.blake2b(digest_size=32, key=_short(depends_on))
    for part in module:
        digest.update(part)
    return digest.digest()


def _short(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


class Answers:
    """The cache; safe with several threads and processes. Failures of the file are silent."""

    def __init__(self, path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> None:
        """Names the file; nothing is touched before the first use.

        Args:
            path: of the file.
            most_bytes: size above which old entries are removed.
        """
        self.path = Path(path)
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._opened: tuple[int, sqlite3.Connection] | None = None
        self._process = os.getpid()

    def get(self, key: bytes) -> Answer | None:
        """The answer under a key; None if there is none, or the file cannot be read."""
        self._wait_for(key)

        def read(connection: sqlite3.Connection) -> Answer | None:
            query = "SELECT record, data, plain, seen FROM answers WHERE key=?"
            found = connection.execute(query, (key,)).fetchone()
            if found is None:
                return None
            record, data, plain, seen = found
            if time.time() - seen > FRESH_S:
                connection.execute("UPDATE answers SET seen=? WHERE key=?", (time.time(), key))
            return Answer(record, None if data is None else zlib.decompress(data), plain)

        return self._run(read)

    def put(self, key: bytes, answer: Answer) -> None:
        """Keeps an answer, in place of one that was there."""
        self._wait_for(key)
        self._write(key, answer)

    def _wait_for(self, key: bytes) -> None:
        written = _pending.get((self.path, key))
        if written is not None:
            written.wait(BUSY_S)

    def _write(self, key: bytes, answer: Answer) -> None:
        data = None if answer.data is None else zlib.compress(answer.data, 1)

        def write(connection: sqlite3.Connection) -> None:
            row = (key, answer.record, data, answer.plain, time.time())
            connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
            if self._bytes(connection) > self.most_bytes:
                self._remove_old(connection)

        self._run(write)

    def put_later(self, make: Callable[[], Mapping[bytes, Answer]], *keys: bytes) -> None:
        """Keeps what `make` returns, on a thread of its own: nobody waits for it but those who ask for it.

        Args:
            make: makes the answers by key; what it raises is dropped.
            keys: of these answers.
        """

        def write() -> None:
            try:
                for key, answer in make().items():
                    self._write(key, answer)
            except Exception:
                _logger.exception("an answer is not kept")
            finally:
                for key in keys:
                    if _pending.get((self.path, key)) is done:
                        del _pending[self.path, key]
                done.set()

        done = threading.Event()
        for key in keys:
            _pending[self.path, key] = done
        try:  # not a daemon: a short program ends when its answers are written
            threading.Thread(target=write, name="graphopt-answers").start()
        except RuntimeError:  # the interpreter is ending
            write()

    def close(self) -> None:
        """Closes this process's connection."""
        with self._lock:
            if self._opened is not None and self._opened[0] == os.getpid():
                self._opened[1].close()
            self._opened = None

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """Does something with the process's one connection, alone; None where the file fails."""
        if self._process != os.getpid():  # another thread of the parent may have held the lock
            self._process, self._lock = os.getpid(), threading.Lock()
            _pending.clear()
        try:
            with self._lock:
                # A forked child must not share one.
                if self._opened is None or self._opened[0] != os.getpid():
                    self._opened = (os.getpid(), self._open())
                return action(self._opened[1])
        except (sqlite3.Error, OSError, zlib.error):
            return None

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._prepared()
        except sqlite3.OperationalError:  # locked, full, not writable
            raise
        except sqlite3.DatabaseError:  # not a database, or a damaged one: nothing in it is of use
            self.path.unlink()
            return self._prepared()

    def _prepared(self) -> sqlite3.Connection:
        connection = connect(self.path, BUSY_S)
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                use_wal(connection, BUSY_S)
                connection.execute("DROP TABLE IF EXISTS answers")
                connection.execute(_CREATE)
                connection.execute(f"PRAGMA user_version={VERSION}")
            # A power cut may lose the last entries; the file stays whole.
            connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _bytes(connection: sqlite3.Connection) -> int:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    @staticmethod
    def _remove_old(connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY seen LIMIT "
            "(SELECT (count(*) + 1) / 2 FROM answers))"
        )
