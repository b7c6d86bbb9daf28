"""What a jaxlib keeps of a rewritten module: known rows are right, others are tried once and remembered."""

from __future__ import annotations

import inspect
import textwrap

import jaxlib.version
import pytest
from support.reports import FELL_BACK, REWRITTEN, agrees, only_record
from support.small_programs import STATE, named

import graphopt
from graphopt.measure.capabilities import own, probes
from graphopt.measure.capabilities.table import KNOWN, PROBES, TABLE, Capabilities
from graphopt.store import Store
from graphopt.store.capabilities import get_capabilities, put_capabilities

UNSEEN = "99.9.9"
NEEDED = {row.name for row in TABLE if row.needed}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


@pytest.fixture
def unseen(monkeypatch):
    """A jaxlib that graphopt does not know, and of which this process knows nothing yet."""
    monkeypatch.setattr(jaxlib.version, "__version__", UNSEEN)
    monkeypatch.setattr(own, "_tried", {})


def no_child():
    raise AssertionError("a child was started")


def test_every_row_has_a_probe_that_says_what_it_tries():
    for row in TABLE:
        assert inspect.getdoc(getattr(probes, row.name))
        assert row.meaning and not row.meaning.endswith(".")


def test_a_known_version_is_not_tried(monkeypatch):
    monkeypatch.setattr(own, "try_out", no_child)
    for version, holding in KNOWN.items():
        monkeypatch.setattr(jaxlib.version, "__version__", version)
        found = own.own_capabilities()
        assert (found.known, found.sound, found.holding) == (True, True, holding)


@pytest.mark.slow
def test_probes_find_what_the_table_knows_of_this_version_and_the_store_remembers_it(
    monkeypatch, store
):
    known = KNOWN.get(jaxlib.version.__version__)
    monkeypatch.setattr(jaxlib.version, "__version__", UNSEEN)
    monkeypatch.setattr(own, "_tried", {})
    found = own.own_capabilities(store)
    assert found.sound and not found.known
    if known is not None:
        assert found.holding == known
    assert get_capabilities(store, UNSEEN, PROBES) == found.holding

    monkeypatch.setattr(own, "try_out", no_child)
    assert own.own_capabilities(store) is found, "asked twice in one process"
    monkeypatch.setattr(own, "_tried", {})
    assert own.own_capabilities(store) == found


def test_what_older_probes_found_is_tried_anew(unseen, monkeypatch, store):
    put_capabilities(store, UNSEEN, PROBES - 1, dict.fromkeys(NEEDED, False))
    monkeypatch.setattr(own, "try_out", lambda: frozenset(NEEDED))
    assert own.own_capabilities(store).sound
    assert get_capabilities(store, UNSEEN, PROBES) == NEEDED


def test_a_probe_that_ends_or_stalls_its_child_does_not_hold_and_the_others_are_tried():
    worker = textwrap.dedent("""
        import json, os, sys
        for line in sys.stdin:
            probe = json.loads(line)["probe"]
            if probe == "in_place":
                os.abort()
            answer = "no JSON" if probe == "donation" else json.dumps({"holds": True, "detail": ""})
            print(answer, flush=True)
    """)
    names = {row.name for row in TABLE}
    assert own.try_out(("-c", worker)) == names - {"in_place", "donation"}


def test_an_unusable_store_is_no_hindrance(unseen, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no store")
    monkeypatch.setattr(own, "try_out", lambda: frozenset(NEEDED))
    assert own.own_capabilities(Store(tmp_path / "file")).sound


@pytest.mark.usefixtures("clean_plugin")
def test_where_rewriting_is_not_sound_every_module_keeps_the_default(unseen, store):
    holds = dict.fromkeys(NEEDED, True) | {"in_place": False}
    put_capabilities(store, UNSEEN, PROBES, holds)
    graphopt.install("heuristic", store=store)
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is FELL_BACK
    assert "in_place did not hold" in only_record().reason
    assert any(
        UNSEEN in note and "XLA's default stands" in note for note in graphopt.report().notes
    )


@pytest.mark.usefixtures("clean_plugin")
def test_where_it_is_the_report_says_that_the_version_was_tried(unseen, store):
    put_capabilities(store, UNSEEN, PROBES, dict.fromkeys(NEEDED, True))
    graphopt.install("heuristic", store=store)
    assert agrees(named("cart")(STATE))
    assert only_record().outcome is REWRITTEN
    assert any(f"jaxlib {UNSEEN} is not one" in note for note in graphopt.report().notes)


def test_the_note_names_what_is_missing():
    found = Capabilities("1.2.3", frozenset(NEEDED - {"hook", "native_call"}), known=False)
    assert found.missing == ("hook", "native_call") and not found.sound and not found.donation
    assert "1.2.3" in str(found) and "hook, native_call did not hold" in str(found)
