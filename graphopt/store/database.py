"""The store: one SQLite file that several processes read and write at once."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from graphopt.errors import StoreError
from graphopt.locations import cache_path
from graphopt.machine import machine_key
from graphopt.store.connections import connect
from graphopt.store.schema import APPLICATION_ID, CREATE, MIGRATIONS, VERSION

BUSY_S: Final = 30.0
"""Longest wait for another process's write."""

T = TypeVar("T")


def default_path() -> Path:
    """``$GRAPHOPT_STORE``, else ``graphopt/store.sqlite`` under the user's cache directory."""
    return cache_path("GRAPHOPT_STORE", "store.sqlite")


_CODE_FLAGS: Final = ("--xla_cpu", "--xla_backend", "--xla_llvm", "--xla_disable_hlo_passes")


def environment() -> tuple[str, str, str]:
    """What times depend on beside the program: (machine, jaxlib version, XLA options)."""
    import jaxlib.version

    flags = sorted(
        flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.startswith(_CODE_FLAGS)
    )
    return machine_key(), str(jaxlib.version.__version__), " ".join(flags)


class Store:
    """A connection to the store; opens lazily, one SQLite connection per thread.

    Every write is one short transaction, so that a killed process loses at most what it was writing.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Names the file (default: `default_path`); nothing is touched before the first use."""
        self.path = Path(path) if path is not None else default_path()
        self._local = threading.local()
        self._environment: int | None = None

    @classmethod
    def of(cls, place: Store | str | os.PathLike[str] | None) -> Store:
        """The store itself, the one at a path, or the user's."""
        return place if isinstance(place, Store) else cls(place)

    def exists(self) -> bool:
        """True if the file is there."""
        return self.path.is_file()

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection of this process.

        Raises:
            StoreError: the file cannot be opened, is damaged, or is of a newer version.
        """
        found: tuple[int, sqlite3.Connection] | None = getattr(self._local, "connection", None)
        if found is None or found[0] != os.getpid():  # a forked child must not share one
            found = (os.getpid(), self._open())
            self._local.connection = found
        return found[1]

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = connect(self.path, BUSY_S)
            try:
                _prepare(connection, self.path)
            except BaseException:
                connection.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise _error(self.path, f"cannot be used: {error}") from error
        return connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction.

        Raises:
            StoreError: the file is locked for longer than `BUSY_S`, full or damaged.
        """
        connection = self.connection
        try:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # An interrupt may come before or after any of the three; SQLite rolls back some
                # errors by itself.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise _error(self.path, f"cannot be written: {error}") from error

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            return self.connection.execute(query, values).fetchall()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise _error(self.path, f"cannot be read: {error}") from error

    def environment_id(self) -> int:
        """Row of the environment of this process."""
        if self._environment is None:
            values = environment()
            query = "SELECT id FROM environments WHERE machine=? AND jaxlib=? AND options=?"
            found = self.rows(query, values)
            if not found:
                with self.transaction() as connection:
                    connection.execute(
                        "INSERT OR IGNORE INTO environments (machine, jaxlib, options) "
                        "VALUES (?, ?, ?)",
                        values,
                    )
                found = self.rows(query, values)
            self._environment = int(found[0][0])
        return self._environment

    def change_count(self) -> int:
        """Number that changes when another connection has written: a cheap test for news."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def close(self) -> None:
        """Closes this thread's connection."""
        found = getattr(self._local, "connection", None)
        if found is not None:
            found[1].close()
            self._local.connection = None


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
    if _version(connection) == VERSION and _is_ours(connection):
        connection.execute("PRAGMA synchronous=NORMAL")
        return
    _check_usable(connection, path)  # before anything of a foreign file is changed
    _retry(lambda: connection.execute("PRAGMA journal_mode=WAL"))
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        _upgrade(connection, path)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Creates or migrates the tables; another process may have done so meanwhile."""
    _check_usable(connection, path)
    version = _version(connection)
    if not _has_tables(connection):
        _run(connection, CREATE)
        version = VERSION
    while version < VERSION:
        if version not in MIGRATIONS:
            raise _error(path, f"has version {version}, which cannot be migrated")
        _run(connection, MIGRATIONS[version])
        version += 1
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")


def _check_usable(connection: sqlite3.Connection, path: Path) -> None:
    if _has_tables(connection) and not _is_ours(connection):
        raise _error(path, "is another program's SQLite file")
    version = _version(connection)
    if version > VERSION:
        raise _error(path, f"has version {version}, newer than this graphopt's {VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Statements of a script; ``executescript`` would end the transaction."""
    plain = "\n".join(line.partition("--")[0] for line in script.splitlines())
    for statement in plain.split(";"):
        if statement.strip():
            connection.execute(statement)


def _is_ours(connection: sqlite3.Connection) -> bool:
    return int(connection.execute("PRAGMA application_id").fetchone()[0]) == APPLICATION_ID


def _retry(action: Callable[[], T]) -> T:
    """Switching to WAL needs the file for itself and does not wait by its own."""
    end = time.monotonic() + BUSY_S
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _error(path: Path, what: str) -> StoreError:
    return StoreError(
        what=f"the store {what}",
        where=str(path),
        fix="Remove the file (measurements are lost), or name another one in GRAPHOPT_STORE.",
    )
