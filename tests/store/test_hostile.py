"""Rows that somebody else wrote into a store, on both engines: refused and named, never used."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from support.captures import captured

import graphopt
from graphopt.errors import StoreError
from graphopt.measure.adoption import StoredWinners
from graphopt.store import encode_decisions
from graphopt.store.database import MOST_BYTES
from graphopt.store.winners import get_options, get_winner, put_options, put_winner
from store.test_store import make_winner

SQL = "'); DROP TABLE winners; --"


def edit(store, statement: str, **values: object) -> None:
    with store.transaction() as connection:
        connection.execute(sa.text(statement), values)


def find(store, name: str = "knapsack"):
    program = captured(name)
    winners = StoredWinners(store)
    if winners.shared is not None:
        winners.shared._asker.deadline_s = 20.0
    return winners.find(program.graph, program.data)


def put_for(store, name: str, decisions: str, **fields: object) -> str:
    graph = captured(name).graph
    put_winner(store, make_winner(fingerprint=graph.fingerprint, decisions=decisions, **fields))
    return graph.fingerprint


@pytest.mark.parametrize(
    ("column", "value"),
    [("speedup", -1.0), ("low", 0.0), ("nodes", -5), ("verified", 7), ("nodes", 1 << 60)],
)
def test_a_row_with_values_that_no_winner_has(store, column, value):
    put_for(store, "knapsack", '{"space": 1}')
    edit(store, f"UPDATE winners SET {column}=:value", value=value)
    with pytest.raises(StoreError, match="a winner cannot be used"):
        find(store)


@pytest.mark.parametrize("column", ["decisions", "program", "origin"])
def test_a_huge_text_is_not_even_fetched(store, column):
    fingerprint = put_for(store, "knapsack", '{"space": 1}')
    edit(store, f"UPDATE winners SET {column}=:value", value="x" * (MOST_BYTES + 1))
    with pytest.raises(StoreError, match=f"{column} is longer than 8 MiB"):
        find(store)
    rows = store.rows("winner", {"fingerprint": fingerprint})
    assert None in rows[0] and max(len(str(value)) for value in rows[0]) < 1000


@pytest.mark.parametrize("kind", ["damaged", "out of the mask", "another graph", "deep", "field"])
def test_decisions_that_are_not_legal_are_dropped_and_named(store, kind):
    graph = captured("knapsack").graph
    header = {"space": 1, "nodes": len(graph)}
    place = next(i for i in range(len(graph)) if not graph.masks.fuse[i].all())
    wrong = int((~graph.masks.fuse[place]).nonzero()[0][0])
    text = {
        "damaged": "{",
        "out of the mask": json.dumps({**header, "fuse": {str(place): wrong}}),
        "another graph": json.dumps({**header, "nodes": 1}),
        "deep": "[" * 100_000,
        "field": json.dumps({**header, SQL: {}}),
    }[kind]
    put_for(store, "knapsack", text)
    for _ in range(2):
        found = find(store)
        if found is None:
            break
        assert found.decisions is None and "stored winner dropped" in found.reason
    assert found is None, "it is not tried again"


def test_sql_in_names_is_text(store):
    put_winner(store, make_winner(fingerprint=SQL, program=SQL, origin=SQL, decisions=SQL))
    found = get_winner(store, SQL)
    assert (found.fingerprint, found.program, found.decisions) == (SQL, SQL, SQL)
    assert get_winner(store, "' OR '1'='1") is None
    put_options(store, SQL, {SQL: SQL}, (1.0, 1.0, 1.0))
    assert get_options(store, SQL) == {SQL: SQL}


@pytest.mark.parametrize("text", ["[1]", "{", "3", "[" * 100_000])
def test_options_that_are_none(store, text):
    put_options(store, "p", {}, (1.0, 1.0, 1.0))
    edit(store, "UPDATE compile_options SET options=:text", text=text)
    with pytest.raises(StoreError, match="compile options cannot be used"):
        get_options(store, "p")


def test_a_legal_winner_of_the_same_module_is_found(store):
    graph = captured("knapsack").graph
    decisions = graph.default.copy()
    text = encode_decisions(graph, decisions)
    put_for(store, "knapsack", text)
    assert find(store).decisions is None and text == "{}"


def test_what_is_wrong_with_a_row_stands_in_the_report(store, clean_plugin):
    program = captured("knapsack")
    put_winner(store, make_winner(fingerprint=program.graph.fingerprint))
    edit(store, "UPDATE winners SET low=-1")
    graphopt.install("heuristic", store=store)
    winners = StoredWinners(store)
    if winners.shared is not None:
        winners.shared._asker.deadline_s = 20.0
    from graphopt.plugin.modules import handle

    handle(program.data)
    assert any("a winner cannot be used" in note for note in graphopt.report().notes)
