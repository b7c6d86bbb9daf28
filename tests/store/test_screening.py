"""What is read of a store that others write is bounded before it is fetched, and checked when it has come."""

from __future__ import annotations

import json
import logging

import pytest

from graphopt.errors import StoreError
from graphopt.store import database
from graphopt.store.capabilities import get_capabilities, put_capabilities
from graphopt.store.database import MOST_BYTES
from graphopt.store.kernels import Kernel, all_kernels, get_kernels, put_kernels
from graphopt.store.queue import forget, items, load, put_sighting
from graphopt.store.queue_items import Sighting
from graphopt.store.schema.statements import statements
from graphopt.store.screening import COLUMNS, CUT
from graphopt.store.winners import (
    all_winners,
    evaluations,
    outcomes,
    outcomes_elsewhere,
    put_evaluation,
    put_quarantine,
    put_winner,
    quarantined,
    revision,
)
from store.test_hostile import edit
from store.test_store import make_winner

HUGE = "x" * (MOST_BYTES + 1)
FULL = {
    "evaluations": lambda store: evaluations(store, "f"),
    "outcomes": lambda store: outcomes(store, "f"),
    "quarantined": lambda store: list(quarantined(store, "q").items()),
    "kernels": all_kernels,
    "winners": all_winners,
    "queue": lambda store: items(store).items,
}
"""What reads many rows; `filled` holds four of each."""


@pytest.fixture
def filled(store):
    for number in range(4):
        put_evaluation(store, "f", f'{{"a": {number}}}', 1.0 + number, "ok", "m")
        put_quarantine(store, "q", f'{{"a": {number}}}', "abort")
        put_winner(store, make_winner(fingerprint=f"w{number}", decisions='{"a": 1}'))
        put_sighting(store, Sighting(f"p{number}", b"module%d" % number))
    put_kernels(store, [Kernel(f"k{number}", 5.0, 3, (1.0, 2.0)) for number in range(4)])
    return store


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.WARNING, "graphopt.store")
    return caplog


@pytest.mark.parametrize("what", FULL)
def test_all_rows_are_read_within_the_bounds(filled, log, what):
    assert len(FULL[what](filled)) == 4 and log.text == ""


@pytest.mark.parametrize("what", FULL)
def test_so_many_rows_are_read_and_no_more(filled, log, monkeypatch, what):
    monkeypatch.setattr(database, "MOST_ROWS", 3)
    assert len(FULL[what](filled)) == 3
    assert "only 3 of 4 rows" in log.text and filled.shown in log.text


@pytest.mark.parametrize("what", FULL)
def test_so_many_bytes_are_read_and_no_more(filled, log, monkeypatch, what):
    monkeypatch.setattr(database, "MOST_TOTAL", 30)
    assert len(FULL[what](filled)) < 4
    rows = len(FULL[what](filled))
    assert rows == 0 or f"only {rows} of 4 rows" in log.text


def test_the_best_and_newest_come_first(filled, monkeypatch):
    monkeypatch.setattr(database, "MOST_ROWS", 2)
    assert [ratio for _, ratio in evaluations(filled, "f")] == [4.0, 3.0]


EDITS = {
    "evaluations": ("UPDATE evaluations SET decisions=:value WHERE ratio=2.0", HUGE),
    "outcomes": ("UPDATE evaluations SET ratio=:value WHERE ratio=2.0", -1.0),
    "quarantined": ("UPDATE quarantine SET reason=:value WHERE decisions LIKE '%1%'", HUGE),
    "kernels": ("UPDATE kernels SET features=:value WHERE key='k1'", "[" * 100_000),
    "winners": ("UPDATE winners SET low=:value WHERE fingerprint='w1'", -1.0),
    "queue": ("UPDATE queue SET program=:value WHERE program='p1'", HUGE),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_row_that_is_none_is_refused_and_named_and_the_others_are_used(filled, log, what):
    statement, value = EDITS[what]
    edit(filled, statement, value=value)
    assert len(FULL[what](filled)) == 3
    if what == "queue":
        ((_, why),) = items(filled).refused.items()
        assert "program is no text" in why
    else:
        assert "1 rows of" in log.text and "refused" in log.text
    assert len(log.text) < 1000, "the value itself is not in the log"


@pytest.mark.parametrize(
    "value", ["[1, null]", "{}", "3", json.dumps([1.0] * 1001), "[1e999]", "[NaN]", '["a"]', HUGE]
)
def test_features_that_are_none(filled, log, value):
    edit(filled, "UPDATE kernels SET features=:value WHERE key='k1'", value=value)
    assert [kernel.key for kernel in all_kernels(filled)] == ["k0", "k2", "k3"]
    assert "all_kernels" in log.text


@pytest.mark.parametrize(("column", "value"), [("ns", 0.0), ("ns", -5.0), ("samples", -1)])
def test_kernels_that_are_none(filled, log, column, value):
    edit(filled, f"UPDATE kernels SET {column}=:value WHERE key='k1'", value=value)
    assert len(all_kernels(filled)) == 3 and "k1" in log.text
    if column == "ns":
        assert get_kernels(filled, ["k1", "k2"]) == {"k2": 5.0}


WRONG = [
    ("evaluations", "ratio", lambda store: evaluations(store, "f")),
    ("evaluations", "decisions", lambda store: evaluations(store, "f")),
    ("quarantine", "reason", lambda store: quarantined(store, "q")),
    ("kernels", "ns", all_kernels),
    ("kernels", "samples", all_kernels),
    ("winners", "seen", all_winners),
    ("winners", "program", all_winners),
    ("queue", "calls", lambda store: items(store).items),
    ("queue", "last_seen", lambda store: items(store).items),
]


@pytest.mark.parametrize(("table", "column", "read"), WRONG)
def test_a_file_takes_any_type_anywhere(tmp_path, log, table, column, read):
    store = database.Store(tmp_path / "store.sqlite")
    put_evaluation(store, "f", "{}", 1.0, "ok", "m")
    put_quarantine(store, "q", "{}", "abort")
    put_winner(store, make_winner(fingerprint="w"))
    put_kernels(store, [Kernel("k", 5.0, 3, ())])
    put_sighting(store, Sighting("p", b"module"))
    text = column in ("decisions", "reason", "program")
    for value in (b"\xff" * 100, b"x" * (MOST_BYTES + 1), b"many" if text else "many"):
        with store.transaction() as connection:
            connection.exec_driver_sql(f"UPDATE {table} SET {column}=?", (value,))
        assert not read(store)
        rows = store.rows("all_winners" if table == "winners" else "all_kernels")
        assert max((len(str(x)) for row in rows for x in row), default=0) < 1000
    store.close()


def test_changes_that_are_no_number_count_as_none(tmp_path, log):
    store = database.Store(tmp_path / "store.sqlite")
    put_winner(store, make_winner(fingerprint="w"))
    assert revision(store) == 1
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE environments SET revision='many'")
    assert revision(store) == 0 and "revision is 'many'" in log.text
    put_capabilities(store, "0.1", 1, {"donation": True, "other": False})
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE capabilities SET holds='yes' WHERE name='other'")
    assert get_capabilities(store, "0.1", 1) == {"donation"}
    store.close()


def test_what_other_machines_found_is_bounded_too(filled, log, monkeypatch):
    edit(filled, "UPDATE environments SET machine='another'")
    assert [len(group) for group in outcomes_elsewhere(filled, "f")] == [4]
    monkeypatch.setattr(database, "MOST_ROWS", 3)
    assert [len(group) for group in outcomes_elsewhere(filled, "f")] == [3]


def test_a_blob_that_grows_after_it_was_measured_is_not_fetched(filled, monkeypatch):
    item = items(filled).items[0]
    sizes = filled.rows("queue_sizes", {"id": item.id})
    edit(filled, "UPDATE queue SET module=:value WHERE id=:item", value=b"x" * 200, item=item.id)
    monkeypatch.setattr("graphopt.store.queue.MAX_MODULE_BYTES", 100)
    whole = filled.rows

    def rows(query, values=()):
        return sizes if query == "queue_sizes" else whole(query, values)

    monkeypatch.setattr(filled, "rows", rows)
    with pytest.raises(StoreError, match="a module that is no bytes"):
        load(filled, item.id)
    assert forget(filled, [item.id]) == 1


def test_every_statement_that_reads_rows_is_bounded():
    for name, statement in statements("postgresql").items():
        text = str(statement)
        if not text.startswith("SELECT"):
            continue
        assert (name in CUT) == ("most_rows" in text), name
        one = {"kernels_state", "queue_count", "queue_sizes", "environment_id", "any_winner"}
        assert name in one or "most_" in text or name in COLUMNS, name
