"""The queue of modules: what is put comes back, within limits; what cannot be is refused and named."""

from __future__ import annotations

import math
import random
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.queued import only_item, queued, sighting, spoil

from graphopt.errors import StoreError
from graphopt.store import Store, queue, queue_items
from graphopt.store.queue import add_calls, clear, find, forget, items, load, put_sighting
from graphopt.store.queue_items import InputRange, State, decode_inputs, encode_inputs, pack, unpack

X = InputRange((2, 3), "float32", -1.0, 4.0)


def test_what_a_process_saw_comes_back(store):
    (item_id,) = queued(store, "jit_step", inputs=(X, InputRange((), "int32")), values=b"values")
    item = only_item(store)
    assert item.id == item_id and item.state is State.WAITING and item.processes == 1
    assert (item.program, item.calls, item.compile_s) == ("jit_step", 3.0, 0.5)
    assert item.inputs == (X, InputRange((), "int32")) and item.has_values
    assert load(store, item_id) == (sighting().module, b"values")
    assert find(store, item_id) == item


def test_the_same_module_of_a_later_process_adds_up(store):
    (item_id,) = queued(store, "jit_step", inputs=(X,))
    queued(store, "jit_step", inputs=(InputRange((2, 3), "float32", -2.0, 1.0),), compile_s=0.7)
    assert add_calls(store, item_id, 10.0)
    item = only_item(store)
    assert (item.processes, item.calls, item.compile_s) == (2, 16.0, 0.7)
    assert item.inputs == (InputRange((2, 3), "float32", -2.0, 4.0),)


def test_what_is_not_in_the_queue_gets_no_calls(store):
    assert not add_calls(store, sighting("jit_other").id, 10.0)
    assert items(store).items == ()


def test_tuned_modules_do_not_enter_but_go_on_being_counted(store):
    assert not put_sighting(store, sighting(tuned=True))
    assert items(store).items == ()
    queued(store, "jit_step")
    assert put_sighting(store, sighting(tuned=True, calls=5.0))
    assert only_item(store).calls == 8.0


def test_large_modules_are_not_recorded(store, monkeypatch):
    monkeypatch.setattr(queue, "MAX_MODULE_BYTES", 100)
    assert not put_sighting(store, sighting("jit_a_rather_long_name"))
    assert items(store).items == ()


def test_large_values_are_left_out(store, monkeypatch):
    monkeypatch.setattr(queue, "MAX_RECORDED_BYTES", 100)
    queued(store, "jit_step", values=b"x" * 101)
    assert not only_item(store).has_values


@pytest.mark.parametrize(("limit", "value"), [("MAX_ITEMS", 3), ("MAX_BYTES", 600)])
def test_beyond_the_limits_the_oldest_are_forgotten(store, monkeypatch, limit, value):
    monkeypatch.setattr(queue, limit, value)
    names = [f"jit_{n}" for n in range(6)]
    noise = random.Random(0).randbytes(150)
    for name in names:
        queued(store, name, values=noise)
    left = {item.program for item in items(store).items}
    assert "jit_5" in left and "jit_0" not in left and len(left) <= 3


def test_what_nobody_compiles_any_more_is_forgotten(store):
    queued(store, "jit_old")
    spoil(store, last_seen=time.time() - queue_items.KEPT_S - 10.0)
    queued(store, "jit_new")
    assert only_item(store).program == "jit_new"


def test_items_are_forgotten_by_id_and_all_at_once(store):
    one, two, _ = queued(store, "jit_a", "jit_b", "jit_c")
    assert forget(store, [one, two, "0" * 16]) == 2
    assert only_item(store).program == "jit_c"
    assert clear(store) == 1 and items(store).items == ()


def test_a_store_that_is_not_there_has_an_empty_queue(tmp_path):
    absent = Store(tmp_path / "absent.sqlite")
    assert items(absent).items == () and find(absent, "0" * 16) is None
    assert forget(absent, ["0" * 16]) == clear(absent) == 0
    assert not absent.exists()


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"inputs": "[[[2], \"float32\", 1.0, 0.0]]"}, "an input between"),
        ({"inputs": "[[[2], \"float32; DROP TABLE queue\", null, null]]"}, "an input of type"),
        ({"inputs": "[[[-1], \"float32\", null, null]]"}, "an input of shape"),
        ({"inputs": "[" * 100_000}, "inputs that cannot be read"),
        ({"inputs": "{}"}, "inputs that cannot be read"),
        ({"state": "eaten"}, "a state that is none"),
        ({"calls": -1.0}, "calls is -1"),
        ({"gain": -0.5}, "gain is -0.5"),
        ({"id": "'; DROP TABLE queue; --"}, "an id that is none"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_are_refused_and_named(store, columns, named):
    queued(store, "jit_step")
    spoil(store, **columns)
    listing = items(store)
    assert listing.items == ()
    (why,) = listing.refused.values()
    assert named in why
    assert forget(store, list(listing.refused)) == 1


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (b"no zlib", "cannot be unpacked"),
        (pack(b"another module"), "not the one of its id"),
        (zlib.compress(bytes(64 << 20), 9), "more than"),
        (pack(sighting().module)[:-5], "cut off"),
    ],
)
def test_modules_that_are_not_what_they_say_are_refused(store, module, named):
    (item_id,) = queued(store, "jit_step")
    spoil(store, module=module)
    with pytest.raises(StoreError, match=named):
        load(store, item_id)


def test_a_module_is_not_unpacked_beyond_its_limit():
    bomb = zlib.compress(bytes(1 << 20), 9)
    with pytest.raises(StoreError, match="more than 1000 bytes"):
        unpack("0" * 16, bomb, most=1000)


def test_rows_too_large_to_fetch_are_refused(store, monkeypatch):
    (item_id,) = queued(store, "jit_step", values=b"x" * 200)
    monkeypatch.setattr(queue, "MAX_RECORDED_BYTES", 100)
    with pytest.raises(StoreError, match="200 bytes for one item"):
        load(store, item_id)


ENDS = st.none() | st.tuples(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30)).map(sorted)


@given(st.lists(st.tuples(st.lists(st.integers(0, 1000), max_size=4), ENDS), max_size=5))
def test_inputs_survive_their_text(rows):
    inputs = tuple(InputRange(tuple(s), "float32", *(ends or (None, None))) for s, ends in rows)
    assert decode_inputs(encode_inputs(inputs)) == inputs


@given(ENDS, ENDS)
def test_widened_ranges_hold_both(one, other):
    a, b = (InputRange((2,), "float32", *(ends or (None, None))) for ends in (one, other))
    wide = a.widened(b)
    for low, high in (ends for ends in (one, other) if ends):
        assert wide.low <= low and high <= wide.high


@pytest.mark.parametrize("ends", [(1.0, None), (math.nan, 1.0), (0.0, math.inf), ("0", "1")])
def test_ranges_that_cannot_be_are_refused(ends):
    with pytest.raises(StoreError):
        InputRange((2,), "float32", *ends)
