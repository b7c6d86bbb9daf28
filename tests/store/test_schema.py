"""Tables and statements: one description, two engines; old and newer stores."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from graphopt.errors import StoreError
from graphopt.machine import MachineKind
from graphopt.store import Store, database
from graphopt.store.capabilities import get_capabilities
from graphopt.store.engines.roles import initialise
from graphopt.store.engines.server import connected, version_of
from graphopt.store.kernels import all_kernels
from graphopt.store.machine_costs import get_costs
from graphopt.store.schema import VERSION
from graphopt.store.schema.migrating import upgrade
from graphopt.store.schema.page import write
from graphopt.store.schema.tables import TABLES
from graphopt.store.schema.texts import FILE
from graphopt.store.winners import (
    all_winners,
    get_options,
    get_winner,
    outcomes,
    put_winner,
    quarantined,
)
from store.test_store import make_winner

VERSION_3 = Path(__file__).parent / "data" / "version_3.store"
"""As the program of version 3 wrote it, with rows in every table, for the environment `THERE`."""

THERE = ("a machine", "0.11.2", "")


def layout(path: Path) -> list[tuple[str, ...]]:
    """Every column, key and index of a file."""
    connection = sqlite3.connect(path)
    tables = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
    names = sorted(name for (name,) in connection.execute(tables))
    query = "SELECT ?, name, type, `notnull` OR pk, pk FROM pragma_table_info(?) ORDER BY name"
    found = [row for name in names for row in connection.execute(query, (name, name))]
    query = "SELECT ?, `unique`, origin FROM pragma_index_list(?) ORDER BY name"
    found += [row for name in names for row in connection.execute(query, (name, name))]
    connection.close()
    return found


@contextlib.contextmanager
def connection_to(url: str) -> Iterator[sa.Connection]:
    engine = connected(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_the_texts_are_those_of_the_tables():
    assert FILE.read_text() == write(), "run python -m graphopt.store.schema.page"


def test_a_store_of_version_3_is_upgraded_and_keeps_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "environment", lambda: THERE)
    path = tmp_path / "store"
    shutil.copy(VERSION_3, path)
    store = Store(path)
    kept = make_winner(fingerprint="f" * 64, decisions='{"space": 1}', program="a program")
    assert all_winners(store) == [kept]
    assert sorted(outcomes(store, "f" * 64)) == [('{"a": 1}', None), ("{}", 1.5)]
    assert list(quarantined(store, "f" * 64).values()) == ["hang"]
    assert get_options(store, "a digest") == {"xla_option": "1"}
    assert [(k.key, k.ns) for k in all_kernels(store)] == [("k", 100.0)]
    assert get_costs(store, MachineKind("v", "n", 256, 2, "0.11.2")).facts == {"thunk_ns": 50.0}
    assert get_capabilities(store, "0.11.2", 1) == {"hook"}
    put_winner(store, make_winner(fingerprint="f" * 64, seen=2.0))
    assert get_winner(store, "f" * 64).seen == 2.0
    put_winner(Store(tmp_path / "new"), make_winner())
    assert layout(path) == layout(tmp_path / "new")


@pytest.mark.parametrize("version", [1, 2])
def test_older_stores_are_upgraded_step_by_step(tmp_path, version):
    path = tmp_path / "store"
    shutil.copy(VERSION_3, path)
    connection = sqlite3.connect(path)
    for table in ("capabilities", "machine_costs")[: 3 - version]:
        connection.execute(f"DROP TABLE {table}")
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    store = Store(path)
    assert store.rows("SELECT program FROM compile_options") == [("a digest",)]
    assert store.rows("PRAGMA user_version") == [(VERSION,)]
    assert get_capabilities(store, "0.11.2", 1) is None


def test_a_server_has_the_tables(server, database):
    with connection_to(server.url(database)) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, TABLES) == []


def test_a_server_is_upgraded(server, database):
    url = server.url(database)
    with connection_to(url) as connection:
        TABLES.drop_all(connection)
        connection.execute(sa.text("DELETE FROM alembic_version"))
        upgrade(connection, to="3")
        connection.commit()
    with pytest.raises(StoreError, match=rf"version 3, older than .* {VERSION}.*store init"):
        all_winners(Store(url))
    initialise(url)
    with connection_to(url) as connection:
        assert version_of(connection) == VERSION
    assert all_winners(Store(url)) == []


def test_a_newer_server_is_refused(server, database):
    url = server.url(database)
    server.execute(f"UPDATE alembic_version SET version_num='{VERSION + 1}'", database=database)
    for use in (lambda: all_winners(Store(url)), lambda: initialise(url)):
        with pytest.raises(StoreError, match=rf"version {VERSION + 1}, newer than .* {VERSION}"):
            use()


def test_a_server_without_tables_says_how_to_make_them(server):
    with pytest.raises(StoreError, match=r"no tables yet .*graphopt store init"):
        all_winners(Store(server.url("postgres")))
