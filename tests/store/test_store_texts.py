"""Stored decisions and files of winners: what is damaged, stale or made up is refused, never used."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.captures import capture, captured, changed

from graphopt.errors import DecisionError, StoreError
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.store import (
    Store,
    decisions_digest,
    decode_decisions,
    encode_decisions,
    environment,
    export_winners,
    import_winners,
)
from graphopt.store.winners import KEPT, all_winners, get_winner, put_winner
from store.test_store import make_winner

NAMES = ("knapsack", "momentum_train", "layernorm", "scan_grad")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


# Decisions as text.


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
)
def test_legal_decisions_survive_the_round_trip(name, seed, share):
    graph = captured(name).graph
    decisions = graph.masks.sample(np.random.default_rng(seed), graph.default, share)
    text = encode_decisions(graph, decisions)
    again = decode_decisions(graph, text)
    assert again.same_as(decisions)
    assert encode_decisions(graph, again) == text
    assert (text == KEPT) == decisions.same_as(graph.default)


def test_the_default_is_the_empty_text():
    graph = captured("knapsack").graph
    assert encode_decisions(graph, graph.default) == KEPT
    decoded = decode_decisions(graph, KEPT)
    assert decoded.same_as(graph.default)
    decoded.fuse[0] ^= True  # the decoded vector is the caller's own


def test_units_go_by_name():
    graph = captured("layernorm").graph
    unit = next(
        u
        for u in range(len(graph.units))
        if (graph.masks.unit[:, u] & (graph.default.unit != u)).any()
    )
    place = int(np.flatnonzero(graph.masks.unit[:, unit] & (graph.default.unit != unit))[0])
    text = encode_decisions(graph, changed(graph.default, unit={place: unit}))
    assert json.loads(text)["unit"] == {str(place): graph.units[unit].name}


def check_refused(graph, text: str) -> None:
    """The text is decoded to something legal, or refused with a `DecisionError`."""
    try:
        decisions = decode_decisions(graph, text)
    except DecisionError as error:
        assert error.what and error.fix
        return
    graph.masks.check(decisions)


@settings(max_examples=300, deadline=None)
@given(text=st.text() | JSON.map(json.dumps))
def test_any_text_is_refused_or_legal(text):
    check_refused(captured("knapsack").graph, text)


@settings(max_examples=300, deadline=None)
@given(
    field=st.sampled_from([*FIELDS, "colour"]),
    place=st.integers(-3, 400).map(str) | st.text(max_size=4),
    value=JSON | st.sampled_from(["native", "loop@1", "library"]),
    header=st.sampled_from([{}, {"space": 2}, {"nodes": 3}, {"nodes": "x"}, {"space": None}]),
)
def test_edited_decisions_are_refused_or_legal(field, place, value, header):
    graph = captured("knapsack").graph
    data = {"space": 1, "nodes": len(graph), field: {place: value}, **header}
    if header or field == "colour":
        with pytest.raises(DecisionError):
            decode_decisions(graph, json.dumps(data))
    else:
        check_refused(graph, json.dumps(data))


@pytest.mark.parametrize(
    "changes",
    [
        {"fuse": {"0": 2}}, {"fuse": {"0": -1}}, {"fuse": {"0": 0.5}}, {"fuse": {"0": True}},
        {"fuse": {"0": "1"}}, {"fuse": {"0": None}}, {"fuse": {"0": [1]}}, {"fuse": {"-1": 0}},
        {"fuse": {"9999999": 0}}, {"fuse": [0]}, {"fuse": 0}, {"unit": {"0": "loop@4096"}},
        {"unit": {"0": 0}}, {"unit": {"0": ["native"]}}, {"unit": {"0": "tensor core"}},
        {"colour": {"0": 1}}, {"space": 2}, {"space": "1"}, {"nodes": 1},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_values_that_do_not_exist_are_refused(changes):
    graph = captured("knapsack").graph
    data = {"space": 1, "nodes": len(graph), **changes}
    with pytest.raises(DecisionError, match="decisions cannot be read"):
        decode_decisions(graph, json.dumps(data))


@pytest.mark.parametrize("text", ["", "null", "[]", "3", "{", "[" * 100_000, '{"a":' * 100_000])
def test_texts_that_are_no_object_are_refused(text):
    with pytest.raises(DecisionError):
        decode_decisions(captured("knapsack").graph, text)


def test_illegal_decisions_are_refused_with_the_rule():
    graph = captured("knapsack").graph
    place = int(np.flatnonzero(~graph.masks.fuse[:, 1])[0])
    text = json.dumps({"space": 1, "nodes": len(graph), "fuse": {str(place): 1}})
    with pytest.raises(DecisionError) as caught:
        decode_decisions(graph, text)
    assert caught.value.node == place
    assert caught.value.rule == graph.masks.why_not(place, "fuse", 1)


def test_decisions_of_another_graph_are_refused():
    one, two = captured("knapsack").graph, captured("momentum_train").graph
    decisions = one.masks.sample(np.random.default_rng(0), one.default, 0.3)
    with pytest.raises(DecisionError, match="nodes, the graph has"):
        decode_decisions(two, encode_decisions(one, decisions))


def test_the_digest_tells_texts_apart():
    texts = ["{}", '{"a": 1}', '{"a": 2}', ""]
    assert len({decisions_digest(t) for t in texts}) == len(texts)
    assert decisions_digest("{}") == decisions_digest("{}")


# Files of winners.


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("winners")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def exported(store: Store, path: Path, *winners: Any) -> dict[str, Any]:
    for winner in winners:
        put_winner(store, winner)
    export_winners(store, path)
    return json.loads(path.read_text())


def test_winners_move_and_count_as_unverified(store, tmp_path):
    file = tmp_path / "winners.json"
    mine = [make_winner(fingerprint="a"), make_winner(fingerprint="b", decisions=KEPT)]
    unchecked = make_winner(fingerprint="c", verified=False, origin="imported")
    data = exported(store, file, *mine, unchecked)
    assert data["environment"] == dict(
        zip(("machine", "jaxlib", "options"), environment(), strict=True)
    )
    assert sorted(w["fingerprint"] for w in data["winners"]) == ["a", "b"]
    there = Store(tmp_path / "there.sqlite")
    assert import_winners(there, file) == 2
    for winner in all_winners(there):
        assert (winner.verified, winner.origin) == (False, "imported")
    assert export_winners(there, tmp_path / "again.json") == 0, "nothing there is verified"


def test_an_import_does_not_replace_what_was_tuned_here(store, tmp_path):
    file = tmp_path / "winners.json"
    exported(store, file, make_winner(fingerprint="a", speedup=9.0, low=8.0, high=10.0))
    there = Store(tmp_path / "there.sqlite")
    put_winner(there, make_winner(fingerprint="a"))
    assert import_winners(there, file) == 0
    assert get_winner(there, "a") == make_winner(fingerprint="a")


def test_an_empty_store_makes_an_empty_file(store, tmp_path):
    file = tmp_path / "winners.json"
    assert exported(store, file)["winners"] == []
    assert import_winners(store, file) == 0


def test_an_export_that_cannot_be_written(store, tmp_path):
    (tmp_path / "taken").mkdir()
    for target in (tmp_path / "no" / "such" / "folder.json", tmp_path / "taken"):
        with pytest.raises(StoreError, match="cannot be written"):
            export_winners(store, target)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


BAD_FILES: dict[str, Any] = {
    "nothing": b"",
    "no text": b"\xff\xfe\x00\x01",
    "no JSON": b"winners: none",
    "a list": b"[]",
    "deep": b"[" * 200_000,
    "another format": b'{"format": "something", "version": 1}',
    "another version": b'{"format": "graphopt-winners", "version": 2, "winners": []}',
    "no environment": b'{"format": "graphopt-winners", "version": 1, "winners": []}',
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_files_that_hold_no_winners(store, tmp_path, content):
    file = tmp_path / "winners.json"
    file.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        import_winners(store, file)
    assert caught.value.where == str(file)


def test_a_file_that_is_not_there_or_a_folder(store, tmp_path):
    for path in (tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(StoreError, match="cannot be read"):
            import_winners(store, path)


def test_winners_of_another_jaxlib_are_refused(store, tmp_path):
    file = tmp_path / "winners.json"
    data = exported(store, file, make_winner())
    data["environment"]["jaxlib"] = "0.0.1"
    file.write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"0\.0\.1"):
        import_winners(store, file)


def test_a_bad_winner_keeps_the_good_ones_of_its_file_out(store, tmp_path):
    file = tmp_path / "winners.json"
    data = exported(store, file, make_winner(fingerprint="good"))
    data["winners"].append({**asdict(make_winner(fingerprint="bad")), "speedup": "fast"})
    file.write_text(json.dumps(data))
    there = Store(tmp_path / "there.sqlite")
    with pytest.raises(StoreError, match="speedup is 'fast'"):
        import_winners(there, file)
    assert all_winners(there) == []


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be replaced in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    out = [prefix] if prefix else []
    if isinstance(value, dict | list):
        for key, inner in items:
            out += (
                paths(inner, (*prefix, key)) if isinstance(inner, dict | list) else [(*prefix, key)]
            )
    return out


def mutated(data: Any, path: tuple[Any, ...], value: Any, delete: bool) -> Any:
    copy = json.loads(json.dumps(data))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if delete:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mutated_files_are_refused_or_taken_unverified(folder, data):
    store, file = Store(folder / "from.sqlite"), folder / "winners.json"
    good = exported(store, file, make_winner(fingerprint="a"))
    path = data.draw(st.sampled_from(paths(good)))
    value = data.draw(
        JSON | st.sampled_from([2**70, -1, 1e400, "\ud800", "\x00", 10**400, [], {}, True])
    )
    file.write_text(json.dumps(mutated(good, path, value, data.draw(st.booleans()))))
    there = Store(folder / "there.sqlite")
    with there.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM winners")
    try:
        count = import_winners(there, file)
    except StoreError:
        assert all_winners(there) == []
        return
    assert count == len(all_winners(there)) <= 1
    for winner in all_winners(there):
        assert (winner.verified, winner.origin) == (False, "imported")


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(start=st.integers(0, 700), length=st.integers(1, 40), junk=st.binary(max_size=20))
def test_files_with_damaged_bytes_are_refused_or_taken_unverified(folder, start, length, junk):
    file = folder / "bytes.json"
    exported(Store(folder / "from.sqlite"), file, make_winner(fingerprint="a"))
    content = file.read_bytes()
    start %= len(content)
    file.write_bytes(content[:start] + junk + content[start + length :])
    there = Store(folder / "bytes.sqlite")
    try:
        import_winners(there, file)
    except StoreError:
        return
    assert all(not w.verified for w in all_winners(there))


def test_the_same_program_has_the_same_numbers_again():
    """Texts name nodes by number."""
    first = captured("knapsack")
    again = capture(first.fn, *first.args)
    assert again.graph.fingerprint == first.graph.fingerprint
    assert [op.name for op in again.graph.ops] == [op.name for op in first.graph.ops]
    assert again.graph.operand_lists == first.graph.operand_lists
