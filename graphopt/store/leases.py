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
from dataclasses import dataclass
from typing import Any, Final

from graphopt.store.database import Store
from graphopt.store.queue import items
from graphopt.store.queue_items import MAX_REASON, Item, State
from graphopt.store.winners import Winner, winner_row

LEASE_S: Final = 300.0
"""A worker that has not renewed its lease for so long is taken for dead."""

MAX_ATTEMPTS: Final = 3
"""An item whose workers died so often is given up."""

_HERE: Final = (
    "environment = (SELECT id FROM environments WHERE machine = :env_machine "
    "AND jaxlib = :env_jaxlib AND options = :env_options)"
)
"""SQL: in this environment."""


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
    """Whether an item was still free, and now is leased."""
    taken = _update(
        store,
        "state = 'running', owner = :owner, lease_until = :until, attempts = attempts + 1",
        "state = 'waiting' OR (state = 'running' AND lease_until <= :now)",
        item.id,
        {"owner": owner, "until": until, "now": now},
    )
    return taken == 1


def _give_up(store: Store, item: Item, now: float) -> None:
    _update(
        store,
        "state = 'failed', owner = '', reason = :reason",
        "attempts >= :most AND lease_until <= :now",
        item.id,
        {
            "reason": f"given up: its worker died {item.attempts} times, last {item.owner}"[
                :MAX_REASON
            ],
            "most": MAX_ATTEMPTS,
            "now": now,
        },
    )


def refuse_damaged(store: Store) -> dict[str, str]:
    """Lets rows that cannot be used fail; returns why, by id."""
    refused = items(store).refused
    for item_id, why in refused.items():
        _update(
            store,
            "state = 'failed', owner = '', lease_until = 0, reason = :reason",
            "state IN ('waiting', 'running')",
            item_id,
            {"reason": why[:MAX_REASON]},
        )
    return refused


def renew(store: Store, lease: Lease, lease_s: float = LEASE_S) -> bool:
    """Holds an item for longer; False where the lease was lost."""
    until = time.time() + lease_s
    return _held(store, lease, "lease_until = :until", {"until": until})


def release(store: Store, lease: Lease) -> bool:
    """Gives an item back untuned: it waits again, and the attempt does not count."""
    changes = "state = 'waiting', owner = '', lease_until = 0, attempts = attempts - 1"
    return _held(store, lease, changes, {})


def note_estimate(store: Store, item_id: str, call_s: float, gain: float) -> None:
    """Notes what a call of an item takes and what tuning may save of it, by estimate."""
    values = {"call_s": call_s, "gain": gain}
    _update(store, "call_s = :call_s, gain = :gain", "state = 'waiting'", item_id, values)


def refuse(store: Store, item_id: str, reason: str) -> None:
    """An item that waits fails, for a reason that nobody has to lease it for."""
    values = {"reason": reason[:MAX_REASON]}
    _update(store, "state = 'failed', reason = :reason", "state = 'waiting'", item_id, values)


def finish(store: Store, lease: Lease, result: Result) -> bool:
    """Writes a result, its winner in the same transaction; False, and nothing, where the lease was lost.

    Raises:
        StoreError: the store cannot be written.
    """
    winner = result.winner
    gained = winner if winner is not None and winner.changes else None
    changes = (
        "state = :new_state, owner = '', lease_until = 0, reason = :reason, spent_s = spent_s + :spent_s, "
        "call_s = coalesce(:call_s, call_s), gain = :gain, speedup = :speedup, low = :low, high = :high"
    )
    values = {
        "new_state": str(result.state),
        "reason": result.reason[:MAX_REASON],
        "spent_s": result.spent_s,
        "call_s": result.call_s,
        "gain": 1.0 - 1.0 / max(1.0, gained.speedup) if gained else 0.0,
        "speedup": gained.speedup if gained else (None if winner is None else 1.0),
        "low": gained.low if gained else None,
        "high": gained.high if gained else None,
    }
    return _held(store, lease, changes, values, winner)


def _held(
    store: Store, lease: Lease, changes: str, values: dict[str, Any], winner: Winner | None = None
) -> bool:
    """Whether the item is still leased, and now changed."""
    held = "state = 'running' AND owner = :holder"
    changed = _update(
        store, changes, held, lease.item.id, {**values, "holder": lease.owner}, winner
    )
    return changed == 1


def _update(
    store: Store,
    changes: str,
    where: str,
    item_id: str,
    values: dict[str, Any],
    winner: Winner | None = None,
) -> int:
    """Changes an item of this environment, and stores a winner in the same transaction.

    Args:
        store: with the queue.
        changes: SQL of what to set.
        where: SQL of what must hold.
        item_id: of the item.
        values: of parameters in both.
        winner: to be stored if it holds; None for none.

    Returns:
        1, or 0 where there is no such item of which `where` holds.
    """
    import sqlalchemy as sa

    from graphopt.store.schema.statements import statements

    with store.transaction() as connection:
        count: int = connection.execute(
            sa.text(f"UPDATE queue SET {changes} WHERE ({where}) AND id = :id AND {_HERE}"),
            {**values, **store.here, "id": item_id},
        ).rowcount
        if count and winner is not None:
            named = statements(connection.dialect.name)
            connection.execute(named["put_winner"], {**store.here, **winner_row(store, winner)})
            connection.execute(named["winners_changed"], store.here)
    return count
