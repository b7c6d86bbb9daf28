"""Winners of a server in a process that compiles: copies, deadlines, roles, signatures, hostile rows."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from support.processes import becomes, environment

from graphopt.cli import main
from graphopt.errors import StoreError
from graphopt.machine import own_kind
from graphopt.store import Store
from graphopt.store.engines.asking import Asker, TooLateError
from graphopt.store.engines.outbox import Outbox
from graphopt.store.engines.roles import initialise
from graphopt.store.engines.server import ServerEngine
from graphopt.store.kernels import Kernel, all_kernels, put_kernels
from graphopt.store.machine_costs import get_costs, put_costs
from graphopt.store.shared import SharedWinners
from graphopt.store.winners import (
    all_winners,
    evaluations,
    get_options,
    get_winner,
    put_evaluation,
    put_options,
    put_quarantine,
    put_winner,
)
from store.test_store import make_winner

PATIENT_S = 200.0
"""Deadline of tests that are about answers: other tests may have the cores."""


@pytest.fixture
def place(place_of_server):
    return place_of_server


@pytest.fixture
def shared(store):
    winners = SharedWinners(store)
    winners._asker.deadline_s = PATIENT_S
    return winners


def test_a_winner_of_the_server_is_copied_unverified(store, shared):
    put_winner(store, make_winner())
    shared.bring("abc")
    shared.bring("nothing")
    expected = make_winner(verified=False, origin="shared")
    assert all_winners(shared.copy) == [expected]
    assert shared.refresh() == 1 and shared.notes() == []


def test_what_came_of_a_copy_stays_until_the_server_has_another(store, shared):
    put_winner(store, make_winner())
    shared.bring("abc")
    shared.copy.write(("mark_verified", {"module": "abc"}))
    shared.bring("abc")
    assert get_winner(shared.copy, "abc").verified
    put_winner(store, make_winner(decisions='{"fuse": {"1": 0}}', seen=2.0))
    shared.bring("abc")
    assert get_winner(shared.copy, "abc").decisions == '{"fuse": {"1": 0}}'
    assert not get_winner(shared.copy, "abc").verified


def test_decisions_that_failed_here_are_not_copied_again(store, shared):
    put_winner(store, make_winner())
    put_quarantine(shared.copy, "abc", make_winner().decisions, "slow")
    shared.bring("abc")
    assert get_winner(shared.copy, "abc") is None


def test_a_signed_winner_needs_no_trial(store, shared, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_STORE_KEY", "a secret")
    put_winner(store, make_winner())
    put_winner(store, make_winner(fingerprint="unverified", verified=False))
    for fingerprint in ("abc", "unverified"):
        shared.bring(fingerprint)
    assert {w.fingerprint: w.verified for w in all_winners(shared.copy)} == {
        "abc": True, "unverified": False,
    }  # fmt: skip


@pytest.mark.parametrize("forged", ["another secret", "other decisions", "another module", ""])
def test_a_forged_signature_is_worth_nothing(store, shared, monkeypatch, forged):
    monkeypatch.setenv("GRAPHOPT_STORE_KEY", forged if forged == "another secret" else "a secret")
    put_winner(store, make_winner())
    changes = {
        "other decisions": "UPDATE winners SET decisions='{\"unit\": {}}'",
        "another module": "UPDATE winners SET fingerprint='def'",
        "": "UPDATE winners SET signature=''",
    }
    with store.transaction() as connection:
        connection.execute(sa.text(changes.get(forged, "SELECT 1")))
    monkeypatch.setenv("GRAPHOPT_STORE_KEY", "a secret")
    for fingerprint in ("abc", "def"):
        shared.bring(fingerprint)
    (found,) = all_winners(shared.copy)
    assert not found.verified


def test_options_are_copied(store, shared):
    put_options(store, "p", {"xla_option": "1"}, (1.2, 1.1, 1.3))
    assert shared.options("p") == {"xla_option": "1"}
    assert get_options(shared.copy, "p") == {"xla_option": "1"}


def test_what_the_machine_costs_stays_on_it(store, shared):
    put_costs(store, own_kind(), {"thunk_ns": 50.0}, 29)
    assert get_costs(shared.copy, own_kind()) == get_costs(store, own_kind()) is not None
    assert store.rows("SELECT count(*) FROM machine_costs") == [(0,)]


# A server that stands still, or is gone.


def test_a_server_that_stands_still_delays_one_look_up_only(server, store, shared):
    put_winner(store, make_winner())
    shared.bring("abc")
    shared.refresh()
    shared._asker.deadline_s = 0.2
    server.pause()
    try:
        for number in range(100):
            shared.bring(f"module {number}")
        assert get_winner(shared.copy, "abc") is not None
        assert shared.refresh() == 1
    finally:
        server.go_on()
    assert becomes(lambda: shared._asker._until == 0.0, PATIENT_S), "its late answer ends the pause"
    (note,) = shared.notes()
    assert "100 times the copy answered" in note and "moment ago" in note
    assert "owner@" not in note


def test_a_server_that_is_gone_says_so_once_it_is_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_STORE_COPY", str(tmp_path))
    shared = SharedWinners(Store("postgresql://owner:secret@127.0.0.1:9/none"))
    shared.start()
    shared.bring("abc")
    assert get_winner(shared.copy, "abc") is None
    (note,) = shared.notes()
    assert "2 times" in note and "secret" not in note


def test_writes_wait_for_a_server_and_arrive_once(server, database, store):
    put_evaluation(store, "g", "before", 1.0, "ok", "")
    server.kill()
    try:
        put_evaluation(store, "g", "meanwhile", 2.0, "ok", "")
        put_kernels(store, [Kernel("k", 1.0, 3, ())])
        assert store.outbox.counts() == (2, 0)
    finally:
        server.start()
    store.flush()
    assert becomes(lambda: store.outbox.counts() == (0, 0), PATIENT_S)
    store.outbox._flusher.join(PATIENT_S)
    assert evaluations(store, "g") == [("meanwhile", 2.0), ("before", 1.0)]
    assert [kernel.samples for kernel in all_kernels(store)] == [3]


def test_a_delivery_that_is_repeated_changes_nothing(store):
    change = store._whole([("put_kernel", {
        "key": "k", "ns": 1.0, "samples": 1, "features": "[]", "seen": 1.0,
    })])  # fmt: skip
    for _ in range(2):
        store._engine.write("one", change)
    assert store.rows("SELECT samples FROM kernels") == [(1,)]


def test_a_write_that_the_server_refuses_is_named_and_holds_up_nothing(store):
    store.outbox.put([("put_delivery", {"id": None, "seen": 1.0})])
    store.outbox.put([("put_delivery", {"id": "good", "seen": 1.0})])
    assert store.flush() == 1
    assert store.outbox.counts() == (0, 1)
    assert "null value" in store.outbox.refusals()[0]


def test_a_write_that_must_not_wait_is_sent_by_another_thread(store):
    values = {"id": "x", "seen": 1.0}
    store.write_later(("put_delivery", values))
    assert becomes(
        lambda: store.rows("SELECT id FROM deliveries WHERE id='x'") == [("x",)], PATIENT_S
    )


def test_who_asks_is_not_held_up_by_a_question_that_hangs():
    release, late = threading.Event(), threading.Event()
    asker = Asker(0.05, pause_s=1000.0)

    def hang() -> None:
        release.wait()
        late.set()

    assert asker.ask(lambda: 5, PATIENT_S) == 5
    with pytest.raises(TooLateError, match="no answer within 50 ms"):
        asker.ask(hang)
    with pytest.raises(TooLateError, match="a moment ago"):
        asker.ask(lambda: 6, PATIENT_S)
    release.set()
    assert late.wait(PATIENT_S)
    assert becomes(lambda: asker._until == 0.0, PATIENT_S), "an answer ends the pause"
    assert asker.ask(lambda: 7, PATIENT_S) == 7
    with pytest.raises(ZeroDivisionError):
        asker.ask(lambda: 1 // 0, PATIENT_S)


# Roles.


@pytest.fixture
def roles(server, database):
    """URLs of a role that reads and one that writes."""
    name = f"{database} \"odd'"
    quoted = name.replace('"', '""')
    server.execute(f'CREATE ROLE "reader {quoted}" LOGIN', f'CREATE ROLE "writer {quoted}" LOGIN')
    initialise(server.url(database), f"reader {name}", f"writer {name}")
    address = sa.make_url(server.url(database))
    yield [
        address.set(username=f"{kind} {name}").render_as_string(hide_password=False)
        for kind in ("reader", "writer")
    ]
    for kind in ("reader", "writer"):
        server.execute(f'DROP OWNED BY "{kind} {quoted}"', database=database)
        server.execute(f'DROP ROLE "{kind} {quoted}"')


def test_a_reader_finds_winners_and_can_change_nothing(roles):
    reader, writer = map(Store, roles)
    put_winner(writer, make_winner())
    put_evaluation(writer, "g", "a", 1.0, "ok", "")
    shared = SharedWinners(reader)
    shared._asker.deadline_s = PATIENT_S
    shared.bring("abc")
    assert get_winner(shared.copy, "abc") == make_winner(verified=False, origin="shared")
    assert shared.refresh() == 1
    for forbidden in (
        lambda: put_winner(reader, make_winner()),
        lambda: put_evaluation(reader, "g", "b", 1.0, "ok", ""),
        lambda: evaluations(reader, "g"),
        lambda: reader.rows("DELETE FROM winners RETURNING 1"),
    ):
        with pytest.raises(StoreError, match="permission denied"):
            forbidden()
    for store in (reader, writer):
        store.close()


def test_a_writer_cannot_change_tables(roles):
    writer = Store(roles[1])
    for statement in (
        "DROP TABLE winners",
        "ALTER TABLE winners ADD x int",
        "CREATE TABLE x (y int)",
    ):
        with (
            pytest.raises(StoreError, match=r"must be owner|permission denied"),
            writer.transaction() as connection,
        ):
            connection.execute(sa.text(statement))
    writer.close()


def test_the_command_makes_shows_and_flushes(server, roles, capsys, monkeypatch):
    url = server.url(sa.make_url(roles[0]).database)
    assert main(["store", "init", "--url", url, "--reader", "owner"]) == 0
    assert "role owner may look for winners" in capsys.readouterr().out
    monkeypatch.setenv("GRAPHOPT_STORE", url)
    store = Store()
    put_winner(store, make_winner())
    store.outbox.put([("put_delivery", {"id": None, "seen": 1.0})])
    assert main(["store", "flush"]) == 1
    assert main(["store"]) == 1
    shown = capsys.readouterr().out
    assert "winners: 1 rows" in shown and "0 writes wait, 1 were refused" in shown
    assert "owner@" not in shown
    store.close()


def test_a_file_needs_no_init(tmp_path, capsys):
    assert main(["store", "show", "--url", str(tmp_path / "none")]) == 0
    assert "not there yet" in capsys.readouterr().out
    assert main(["store", "init", "--url", str(tmp_path / "none")]) == 2
    assert "only a store on a server" in capsys.readouterr().err


def test_threads_that_open_at_once_share_connections(store, place):
    put_winner(store, make_winner())  # there are tables
    engine = ServerEngine(place)
    start = threading.Barrier(6)

    def opened():
        start.wait()
        return engine._engine()[0]

    with ThreadPoolExecutor(6) as threads:
        found = [future.result() for future in [threads.submit(opened) for _ in range(6)]]
    assert all(one is found[0] for one in found)
    assert engine.rows("SELECT 1", {}) == [(1,)]
    engine.close()


def test_processes_that_open_the_queue_at_once_lose_nothing(tmp_path):
    script = """
import sys, time
from pathlib import Path
from graphopt.store.engines.outbox import Outbox

path, number, start = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
time.sleep(max(0.0, start - time.time()))
for round in range(20):
    Outbox(path / f"{round}.sqlite", "server").put([("change", {"number": number})])
"""
    start = f"{time.time() + 2.0}"
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [
        subprocess.Popen([*command, f"{number}", start], env=environment(), stderr=subprocess.PIPE)
        for number in range(4)
    ]
    errors = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 4, errors
    assert {Outbox(path, "server").counts() for path in tmp_path.glob("*.sqlite")} == {(4, 0)}
