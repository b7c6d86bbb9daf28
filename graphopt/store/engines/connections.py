"""Connections to SQLite files that close themselves when nobody holds them any more."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import Final

PAUSE_S: Final = 0.02


class Connection(sqlite3.Connection):
    """Closes when it is collected: owners live as long as a thread or a policy, and have no last line."""

    def __del__(self) -> None:
        # A connection that could not be opened cannot be closed either.
        with contextlib.suppress(sqlite3.Error):
            self.close()


def connect(path: str | os.PathLike[str], busy_s: float) -> Connection:
    """Opens a file without implicit transactions.

    One thread at a time may use a connection, any thread may close it.

    Args:
        path: of the file.
        busy_s: longest wait for another process's write.

    Raises:
        sqlite3.Error: the file cannot be opened.
    """
    return sqlite3.connect(
        path, timeout=busy_s, isolation_level=None, check_same_thread=False, factory=Connection
    )


def use_wal(connection: sqlite3.Connection, busy_s: float) -> None:
    """Switches a file to a write-ahead log, which is kept in the file.

    SQLite needs the file for itself then and does not wait for others that open it at the same time.

    Args:
        connection: to the file.
        busy_s: longest wait for them.

    Raises:
        sqlite3.Error: the file stays locked, or is none.
    """
    end = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(PAUSE_S)
        else:
            return
