"""Leases: one worker per item, dead workers' items come back, results are written once."""

from __future__ import annotations

import threading
import time

import pytest
from support.queued import only_item, queued, spoil

from graphopt.store import Store, Winner
from graphopt.store.leases import (
    MAX_ATTEMPTS,
    Result,
    claim,
    finish,
    new_owner,
    note_estimate,
    refuse,
    release,
    renew,
)
from graphopt.store.queue import items
from graphopt.store.queue_items import State
from graphopt.store.winners import get_winner

WINNER = Winner(
    "f" * 16, '{"nodes": 3}', "jit_a", 3, 2e-3, 1e-3, 2.0, 1.9, 2.1, 7, True, "tuned here", 1.0
)
DONE = Result(State.DONE, "twice as fast", 12.0, WINNER, 2e-3)


def test_the_largest_expected_saving_comes_first(store):
    small, large, unknown = queued(store, "jit_small", "jit_large", "jit_unknown")
    note_estimate(store, small, 1e-3, 0.2)
    note_estimate(store, large, 5e-3, 0.2)
    assert [claim(store, "me").item.id for _ in range(3)] == [large, small, unknown]
    assert claim(store, "me") is None


def test_one_item_goes_to_one_worker(store, place):
    queued(store, "jit_a", "jit_b")
    got = []

    def work():
        own = Store(place)
        while (lease := claim(own, new_owner())) is not None:
            got.append(lease.item.id)
        own.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(item.id for item in items(store).items)


def test_what_a_dead_worker_held_comes_back(store):
    queued(store, "jit_a")
    dead = claim(store, "dead", lease_s=0.0)
    alive = claim(store, "alive")
    assert alive.item.id == dead.item.id
    assert not renew(store, dead) and not release(store, dead) and not finish(store, dead, DONE)
    assert only_item(store).owner == "alive" and get_winner(store, WINNER.fingerprint) is None
    assert finish(store, alive, DONE)


def test_a_renewed_lease_lasts(store):
    queued(store, "jit_a")
    lease = claim(store, "me", lease_s=0.0)
    assert renew(store, lease, 60.0)
    assert claim(store, "other") is None
    assert only_item(store).lease_until > time.time() + 30.0


def test_results_are_written_once_and_with_their_winner(store):
    queued(store, "jit_a")
    lease = claim(store, "me")
    assert finish(store, lease, DONE)
    assert not finish(store, lease, Result(State.FAILED, "again"))
    item = only_item(store)
    assert (item.state, item.reason, item.speedup) == (State.DONE, "twice as fast", 2.0)
    assert item.gain == 0.5 and item.spent_s == 12.0 and item.owner == ""
    assert get_winner(store, WINNER.fingerprint) == WINNER
    assert item.saving_s == pytest.approx(3.0 * 2e-3 * 0.5)


def test_a_released_item_waits_again_and_the_attempt_does_not_count(store):
    queued(store, "jit_a")
    for _ in range(MAX_ATTEMPTS + 1):
        assert release(store, claim(store, "me"))
    assert only_item(store).attempts == 0


def test_an_item_that_kills_its_workers_is_given_up(store):
    queued(store, "jit_a")
    for _ in range(MAX_ATTEMPTS):
        assert claim(store, "dead", lease_s=0.0) is not None
    assert claim(store, "me") is None
    item = only_item(store)
    assert item.state is State.FAILED and "died 3 times, last dead" in item.reason


def test_one_item_can_be_asked_for(store):
    _, wanted = queued(store, "jit_a", "jit_b")
    assert claim(store, "me", item_id=wanted).item.id == wanted
    assert claim(store, "me", item_id=wanted) is None


def test_refused_items_are_not_leased(store):
    (item_id,) = queued(store, "jit_a")
    refuse(store, item_id, "several-devices: it runs on several devices together")
    assert claim(store, "me") is None
    assert only_item(store).state is State.FAILED


def test_damaged_rows_fail_with_a_reason_and_are_not_leased(store):
    queued(store, "jit_a")
    spoil(store, inputs="nonsense")
    assert claim(store, "me") is None
    spoil(store, inputs="[]")
    item = only_item(store)
    assert item.state is State.FAILED and "inputs that cannot be read" in item.reason


def test_calls_of_a_tuned_item_go_on_being_counted(store):
    queued(store, "jit_a", calls=10.0)
    assert finish(store, claim(store, "me"), DONE)
    queued(store, "jit_a", calls=90.0, tuned=True)
    item = only_item(store)
    assert item.state is State.DONE and item.calls_per_day == 100.0


def test_a_store_that_is_not_there_has_nothing_to_lease(tmp_path):
    assert claim(Store(tmp_path / "absent"), "me") is None
