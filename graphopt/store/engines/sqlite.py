"""The store as one SQLite file that several processes read and write at once.

Statements that are known beforehand run on sqlite3 itself. SQLAlchemy is imported for others, and to upgrade
an old file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphopt.errors import StoreError
from graphopt.store.engines.connections import connect, use_wal
from graphopt.store.schema import APPLICATION_ID, VERSION
from graphopt.store.schema.texts import CREATE, texts

if TYPE_CHECKING:
    import sqlalchemy as sa

BUSY_S: Final = 30.0
"""Longest wait for another process's write."""

_FAILURES: Final = (sqlite3.Error, OverflowError, UnicodeError)


class SqliteEngine:
    """Opens lazily, one connection per thread.

    Every write is one short transaction, so that a killed process loses at most what it was writing.
    """

    def __init__(self, path: Path) -> None:
        """Names the file; nothing is touched before the first use."""
        self.path = path
        self._local = threading.local()

    def exists(self) -> bool:
        """True if the file is there."""
        return self.path.is_file()

    def rows(self, query: str, values: Mapping[str, Any] | Sequence[Any]) -> list[tuple[Any, ...]]:
        """Rows of a statement by name, or of SQL.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            return self._connection().execute(texts().get(query, query), values).fetchall()
        except _FAILURES as error:
            raise _error(self.path, f"cannot be read: {error}") from error

    def write(self, changes: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Runs statements, each with its values, in one transaction.

        Raises:
            StoreError: the file is locked for longer than `BUSY_S`, full or damaged.
        """
        connection = self._connection()
        try:
            try:
                connection.execute("BEGIN IMMEDIATE")
                for name, values in changes:
                    connection.execute(texts()[name], values)
                connection.execute("COMMIT")
            except BaseException:
                # An interrupt may come before or after any of them; SQLite rolls back some errors by itself.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except _FAILURES as error:
            raise _error(self.path, f"cannot be written: {error}") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """One write transaction for statements of SQLAlchemy.

        Raises:
            StoreError: the file is locked for longer than `BUSY_S`, full or damaged.
        """
        import sqlalchemy as sa

        try:
            with _begin(self._open) as connection:
                yield connection
        except (sa.exc.SQLAlchemyError, *_FAILURES) as error:
            what = getattr(error, "orig", None) or error
            raise _error(self.path, f"cannot be written: {what}") from error

    def close(self) -> None:
        """Closes this thread's connection."""
        found = getattr(self._local, "connection", None)
        if found is not None:
            found[1].close()
            self._local.connection = None

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection of this process."""
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
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise _error(self.path, f"cannot be used: {error}") from error
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA foreign_keys=ON")
        if _version(connection) != VERSION or not _is_ours(connection):
            _check_usable(connection, self.path)  # before anything of a foreign file is changed
            use_wal(connection, BUSY_S)
            if _has_tables(connection):
                self._upgrade()
            else:
                self._create(connection)
        connection.execute("PRAGMA synchronous=NORMAL")

    def _create(self, connection: sqlite3.Connection) -> None:
        """Makes the tables; another process may have done so meanwhile."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            _check_usable(connection, self.path)
            if not _has_tables(connection):
                for statement in texts()[CREATE].split(";"):
                    connection.execute(statement)
                _mark(connection.execute)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _upgrade(self) -> None:
        """Migrates the tables; another process may have done so meanwhile."""
        import sqlalchemy as sa

        from graphopt.store.schema.migrating import upgrade

        try:
            with _begin(lambda: connect(self.path, BUSY_S)) as connection:
                version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
                if version < VERSION:
                    upgrade(connection, version)
                    _mark(connection.exec_driver_sql)
        except sa.exc.SQLAlchemyError as error:
            raise _error(self.path, f"cannot be upgraded: {error}") from error


@contextlib.contextmanager
def _begin(opened: Callable[[], sqlite3.Connection]) -> Iterator[sa.Connection]:
    """SQLAlchemy's transaction on a connection of its own, which holds the file's lock from the first."""
    import sqlalchemy as sa

    engine = sa.create_engine("sqlite://", creator=opened, poolclass=sa.NullPool)
    sa.event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as connection:
        yield connection


def _mark(execute: Callable[[str], object]) -> None:
    execute(f"PRAGMA application_id={APPLICATION_ID}")
    execute(f"PRAGMA user_version={VERSION}")


def _check_usable(connection: sqlite3.Connection, path: Path) -> None:
    if _has_tables(connection) and not _is_ours(connection):
        raise _error(path, "is another program's SQLite file")
    version = _version(connection)
    if version > VERSION:
        raise StoreError(
            what=f"the store has version {version}, newer than this graphopt's {VERSION}",
            where=str(path),
            fix="Install the graphopt that wrote it, or name another file in GRAPHOPT_STORE.",
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _is_ours(connection: sqlite3.Connection) -> bool:
    return int(connection.execute("PRAGMA application_id").fetchone()[0]) == APPLICATION_ID


def _error(path: Path, what: str) -> StoreError:
    return StoreError(
        what=f"the store {what}",
        where=str(path),
        fix="Remove the file (measurements are lost), or name another one in GRAPHOPT_STORE.",
    )
