"""Modules recorded from libraries' tests are taken without a choice, and timed with their own inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.conformance.recorded import SAME_NAME, chosen, line, timed
from graphopt.learn.tune.subject import make_subject
from graphopt.plugin.input_ranges import packed_values
from graphopt.policy.registry import resolve
from graphopt.store import Store
from graphopt.store.queue import put_sighting
from graphopt.store.queue_items import Sighting


def turns(x):
    return jax.lax.fori_loop(0, 200, lambda _, y: 0.1 * jnp.sin(y @ y) + 0.5 * jnp.roll(y, 1, 0), x)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Loops of seven sizes, and one that never ran."""
    store = Store(tmp_path_factory.mktemp("recorded") / "library.sqlite")
    for size in range(16, 24):
        x = np.eye(size, dtype=np.float32)
        ((data, _),) = make_subject(turns, (x,), name="turns").modules
        values = packed_values([x]) if size < 23 else None
        put_sighting(store, Sighting("turns", data, (), values, 0.1, 1.0, False))
    return store


def test_some_of_one_name_are_taken_and_none_that_did_not_run(store):
    found = list(chosen(store, 40))
    assert len(found) == SAME_NAME
    assert all(item.has_values for item in found)
    assert [item.id for item in found] == sorted(item.id for item in found)
    assert len(list(chosen(store, 2))) == 2


def test_what_the_policy_changes_is_timed_and_the_rest_is_counted(store):
    item = next(chosen(store, 1))
    changed = timed("library", store, item, resolve("heuristic"), 0.05)
    assert changed["status"] == "ok"
    assert changed["low"] <= changed["ratio"] <= changed["high"]
    left = timed("library", store, item, resolve(lambda graph: None), 0.05)
    assert left["status"] == "default"
    alike = timed("library", store, item, resolve("heuristic"), 0.05, resolve("heuristic"))
    assert alike["status"] == "default"
    assert line("library", [changed, left]).startswith("| library | 2 | 1 | 1 | ")


def test_two_policies_are_measured_in_turn(store):
    item = next(chosen(store, 1))
    never = resolve(lambda graph: None)
    slower = timed("library", store, item, never, 0.05, resolve("heuristic"))
    faster = timed("library", store, item, resolve("heuristic"), 0.05, never)
    assert slower["status"] == faster["status"] == "ok"
    assert slower["rival_us"] > 0.0
    assert slower["compile"] > 0.0


def test_slower_and_different_modules_are_counted():
    rows = [
        {"status": "ok", "ratio": 4.0, "high": 4.1, "compile": 0.5},
        {"status": "ok", "ratio": 0.5, "high": 0.6, "compile": 1.0},
        {"status": "ok", "ratio": 0.5, "high": 0.97, "compile": 2.0},
        {"status": "wrong result"},
        {"status": "cannot run"},
        {"status": "default"},
    ]
    assert line("x", rows) == "| x | 6 | 5 | 3 | 1.00x | 0.50x | 1 | 1.00x | 1 | 1 |"
