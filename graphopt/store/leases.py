"""Leases on items of the queue: who tunes what, until when, and what came of it.

A worker leases an item for some minutes and renews the lease while it tunes. When a worker dies, its lease
runs out and the item waits again. Only who holds the lease can write a result, so that it is written once.
Machines that share a queue need clocks that agree to about a minute.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from graphopt.store.database import Store
from graphopt.store.queue import items
from graphopt.store.queue_items import MAX_REASON, Item, State
from graphopt.store.winners import Winner, write_winner

LEASE_S: Final = 300.0
"""A worker that has not renewed its lease for so long is taken for dead."""

MAX_ATTEMPTS: Final = 3
"""An item whose workers died so often is given up."""


@dataclass(frozen=True)
class Lease:
    """An item that a worker may tune.

    Attributes:
        item: as it was when it was leased.
        owner: the worker.
    """

    item: Item
    owner: str


@dataclass(frozen=True)
class Result:
    """What came of an item.

    Attributes:
        state: `State.DONE` or `State.FAILED`.
        reason: why it failed, or what was found, in one line.
        spent_s: seconds of tuning.
        winner: to be stored with it; None for none.
        call_s: seconds of a call by XLA's default; None where it was not measured.
    """

    state: State
    reason: str
    spent_s: float = 0.0
    winner: Winner | None = None
    call_s: float | None = None


def new_owner() -> str:
    """A name that no other worker has, and that says where it runs."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def claim(
    store: Store, owner: str, lease_s: float = LEASE_S, item_id: str | None = None
) -> Lease | None:
    """Leases the item with the largest expected saving; None where nothing waits.

    Items whose lease is over wait again, and are given up after `MAX_ATTEMPTS`. Rows that cannot be used
    fail, with the reason.

    Args:
        store: with the queue.
        owner: who asks: `new_owner()`.
        lease_s: seconds until the lease is over.
        item_id: the only item that is wanted; None for any.

    Raises:
        StoreError: the store cannot be read or written.
    """
    if not store.exists():
        return None
    refuse_damaged(store)
    now = time.time()
    for item in items(store, (State.WAITING, State.RUNNING)).items:
        if item_id not in (None, item.id):
            continue
        if item.state is State.RUNNING and item.lease_until > now:
            continue
        if item.attempts >= MAX_ATTEMPTS:
            _give_up(store, item, now)
        elif _take(store, item, owner, now, now + lease_s):
            return Lease(item, owner)
    return None


def _take(store: Store, item: Item, owner: str, now: float, until: float) -> bool:
    """Whether an item is still free, and now leased."""
    return (
        _update(
            store,
            "state = 'running', owner = ?, lease_until = ?, attempts = attempts + 1",
            (owner, until),
            "id = ? AND (state = 'waiting' OR (state = 'running' AND lease_until <= ?))",
            (item.id, now),
        )
        == 1
    )


def _give_up(store: Store, item: Item, now: float) -> None:
    _update(
        store,
        "state = 'failed', owner = '', reason = ?",
        (f"given up: its worker died {item.attempts} times, last {item.owner}"[:MAX_REASON],),
        "id = ? AND attempts >= ? AND lease_until <= ?",
        (item.id, MAX_ATTEMPTS, now),
    )


def refuse_damaged(store: Store) -> dict[str, str]:
    """Lets rows that cannot be used fail; returns why, by id."""
    refused = items(store).refused
    for item_id, why in refused.items():
        _update(
            store,
            "state = 'failed', owner = '', lease_until = 0, reason = ?",
            (why[:MAX_REASON],),
            "id = ? AND state IN ('waiting', 'running')",
            (item_id,),
        )
    return refused


def renew(store: Store, lease: Lease, lease_s: float = LEASE_S) -> bool:
    """Holds an item for longer; False where the lease was lost."""
    until = time.time() + lease_s
    return _update(store, "lease_until = ?", (until,), *_held(lease)) == 1


def release(store: Store, lease: Lease) -> bool:
    """Gives an item back untuned: it waits again, and the attempt does not count."""
    changes = "state = 'waiting', owner = '', lease_until = 0, attempts = attempts - 1"
    return _update(store, changes, (), *_held(lease)) == 1


def note_estimate(store: Store, item_id: str, call_s: float, gain: float) -> None:
    """Notes what a call of an item takes and what tuning may save of it, by estimate."""
    _update(
        store, "call_s = ?, gain = ?", (call_s, gain), "id = ? AND state = 'waiting'", (item_id,)
    )


def refuse(store: Store, item_id: str, reason: str) -> None:
    """An item that waits fails, for a reason that nobody has to lease it for."""
    _update(
        store,
        "state = 'failed', reason = ?",
        (reason[:MAX_REASON],),
        "id = ? AND state = 'waiting'",
        (item_id,),
    )


def finish(store: Store, lease: Lease, result: Result) -> bool:
    """Writes a result, its winner in the same transaction; False, and nothing, where the lease was lost.

    Raises:
        StoreError: the store cannot be written.
    """
    winner = result.winner
    gained = winner is not None and winner.changes
    changes = (
        "state = ?, owner = '', lease_until = 0, reason = ?, spent_s = spent_s + ?, "
        "call_s = coalesce(?, call_s), gain = ?, speedup = ?, low = ?, high = ?"
    )
    times = (
        (1.0 - 1.0 / winner.speedup, winner.speedup, winner.low, winner.high)
        if winner is not None and gained
        else (0.0, None if winner is None else 1.0, None, None)
    )
    values = (str(result.state), result.reason[:MAX_REASON], result.spent_s, result.call_s, *times)

    def also(connection: Any) -> None:
        if winner is not None:
            write_winner(connection, winner, store.environment_id())

    return _update(store, changes, values, *_held(lease), also=also) == 1


def _held(lease: Lease) -> tuple[str, tuple[Any, ...]]:
    return "id = ? AND state = 'running' AND owner = ?", (lease.item.id, lease.owner)


def _update(
    store: Store,
    changes: str,
    values: tuple[Any, ...],
    where: str,
    wanted: tuple[Any, ...],
    also: Callable[[Any], None] | None = None,
) -> int:
    """Changes rows of this environment; `also` is done in the same transaction, where there are any."""
    environment = store.environment_id()
    with store.transaction() as connection:
        count = connection.execute(
            f"UPDATE queue SET {changes} WHERE environment = ? AND {where}",
            (*values, environment, *wanted),
        ).rowcount
        if count and also is not None:
            also(connection)
    return int(count)
