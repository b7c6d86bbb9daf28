"""Stored winners at compile time: used if they fit and hold, dropped if not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from store.test_store import make_winner
from support.small_programs import STATE, chain, is_native, named

import graphopt
from benchmarks.faults import child_processes
from graphopt.hlo import build_graph
from graphopt.measure import compare_outputs, compile_with
from graphopt.measure.adoption import StoredWinners
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.policy.heuristic.steps import heuristic
from graphopt.store import Store, Winner, encode_decisions, export_winners, import_winners
from graphopt.store.winners import KEPT, get_winner, put_winner, quarantined

pytestmark = pytest.mark.usefixtures("clean_plugin")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


@pytest.fixture(scope="module")
def graph():
    """The graph of `chain`, whose loop gains several times by becoming native."""
    return build_graph(compile_with(named("cart", chain), (STATE,)).modules[0])


def winner_of(graph, made=None, **fields) -> Winner:
    text = encode_decisions(graph, heuristic(graph) if made is None else made)
    values = {"fingerprint": graph.fingerprint, "decisions": text, "nodes": len(graph)}
    return make_winner(**{**values, **fields})


def imported(**fields) -> dict[str, object]:
    return {"verified": False, "origin": "imported", **fields}


def compiled(store: Store):
    """A fresh compile of the program under the plugin, and what the report says of it."""
    graphopt.install("xla-default", store=store)
    executable = named("cart", chain).lower(STATE).compile()
    record = graphopt.report().records[-1]
    assert record.name == "jit_cart"
    return executable, record


def check_default(store: Store, reason: str, outcome: Outcome = Outcome.KEPT) -> ModuleRecord:
    executable, record = compiled(store)
    assert not is_native(executable)
    assert record.outcome is outcome and reason in record.reason
    plain = compile_with(named("plain", chain), (STATE,))()
    assert compare_outputs(plain, executable(STATE)).equal
    return record


def test_a_verified_winner_is_used_at_once(graph, store):
    put_winner(store, winner_of(graph))
    executable, record = compiled(store)
    assert is_native(executable)
    assert (record.outcome, record.reason) == (Outcome.REWRITTEN, "stored winner, measured 2.00x")


def test_an_imported_winner_is_verified_at_its_first_use(graph, store, tmp_path):
    put_winner(store, winner_of(graph))
    export_winners(store, tmp_path / "winners.json")
    there = Store(tmp_path / "there.sqlite")
    assert import_winners(there, tmp_path / "winners.json") == 1
    before = set(child_processes())
    executable, record = compiled(there)
    assert record.outcome is Outcome.REWRITTEN, record.reason
    assert is_native(executable)
    assert get_winner(there, graph.fingerprint) == replace(winner_of(graph), origin="imported")
    assert set(child_processes()) == before
    rows = there.rows("SELECT status, method FROM evaluations")
    assert rows == [("ok", "imported")]
    graphopt.reset_report()
    assert is_native(compiled(there)[0])
    assert there.rows("SELECT status, method FROM evaluations") == rows


def test_a_slower_imported_winner_is_dropped(graph, store):
    slow = graph.default.copy()
    slow.fuse[graph.masks.fuse[:, 0]] = False
    put_winner(store, winner_of(graph, slow, **imported()))
    check_default(store, "imported winner dropped: only 0.")
    assert get_winner(store, graph.fingerprint) is None
    assert quarantined(store, graph.fingerprint) == {}


@pytest.mark.parametrize("verified", [True, False])
def test_illegal_decisions_are_dropped(graph, store, verified):
    node = int(np.flatnonzero(~graph.masks.fuse[:, 1])[0])
    text = json.dumps({"space": 1, "nodes": len(graph), "fuse": {str(node): 1}})
    put_winner(store, winner_of(graph, **imported(decisions=text, verified=verified)))
    check_default(store, "stored winner dropped: ")
    assert get_winner(store, graph.fingerprint) is None


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"space": 0}', '{"space": 1, "nodes": 3}'])
def test_damaged_decisions_are_dropped(graph, store, text):
    put_winner(store, winner_of(graph, **imported(decisions=text)))
    check_default(store, "stored winner dropped: decisions cannot be read")


def test_a_winner_of_another_program_is_not_looked_at(graph, store):
    put_winner(store, winner_of(graph, fingerprint="0" * 64))
    check_default(store, "", Outcome.REWRITTEN)
    assert get_winner(store, "0" * 64) is not None


def test_a_kept_default_is_kept_even_where_the_policy_would_change_it(graph, store):
    put_winner(store, winner_of(graph, decisions=KEPT, speedup=1.0))
    graphopt.install(store=store)
    assert not is_native(named("cart", chain).lower(STATE).compile())
    (record,) = graphopt.report().records
    assert record.outcome is Outcome.KEPT and record.reason.startswith("tuned: ")


def test_without_a_store_the_policy_decides(graph, store):
    put_winner(store, winner_of(graph, decisions=KEPT, speedup=1.0))
    graphopt.install(store=False)
    assert is_native(named("cart", chain).lower(STATE).compile())


def test_a_store_that_is_not_there_is_not_made(store):
    graphopt.install(store=store)
    assert is_native(named("cart", chain).lower(STATE).compile())
    assert not store.exists()
    assert not StoredWinners(store).any()


def test_an_unreadable_store_is_mentioned_and_the_policy_decides(store):
    store.path.write_text("this is no store")
    graphopt.install(store=store)
    executable = named("cart", chain).lower(STATE).compile()
    assert is_native(executable)
    assert "stored winners are not used: the store cannot be used" in str(graphopt.report())


def test_the_state_changes_with_the_winners(graph, store):
    winners = StoredWinners(store)
    states = [winners.state()]
    for seen in (1.0, 2.0):
        put_winner(store, winner_of(graph, seen=seen))
        states.append(winners.state())
    put_winner(store, winner_of(graph, fingerprint="other", seen=0.5))
    states.append(winners.state())
    assert len(set(states)) == 4


def test_an_import_that_cannot_be_judged_is_unused_but_kept(graph, store, monkeypatch):
    from graphopt.measure import adoption
    from graphopt.measure.children.runner import Runner

    def no_worker(*args, **options):
        return Runner(*args, **options, worker=("-c", "raise SystemExit('no worker here')"))

    monkeypatch.setattr(adoption, "Runner", no_worker)
    put_winner(store, winner_of(graph, **imported()))
    check_default(store, "imported winner dropped: the module cannot be measured")
    assert get_winner(store, graph.fingerprint) is not None
    assert quarantined(store, graph.fingerprint) == {}
