"""Working off the queue: what is refused by name, what is given back, what is written."""

from __future__ import annotations

import numpy as np
import pytest
from support.captures import capture
from support.queued import chain_sighting, only_item, queued, spoil
from support.small_programs import STATE, chain, rollout

from graphopt.executing.executor import LocalExecutor
from graphopt.hlo.module.proto import HloModuleProto
from graphopt.learn.background import Load, work, work_elsewhere
from graphopt.learn.background.elsewhere import tune_one
from graphopt.learn.background.estimates import estimate, estimate_waiting
from graphopt.learn.background.refusals import REFUSALS, graph_of
from graphopt.learn.background.tuning import inputs_of
from graphopt.learn.background.worker import tune_leased
from graphopt.store import Store
from graphopt.store.leases import claim, release
from graphopt.store.queue import find, items, put_sighting
from graphopt.store.queue_items import InputRange, Sighting, State
from graphopt.store.winners import all_winners

IDLE = float("inf")


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    yield store
    store.close()


@pytest.fixture
def waiting(store):
    """A store with one module that waits, and its item."""
    assert put_sighting(store, chain_sighting())
    return store


class Busy(Load):
    """A machine that others need from a certain question on."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.left = after

    def others(self) -> float:
        """Many cores once the questions are used up."""
        self.left -= 1
        return 0.0 if self.left >= 0 else 64.0


def on_devices(data: bytes, count: int) -> bytes:
    proto = HloModuleProto.FromString(data)
    proto.device_assignment.replica_count = count
    proto.device_assignment.computation_count = 1
    return proto.SerializeToString()


def test_modules_of_several_devices_are_refused_by_name(store):
    data = on_devices(capture(chain, STATE).data, 2)
    assert put_sighting(store, Sighting("jit_two", data))
    summary = work(store, load=Load(IDLE))
    assert str(summary) == "nothing; nothing waits"
    item = only_item(store)
    assert item.state is State.FAILED and item.reason.startswith("several-devices: ")


def test_bytes_that_are_no_module_are_refused_by_name(store):
    queued(store, "jit_nonsense")
    estimate_waiting(store)
    item = only_item(store)
    assert item.state is State.FAILED and item.reason.startswith("unreadable: ")


def test_modules_with_nothing_to_decide_are_refused_by_name(store):
    found = graph_of(capture(lambda x: x.T, np.ones((3, 4), np.float32)).data, store)
    assert isinstance(found, str) and found.startswith("small: ")


def test_damaged_items_are_refused_and_the_others_go_on(waiting):
    spoil(waiting, module=b"damaged")
    queued(waiting, "jit_nonsense")
    assert not work(waiting, load=Load(IDLE)).counts
    reasons = sorted(item.reason for item in items(waiting).items)
    assert reasons[0].startswith("damaged: ") and reasons[1].startswith("unreadable: ")


def test_reasons_have_names_and_words():
    assert len({refusal.name for refusal in REFUSALS}) == len(REFUSALS)
    assert all(refusal.message for refusal in REFUSALS)


def test_estimates_prefer_what_the_library_does_not_compute(waiting):
    estimate_waiting(waiting)
    item = only_item(waiting)
    assert 0.0 < item.call_s < 1.0 and 0.0 < item.gain < 1.0 and item.saving_s > 0.0
    weights = np.ones((512, 512), np.float32)
    product = capture(lambda x: (x @ x) @ x, weights).graph
    assert estimate(product)[1] < item.gain


def test_a_busy_machine_is_left_alone(waiting):
    summary = work(waiting, limit_s=0.1, load=Busy())
    assert summary.left == "the machine is busy" and not summary.counts
    assert only_item(waiting).state is State.WAITING


def test_when_the_load_rises_the_item_is_given_back(waiting):
    said = []
    lease = claim(waiting, "me")
    assert tune_leased(waiting, lease, 5.0, Busy(), said.append) is None
    assert said[-1].message == "given back: others need the machine"
    item = only_item(waiting)
    assert item.state is State.WAITING and item.attempts == 0


def test_an_interrupt_gives_the_item_back(waiting):
    def interrupted(told):
        if told.stage == "tune":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(waiting, budget_s=5.0, load=Load(IDLE), listener=interrupted)
    assert only_item(waiting).state is State.WAITING


def test_who_lost_the_lease_writes_nothing(waiting):
    said = []
    spoil(waiting, module=b"damaged")
    lease = claim(waiting, "slow", lease_s=0.0)
    assert claim(waiting, "other") is not None
    assert tune_leased(waiting, lease, 5.0, Load(IDLE), said.append) is None
    assert "nothing is written" in said[-1].message
    assert only_item(waiting).owner == "other" and not all_winners(waiting)


def test_an_item_that_fails_says_why(waiting):
    spoil(waiting, recorded=b"no inputs")
    estimate_waiting(waiting)
    lease = claim(waiting, "me")
    result = tune_leased(waiting, lease, 5.0, Load(IDLE), lambda _: None)
    assert result.state is State.FAILED
    assert find(waiting, lease.item.id).reason.startswith(
        "cannot-run-alone: recorded inputs cannot be unpacked"
    )


def test_inputs_lie_in_the_recorded_ranges(waiting):
    item = only_item(waiting)
    data = capture(chain, STATE).data
    one, other = (inputs_of(data, item, None, seed)[0] for seed in (0, 1))
    assert one.shape == STATE.shape and one.dtype == np.float32
    assert one.min() < -0.8 and one.max() > 0.8 and np.abs(one).max() <= 1.0
    assert not np.array_equal(one, other)


def test_ranges_of_another_module_are_not_used(store):
    wrong = (InputRange((3,), "float32", 100.0, 200.0),)
    data = capture(rollout, STATE).data
    assert put_sighting(store, Sighting("jit_rollout", data, wrong))
    (made,) = inputs_of(data, only_item(store), None, 0)
    assert made.shape == STATE.shape and made.max() < 2.0


def test_nothing_waits_in_a_store_that_is_not_there(tmp_path):
    absent = Store(tmp_path / "absent.sqlite")
    assert work(absent, load=Load(IDLE)).left == "nothing waits"


def test_machines_of_an_executor_lease_what_they_tune(waiting):
    queued(waiting, "jit_nonsense")
    spoil(waiting, recorded=b"no inputs")
    said = []
    with LocalExecutor() as executor:
        summary = work_elsewhere(waiting, executor, budget_s=5.0, listener=said.append)
    assert summary.counts == {"failed": 1}
    assert "recorded inputs cannot be unpacked" in said[0].message
    assert all(item.state is State.FAILED for item in items(waiting).items)


def test_an_item_that_another_machine_has_is_left_to_it(waiting):
    lease = claim(waiting, "other")
    body = {"store": str(waiting.path), "item": lease.item.id, "budget_s": 5.0}
    assert tune_one(body, ())[0]["state"] == ""
    assert only_item(waiting).owner == "other"


def test_a_limit_of_items_ends_the_work(waiting):
    assert work(waiting, most=0, load=Load(IDLE)).left == "that many items were wanted"
    lease = claim(waiting, "me")
    assert lease is not None and release(waiting, lease)
