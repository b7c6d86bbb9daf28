"""The store: several processes at once, foreign and damaged files, kills, and what it remembers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.processes import becomes, environment, run_python

from graphopt.errors import StoreError
from graphopt.store import Store, Winner, default_place
from graphopt.store.schema import APPLICATION_ID, VERSION
from graphopt.store.winners import (
    all_winners,
    evaluations,
    get_winner,
    put_evaluation,
    put_winner,
)

WRITER = """
import sys
from graphopt.store import Store
from graphopt.store.winners import put_evaluation
store, name, count = Store(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(count):
    put_evaluation(store, "graph", f'{{"{name}": {i}}}', 1.0 + i, "ok", name)
    print(i, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "folder" / "store.sqlite")


def make_winner(**fields) -> Winner:
    values = {
        "fingerprint": "abc", "decisions": '{"fuse": {}}', "program": "p", "nodes": 5,
        "default_s": 2e-3, "tuned_s": 1e-3, "speedup": 2.0, "low": 1.9, "high": 2.1,
        "evaluations": 7, "verified": True, "origin": "tuned here", "seen": 1.0,
    }  # fmt: skip
    return Winner(**{**values, **fields})


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Several processes and threads.


def test_two_processes_write_at_once_and_lose_nothing(store):
    writers = [start_writer(store.path, name, 300) for name in ("one", "two")]
    for writer in writers:
        _, errors = writer.communicate(timeout=100)
        assert (writer.returncode, errors) == (0, "")
    found = dict(evaluations(store, "graph"))
    assert found == {f'{{"{n}": {i}}}': 1.0 + i for n in ("one", "two") for i in range(300)}
    assert store.rows("PRAGMA journal_mode") == [("wal",)]
    assert store.rows("PRAGMA integrity_check") == [("ok",)]


def test_threads_that_open_it_at_once(store):
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(20):
                put_evaluation(store, "graph", f"{number} {i}", 1.0, "ok", "")
            store.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(evaluations(store, "graph")) == 120


def test_a_reader_is_not_held_up_by_a_writer(store):
    put_evaluation(store, "graph", "a", 1.0, "ok", "")
    other = Store(store.path)
    with store.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM evaluations")
        assert evaluations(other, "graph") == [("a", 1.0)]
    assert evaluations(other, "graph") == []


def test_a_killed_writer_leaves_a_readable_store(store):
    writer = start_writer(store.path, "killed", 100_000)
    lines = [writer.stdout.readline() for _ in range(40)]
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert lines[-1] == "39\n"
    found = dict(evaluations(store, "graph"))
    assert {f'{{"killed": {i}}}' for i in range(40)} <= set(found), "a finished write is lost"
    assert store.rows("PRAGMA integrity_check") == [("ok",)]
    put_evaluation(store, "graph", "after", 9e9, "ok", "")
    assert evaluations(store, "graph")[0] == ("after", 9e9)


def test_a_failed_transaction_leaves_nothing_and_does_not_block_the_next(store):
    with pytest.raises(KeyboardInterrupt), store.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM environments")
        connection.exec_driver_sql(
            "INSERT INTO environments (machine, jaxlib, options) VALUES (1, 2, 3)"
        )
        raise KeyboardInterrupt
    assert store.rows("SELECT count(*) FROM environments") == [(0,)]
    with pytest.raises(StoreError, match="no such table"), store.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM nonsense")
    put_winner(store, make_winner())
    assert get_winner(store, "abc") == make_winner()


def test_a_forked_child_opens_a_connection_of_its_own(store):
    put_evaluation(store, "graph", "a", 1.0, "ok", "")
    code = (
        "import os, sys\nfrom graphopt.store import Store\n"
        "from graphopt.store.winners import evaluations, put_evaluation\n"
        "store = Store(sys.argv[1])\nassert len(evaluations(store, 'graph')) == 1\n"
        "pid = os.fork()\n"
        "put_evaluation(store, 'graph', 'child' if pid == 0 else 'parent', 1.0, 'ok', '')\n"
        "pid and os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = run_python("-c", code, str(store.path))
    assert done.returncode == 0, done.stderr
    assert {text for text, _ in evaluations(store, "graph")} == {"a", "parent", "child"}


# Files that are no store of ours.


def make_database(path: Path, *statements: str) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


def test_a_newer_version_is_refused_and_kept(store):
    before = make_database(
        store.path,
        "CREATE TABLE winners (x)",
        f"PRAGMA application_id={APPLICATION_ID}",
        f"PRAGMA user_version={VERSION + 1}",
    )
    with pytest.raises(StoreError, match=rf"version {VERSION + 1}, newer than .* {VERSION}") as e:
        all_winners(store)
    assert e.value.where == str(store.path) and "GRAPHOPT_STORE" in e.value.fix
    assert store.path.read_bytes() == before


def test_a_foreign_database_is_refused_and_kept(store):
    before = make_database(store.path, "CREATE TABLE bookmarks (url)")
    for _ in range(2):
        with pytest.raises(StoreError, match="another program's SQLite file"):
            put_winner(store, make_winner())
    assert store.path.read_bytes() == before
    assert os.listdir(store.path.parent) == [store.path.name]


@pytest.mark.parametrize(
    "content", [b"this is no database " * 100, b"SQLite format 3\0" + b"x" * 84]
)
def test_a_file_of_something_else_is_refused(store, content):
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    with pytest.raises(StoreError, match="cannot be used"):
        all_winners(store)
    assert store.path.read_bytes() == content


def test_a_damaged_store_is_a_store_error(store):
    for i in range(200):
        put_winner(store, make_winner(fingerprint=f"{i:064x}"))
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    data = bytearray(store.path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    store.path.write_bytes(data)
    for use in (all_winners, lambda s: put_winner(s, make_winner())):
        with pytest.raises(StoreError):
            use(store)


def test_a_cut_off_store_is_a_store_error(store):
    for i in range(200):
        put_winner(store, make_winner(fingerprint=f"{i:064x}"))
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    with store.path.open("r+b") as file:
        file.truncate(2 * 4096)
    with pytest.raises(StoreError):
        all_winners(store)


@pytest.mark.parametrize("place", ["/dev/null/store", "/proc/nowhere/store", "/"])
def test_a_place_that_cannot_be_written(place):
    with pytest.raises(StoreError, match="cannot be used"):
        all_winners(Store(place))


def test_an_empty_file_becomes_a_store(store):
    store.path.parent.mkdir()
    store.path.touch()
    put_winner(store, make_winner())
    assert len(all_winners(store)) == 1


def test_a_row_that_somebody_edited(store):
    put_winner(store, make_winner())
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE winners SET speedup='fast'")
    with pytest.raises(StoreError, match="speedup is 'fast'"):
        get_winner(store, "abc")


# Where it is, and for whom.


def test_where_the_store_is(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHOPT_STORE", str(tmp_path / "mine"))
    assert default_place() == Store().path == tmp_path / "mine"
    monkeypatch.delenv("GRAPHOPT_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_place() == tmp_path / "graphopt" / "store.sqlite"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_place() == Path.home() / ".cache" / "graphopt" / "store.sqlite"


def test_naming_a_store_touches_nothing(store):
    assert not store.exists()
    assert not store.path.parent.exists()
    assert Store.of(store) is store
    assert Store.of(str(store.path)).path == store.path
    assert Store.of(None).path == default_place()


def test_a_write_waits_for_another_process(store):
    put_winner(store, make_winner())
    begun = threading.Event()
    done = threading.Event()

    def write() -> None:
        begun.set()
        put_winner(Store(store.path), make_winner(fingerprint="later"))
        done.set()

    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE winners SET speedup=5")
        thread = threading.Thread(target=write)
        thread.start()
        begun.wait()
        time.sleep(0.2)
        assert not done.is_set()
    assert becomes(done.is_set, within_s=30)
    thread.join()
    assert len(all_winners(store)) == 2


def test_a_store_in_a_file_needs_neither_sqlalchemy_nor_a_server(store):
    put_winner(store, make_winner())
    code = (
        "import sys, graphopt\n"
        "from graphopt.measure.adoption import StoredWinners\n"
        "from graphopt.store import Store\n"
        "from graphopt.store.winners import get_winner, mark_verified\n"
        "graphopt.install(store=sys.argv[1])\n"
        "assert StoredWinners(Store(sys.argv[1])).any()\n"
        "assert get_winner(Store(sys.argv[1]), 'abc').verified\n"
        "mark_verified(Store(sys.argv[1]), 'abc')\n"
        "print(sorted({'sqlalchemy', 'alembic', 'psycopg'} & set(sys.modules)))\n"
    )
    done = run_python("-c", code, str(store.path))
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
