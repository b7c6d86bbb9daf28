"""What a store remembers, on both engines: a file, and a PostgreSQL server."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from graphopt.errors import StoreError
from graphopt.evaluate.commands.store import prune
from graphopt.store import Store
from graphopt.store import environment as store_environment
from graphopt.store.kernels import Kernel, all_kernels, get_kernels, put_kernels
from graphopt.store.winners import (
    all_winners,
    any_winner,
    evaluations,
    get_options,
    get_winner,
    mark_verified,
    put_evaluation,
    put_options,
    put_quarantine,
    put_winner,
    quarantined,
    remove_winner,
    revision,
)
from store.test_store import make_winner


def test_news_from_others_can_be_told(store, place):
    assert revision(store) == 0 and not any_winner(store)
    put_winner(store, make_winner())
    before = revision(store)
    assert any_winner(store) and revision(store) == before > 0
    put_winner(Store(place), make_winner(speedup=3.0))
    assert revision(store) > before


def test_other_xla_options_are_another_environment(store, place, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    plain = store_environment()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_b=1 --xla_dump_to=/tmp/x --xla_cpu_a=2")
    assert store_environment() == (*plain[:2], "--xla_cpu_a=2 --xla_cpu_b=1")
    put_winner(store, make_winner())
    put_kernels(store, [Kernel("k", 1.0, 1, ())])
    assert get_winner(Store(place), "abc") is not None
    monkeypatch.delenv("XLA_FLAGS")
    elsewhere = Store(place)
    assert get_winner(elsewhere, "abc") is None
    assert all_winners(elsewhere) == [] and all_kernels(elsewhere) == []


def test_winners_are_replaced_verified_and_removed(store):
    assert get_winner(store, "abc") is None
    put_winner(store, make_winner(verified=False, origin="imported"))
    mark_verified(store, "abc")
    assert get_winner(store, "abc") == make_winner(origin="imported")
    put_winner(store, make_winner(speedup=3.0, seen=2.0))
    put_winner(store, make_winner(fingerprint="def", seen=3.0))
    assert [(w.fingerprint, w.speedup) for w in all_winners(store)] == [("def", 2.0), ("abc", 3.0)]
    put_winner(store, make_winner(speedup=4.0, seen=1.5))  # of the past: it comes too late
    assert get_winner(store, "abc").speedup == 3.0
    remove_winner(store, "abc")
    assert [w.fingerprint for w in all_winners(store)] == ["def"]


@pytest.mark.parametrize(
    "fields",
    [
        {"nodes": "5"}, {"nodes": 1.5}, {"nodes": -1}, {"nodes": 1 << 70}, {"speedup": 0.0},
        {"low": float("nan")}, {"high": float("inf")}, {"default_s": -1.0}, {"tuned_s": 10**400},
        {"verified": "yes"}, {"program": None}, {"fingerprint": b"abc"}, {"seen": float("nan")},
        {"program": "\ud800"}, {"decisions": {}},
    ],
)  # fmt: skip
def test_winners_check_their_fields(fields):
    with pytest.raises(StoreError, match="a winner cannot be used"):
        make_winner(**fields)


def test_quarantined_decisions_are_no_candidates(store):
    put_evaluation(store, "g", '{"fuse": 1}', 1.5, "ok", "move")
    put_evaluation(store, "g", '{"fuse": 2}', 1.2, "ok", "move")
    put_evaluation(store, "g", '{"fuse": 3}', None, "abort", "move")
    put_evaluation(store, "other", '{"fuse": 1}', 9.0, "ok", "move")
    assert evaluations(store, "g") == [('{"fuse": 1}', 1.5), ('{"fuse": 2}', 1.2)]
    put_quarantine(store, "g", '{"fuse": 1}', "hang: too slow")
    assert evaluations(store, "g") == [('{"fuse": 2}', 1.2)]
    assert list(quarantined(store, "g").values()) == ["hang: too slow"]
    assert quarantined(store, "other") == {}
    assert evaluations(store, "other") == [('{"fuse": 1}', 9.0)]


def test_kernels_are_averaged_by_samples(store):
    put_kernels(store, [Kernel("a", 100.0, 3, (1.0, 2.5)), Kernel("b", 7.0, 1, ())])
    put_kernels(store, [Kernel("a", 200.0, 1, (1.0, 3.5))])
    (a, b) = all_kernels(store)
    assert (a.ns, a.samples, a.features) == (pytest.approx(125.0), 4, (1.0, 3.5))
    assert b == Kernel("b", 7.0, 1, ())
    put_kernels(store, [Kernel("long", 100.0, 1000, ())])
    put_kernels(store, [Kernel("long", 150.0, 1, ())])
    assert get_kernels(store, ["long"])["long"] == pytest.approx(110.0), "the past counts fourfold"
    put_kernels(store, [Kernel("long", 1000.0, 50, ())])
    assert get_kernels(store, ["long"])["long"] == pytest.approx(110.0), "a disturbance"
    put_kernels(store, [Kernel("long", 10.0, 1, ())])
    assert get_kernels(store, ["long", "unknown"]) == {"long": 10.0}, "the past was disturbed"
    assert set(get_kernels(store, [f"k{i}" for i in range(1200)] + ["b"])) == {"b"}
    assert get_kernels(store, []) == {}


def test_compile_options(store):
    assert get_options(store, "p") == {}
    put_options(store, "p", {"xla_cpu_prefer_vector_width": "512"}, (1.2, 1.1, 1.3))
    assert get_options(store, "p") == {"xla_cpu_prefer_vector_width": "512"}
    put_options(store, "p", {}, (1.0, 1.0, 1.0))
    assert get_options(store, "p") == {}


def test_old_candidates_are_forgotten_and_nothing_else(store):
    put_winner(store, make_winner(seen=1.0))
    put_evaluation(store, "g", "new", 1.0, "ok", "")
    put_evaluation(store, "g", "old", 1.0, "ok", "")
    with store.transaction() as connection:
        connection.execute(sa.text("UPDATE evaluations SET seen=1 WHERE decisions='old'"))
    assert prune(store, 3600.0) == 1
    assert evaluations(store, "g") == [("new", 1.0)]
    assert get_winner(store, "abc") is not None
