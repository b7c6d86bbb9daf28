"""The store: what several processes, and several machines, remember together."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphopt.machine import machine_key
from graphopt.store.engines.outbox import Outbox
from graphopt.store.engines.places import default_place, is_url, local_path, shown
from graphopt.store.engines.server import ServerEngine, UnreachableError
from graphopt.store.engines.sqlite import SqliteEngine

if TYPE_CHECKING:
    import sqlalchemy as sa

MOST_BYTES: Final = 8 << 20
"""Longer texts of a winner are not fetched: no program of ours needs them, and rows may be anybody's."""

MOST_TOTAL: Final = 128 << 20
"""Bytes of all texts of one answer; rows beyond are not fetched."""

MOST_ROWS: Final = 200_000
"""Rows of one answer."""

ADDING: Final = frozenset({"put_kernel"})
"""Statements that add to what is there: run twice, they count twice. All others may be repeated."""

_CODE_FLAGS: Final = ("--xla_cpu", "--xla_backend", "--xla_llvm", "--xla_disable_hlo_passes")


def environment() -> tuple[str, str, str]:
    """What times depend on beside the program: (machine, jaxlib version, XLA options)."""
    import jaxlib.version

    flags = sorted(
        flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.startswith(_CODE_FLAGS)
    )
    return machine_key(), str(jaxlib.version.__version__), " ".join(flags)


class Store:
    """A store in a file or on a server: the same statements, by name, on both.

    Safe with several threads and processes; nothing is opened before the first use.

    Attributes:
        url: of the server; None for a file.
        path: the file; for a server the file on this machine beside which copies of it are kept.
        outbox: what waits for the server; None for a file.
    """

    def __init__(self, place: str | os.PathLike[str] | None = None) -> None:
        """Names the store.

        Args:
            place: path of a SQLite file or URL of a PostgreSQL server (``postgresql://...``); by default the
                user's, see `default_place`.
        """
        found = default_place() if place is None else place
        self.url: str | None = None
        self.outbox: Outbox | None = None
        self._engine: SqliteEngine | ServerEngine
        if isinstance(found, str) and is_url(found):
            self.url, self.path = found, local_path(found)
            self._engine = ServerEngine(found)
            self.outbox = Outbox(self.path.with_suffix(".outbox.sqlite"), self.shown)
        else:
            self.path = Path(found)
            self._engine = SqliteEngine(self.path)
        self._here: dict[str, Any] | None = None
        self._noted = False

    @classmethod
    def of(cls, place: Store | str | os.PathLike[str] | None) -> Store:
        """The store itself, the one at a path or URL, or the user's."""
        return place if isinstance(place, Store) else cls(place)

    @property
    def shown(self) -> str:
        """Where it is, for messages: no password."""
        return str(self.path) if self.url is None else shown(self.url)

    @property
    def local(self) -> Store:
        """The store in a file: this one, or the copy of a server on this machine."""
        return self if self.url is None else Store(self.path)

    def exists(self) -> bool:
        """True if the file is there; always true of a server."""
        return self._engine.exists()

    def rows(
        self, query: str, values: Mapping[str, Any] | Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Rows of a statement.

        Args:
            query: name of one in `graphopt.store.schema.statements`, or SQL.
            values: of its parameters; those of the environment are filled in for names.

        Raises:
            StoreError: the store cannot be read.
        """
        if " " not in query:
            most = {"most_bytes": MOST_BYTES, "most_total": MOST_TOTAL, "most_rows": MOST_ROWS}
            values = {**self.here, **most, **dict(values)}
        return self._engine.rows(query, values)

    def write(self, *changes: tuple[str, Mapping[str, Any]]) -> None:
        """Runs statements in one transaction: all of them or none.

        Where a server does not answer, they are kept on this machine and sent later.

        Args:
            changes: names in `graphopt.store.schema.statements`, each with values of its parameters; those of
                the environment are filled in.

        Raises:
            StoreError: the store cannot be written.
        """
        whole = self._whole(changes)
        if isinstance(self._engine, SqliteEngine):
            self._engine.write(whole[self._noted :])
        else:
            # A server that fails at the end may have written: what adds to a row must not be sent again.
            adds = any(name in ADDING for name, _ in changes)
            key = uuid.uuid4().hex if adds else None
            try:
                self._engine.write(key, whole[self._noted :])
            except UnreachableError:
                self._keep(whole, key)
                return
        self._noted = True

    def write_later(self, *changes: tuple[str, Mapping[str, Any]]) -> None:
        """`write` for those who must not wait for a server: it is sent by another thread.

        Args:
            changes: as for `write`.

        Raises:
            StoreError: the file cannot be written, or too much waits for the server.
        """
        if self.outbox is None:
            self.write(*changes)
        else:
            self._keep(self._whole(changes))

    def _whole(self, changes: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, Any]]:
        """Changes with the values of the environment, behind the one that notes it."""
        whole = [(name, {**self.here, **values}) for name, values in changes]
        return [("add_environment", self.here), *whole]

    def _keep(self, whole: list[tuple[str, Any]], key: str | None = None) -> None:
        assert self.outbox is not None and isinstance(self._engine, ServerEngine)
        self.outbox.put(whole, key)
        self.outbox.flush_later(self._engine.write)

    def flush(self) -> int:
        """Sends what waits for the server; returns how many writes it took.

        Raises:
            StoreError: the server does not answer; what waits is kept.
        """
        if self.outbox is None or not isinstance(self._engine, ServerEngine):
            return 0
        return self.outbox.flush(self._engine.write)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """One write transaction for statements that are not known beforehand, as SQLAlchemy has them.

        Raises:
            StoreError: the store cannot be written.
        """
        with self._engine.transaction() as connection:
            yield connection

    @property
    def here(self) -> dict[str, Any]:
        """The environment of this process, as parameters of statements."""
        if self._here is None:
            names = ("env_machine", "env_jaxlib", "env_options")
            self._here = dict(zip(names, environment(), strict=True))
        return self._here

    def environment_id(self) -> int:
        """Row of the environment of this process in this store, made where there is none."""
        found = self.rows("environment_id")
        if not found:
            self.write(("add_environment", {}))
            found = self.rows("environment_id")
        return int(found[0][0])

    def close(self) -> None:
        """Closes this thread's connection to a file, or this process's to a server."""
        self._engine.close()
