"""The store on a PostgreSQL server; SQLAlchemy and psycopg are imported when it is first used."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from graphopt.errors import StoreError
from graphopt.extras import require
from graphopt.store.engines.asking import Asker, TooLateError
from graphopt.store.engines.places import shown
from graphopt.store.schema import VERSION

if TYPE_CHECKING:
    import sqlalchemy as sa

CONNECT_S: Final = 10
"""Longest wait for a connection, in seconds."""

STATEMENT_S: Final = 30
"""Longest time of one statement, in seconds."""

PATIENCE_S: Final = 40.0
"""Longest wait for an answer, in seconds."""

T = TypeVar("T")

Changes = Sequence[tuple[str, Mapping[str, Any]]]

_Opened: TypeAlias = "tuple[int, sa.Engine, dict[str, Any]]"
"""Process id, its pool of connections, statements by name."""


class UnreachableError(StoreError):
    """Raised when the server does not answer, or not in time: the same may work later."""


class ServerEngine:
    """A pool of connections per process, opened at the first use.

    The server's own limit of time, `STATEMENT_S`, is of no use where it stands still: statements run on a
    thread that is left behind after `PATIENCE_S`.
    """

    def __init__(self, url: str) -> None:
        """Names the server; nothing is reached before the first use.

        Args:
            url: ``postgresql://user:password@host:port/database``.
        """
        self._opened: _Opened | None = None
        self._publishing = threading.Lock()
        self.url = url
        self._asker = Asker(PATIENCE_S)

    def exists(self) -> bool:
        """True: whether it answers is found out by asking."""
        return True

    def rows(self, query: str, values: Mapping[str, Any] | Sequence[Any]) -> list[tuple[Any, ...]]:
        """Rows of a statement by name, or of SQL with parameters ``:name``.

        Raises:
            UnreachableError: the server does not answer.
            StoreError: it refuses, or has no tables of this version.
        """
        import sqlalchemy as sa

        def read() -> list[tuple[Any, ...]]:
            engine, named = self._engine()
            statement = named[query] if query in named else sa.text(query)
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(statement, dict(values))]

        with server_errors(self.url, "read"):
            return self._ask(read)

    def write(self, key: str | None, changes: Changes) -> None:
        """Runs statements, each with its values, in one transaction, unless that was done under the same key.

        Args:
            key: of the delivery; None for a write that may be repeated.
            changes: names of statements with their values.

        Raises:
            UnreachableError: the server does not answer; whether it has written, nobody knows.
            StoreError: it refuses.
        """

        def run() -> None:
            engine, named = self._engine()
            with engine.begin() as connection:
                if key is not None:
                    noted = {"id": key, "seen": time.time()}
                    if connection.execute(named["put_delivery"], noted).first() is None:
                        return
                for name, values in changes:
                    connection.execute(named[name], dict(values))

        with server_errors(self.url, "written"):
            self._ask(run)

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return self._asker.ask(question)
        except TooLateError as error:
            self._opened = None  # its connections are in the hands of a thread that hangs
            raise _unreachable(self.url, error) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """One transaction for statements of SQLAlchemy, on the calling thread.

        Raises:
            UnreachableError: the server does not answer.
            StoreError: it refuses.
        """
        with server_errors(self.url, "written"), self._engine()[0].begin() as connection:
            yield connection

    def __del__(self) -> None:
        # Its owners live as long as a thread or a policy, and have no last line.
        try:  # noqa: SIM105 - contextlib may be gone when the interpreter ends
            self.close()
        except Exception:
            pass

    def close(self) -> None:
        """Closes this process's connections."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].dispose(close=opened[0] == os.getpid())

    def _engine(self) -> tuple[sa.Engine, dict[str, Any]]:
        """This process's connections, and the statements by name."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            if opened is not None:  # a forked child must not share connections
                opened[1].dispose(close=False)
            from graphopt.store.schema.statements import statements

            engine = connected(self.url)
            try:
                with engine.connect() as connection:
                    _check_version(connection, self.url)
            except BaseException:
                engine.dispose()
                raise
            opened = self._published((os.getpid(), engine, statements("postgresql")))
        return opened[1], opened[2]

    def _published(self, opened: _Opened) -> _Opened:
        """The first connections of this process; those of a thread that was as quick are closed."""
        with self._publishing:  # not around connecting, which may hang
            first = self._opened
            if first is None or first[0] != opened[0]:
                self._opened = first = opened
        if first is not opened:
            opened[1].dispose()
        return first


@contextlib.contextmanager
def server_errors(url: str, done: str) -> Iterator[None]:
    """What goes wrong with a server, as errors of ours.

    Args:
        url: of the server.
        done: what was to be done with the store, for the message: "read".

    Raises:
        UnreachableError: the server does not answer.
        StoreError: it refuses.
        MissingExtraError: what a server needs is not installed.
    """
    require("a store on a server", "postgres")
    import sqlalchemy as sa

    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
        raise _unreachable(url, error) from error
    except (sa.exc.SQLAlchemyError, OverflowError, UnicodeError, ValueError) as error:
        raise _error(url, f"cannot be {done}: {_first_line(error)}") from error


def connected(url: str) -> sa.Engine:
    """SQLAlchemy's engine for a server; nothing is reached yet.

    Args:
        url: as for `ServerEngine`.

    Raises:
        StoreError: the URL cannot be understood.
    """
    import sqlalchemy as sa

    try:
        address = sa.make_url(url).set(drivername="postgresql+psycopg")
    except (sa.exc.ArgumentError, ValueError) as error:
        raise _error(url, "has an address that cannot be understood") from error
    return sa.create_engine(
        address,
        pool_size=2,
        pool_pre_ping=True,  # a server that was restarted is reached anew
        connect_args={
            "connect_timeout": CONNECT_S,
            "options": f"-c statement_timeout={1000 * STATEMENT_S}",
            "application_name": "graphopt",
            # A network that swallows packets is noticed.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 1000 * STATEMENT_S,
        },
    )


def version_of(connection: sa.Connection) -> int:
    """Version of the tables, as alembic notes it; 0 where there are none.

    Raises:
        ValueError: what stands there is no version.
    """
    import sqlalchemy as sa

    if not sa.inspect(connection).has_table("alembic_version"):
        return 0
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return 0 if found is None else int(found)


def refuse_newer(connection: sa.Connection, url: str) -> None:
    """Checks that the tables are not newer than this program.

    Raises:
        StoreError: they are.
    """
    version = version_of(connection)
    if version > VERSION:
        raise StoreError(
            what=f"the store has version {version}, newer than this graphopt's {VERSION}",
            where=shown(url),
            fix="Install the graphopt that upgraded it.",
        )


def _check_version(connection: sa.Connection, url: str) -> None:
    refuse_newer(connection, url)
    version = version_of(connection)
    if version < VERSION:
        what = f"has version {version}, older than this graphopt's {VERSION}"
        raise StoreError(
            what=f"the store {what if version else 'has no tables yet'}",
            where=shown(url),
            fix="Make or upgrade them: graphopt store init --url URL.",
        )


def _first_line(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def _unreachable(url: str, error: BaseException) -> UnreachableError:
    return UnreachableError(
        what=f"the store does not answer: {_first_line(error)}",
        where=shown(url),
        fix="See whether the server runs and can be reached from here.",
    )


def _error(url: str, what: str) -> StoreError:
    return StoreError(
        what=f"the store {what}",
        where=shown(url),
        fix="Check the address, and what the role may do, in GRAPHOPT_STORE.",
    )
