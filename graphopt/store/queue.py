"""The queue of modules that programs compiled, to be tuned in the background: put, read, forget."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphopt.errors import StoreError
from graphopt.store.database import Store
from graphopt.store.queue_items import (
    KEPT_S,
    MAX_BYTES,
    MAX_INPUTS,
    MAX_ITEMS,
    MAX_MODULE_BYTES,
    MAX_RECORDED_BYTES,
    InputRange,
    Item,
    Sighting,
    State,
    check_id,
    damaged,
    decode_inputs,
    encode_inputs,
    pack,
    unpack,
)

_COLUMNS: Final = (
    "id, program, module_bytes, inputs, recorded IS NOT NULL, compile_s, processes, calls, first_seen, "
    "last_seen, state, reason, owner, lease_until, attempts, call_s, gain, speedup, low, high, spent_s"
)
"""As `Item` has them."""


@dataclass(frozen=True)
class Listing:
    """Items of the queue.

    Attributes:
        items: largest expected saving first.
        refused: id, as text, of every row that cannot be used -> why.
    """

    items: tuple[Item, ...]
    refused: dict[str, str]


def put_sighting(store: Store, seen: Sighting) -> bool:
    """Adds what a process saw of a module; a module that was seen before keeps its state.

    Returns:
        Whether the module stands in the queue: not where it is too large, or was tuned already.

    Raises:
        StoreError: the store cannot be written.
    """
    if len(seen.module) > MAX_MODULE_BYTES or len(seen.inputs) > MAX_INPUTS:
        return False
    if add_calls(store, seen.id, seen.calls, seen.inputs, seen.values, seen.compile_s):
        return True
    if seen.tuned:
        return False
    environment, now = store.environment_id(), time.time()
    row = (
        seen.id, environment, seen.program, pack(seen.module), len(seen.module),
        encode_inputs(seen.inputs), _bounded(seen.values), seen.compile_s, seen.calls, now, now,
    )  # fmt: skip
    with store.transaction() as connection:
        connection.execute(
            "INSERT INTO queue (id, environment, program, module, module_bytes, inputs, recorded, "
            "compile_s, calls, first_seen, last_seen, processes, state, reason, owner, lease_until, "
            "attempts, spent_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 'waiting', '', '', 0, 0, 0) "
            "ON CONFLICT (id, environment) DO NOTHING",
            row,
        )
    _trim(store, environment, now)
    return True


def add_calls(
    store: Store,
    item_id: str,
    calls: float,
    inputs: Sequence[InputRange] = (),
    values: bytes | None = None,
    compile_s: float | None = None,
) -> bool:
    """Adds calls to an item, and what was seen of its inputs meanwhile.

    Args:
        store: with the queue.
        item_id: of the item.
        calls: since the last time.
        inputs: ranges that were seen; those that are known are widened.
        values: of the inputs, in place of those that are there; None keeps those.
        compile_s: seconds of a compile by another process than before; None for none.

    Returns:
        Whether there is such an item.

    Raises:
        StoreError: the store cannot be written.
    """
    environment = store.environment_id()
    known = _known_inputs(store, item_id, environment)
    if known is None:
        return False
    compiled = compile_s is not None
    with store.transaction() as connection:
        connection.execute(
            "UPDATE queue SET calls = calls + ?, processes = processes + ?, "
            "compile_s = coalesce(?, compile_s), last_seen = ?, inputs = ?, "
            "recorded = coalesce(?, recorded) WHERE id = ? AND environment = ?",
            (
                calls,
                int(compiled),
                compile_s,
                time.time(),
                encode_inputs(_merged(known, inputs)),
                _bounded(values),
                item_id,
                environment,
            ),
        )
    return True


def _bounded(values: bytes | None) -> bytes | None:
    return None if values is None or len(values) > MAX_RECORDED_BYTES else values


def _known_inputs(store: Store, item_id: str, environment: int) -> tuple[InputRange, ...] | None:
    """What the queue says of a module's inputs; None where the module is not in it."""
    rows = store.rows(
        "SELECT inputs FROM queue WHERE id = ? AND environment = ?", (item_id, environment)
    )
    if not rows:
        return None
    try:
        return decode_inputs(rows[0][0])
    except StoreError:
        return ()


def _merged(known: Sequence[InputRange], seen: Sequence[InputRange]) -> Sequence[InputRange]:
    if len(known) != len(seen):
        return seen or known
    return [old.widened(new) for old, new in zip(known, seen, strict=True)]


def _trim(store: Store, environment: int, now: float) -> None:
    """Forgets what nobody compiled for long, and the oldest beyond the limits; not what is being tuned."""
    rows = store.rows(
        "SELECT id, length(module) + coalesce(length(recorded), 0), last_seen FROM queue "
        "WHERE environment = ? AND state != 'running' ORDER BY last_seen DESC, id",
        (environment,),
    )
    total, dropped = 0, []
    for number, (item_id, size, last_seen) in enumerate(rows):
        total += size
        if number >= MAX_ITEMS or total > MAX_BYTES or now - last_seen > KEPT_S:
            dropped.append(item_id)
    if dropped:
        _forget(store, environment, dropped)


def items(store: Store, states: Collection[State] = tuple(State)) -> Listing:
    """Items of this environment; rows that cannot be used are named, not raised.

    Raises:
        StoreError: the store cannot be read.
    """
    if not store.exists():
        return Listing((), {})
    rows = store.rows(
        f"SELECT {_COLUMNS} FROM queue WHERE environment = ?", (store.environment_id(),)
    )
    found: list[Item] = []
    refused: dict[str, str] = {}
    for row in rows:
        try:
            found.append(item_of(row))
        except StoreError as error:
            refused[str(row[0])[:40]] = error.what
    wanted = [item for item in found if item.state in states]
    return Listing(
        tuple(sorted(wanted, key=lambda item: (-item.saving_s, -item.calls, item.id))), refused
    )


def find(store: Store, item_id: str) -> Item | None:
    """One item of this environment; None if there is none of this id.

    Raises:
        StoreError: the id is none, the row is damaged, or the store cannot be read.
    """
    check_id(item_id)
    if not store.exists():
        return None
    rows = store.rows(
        f"SELECT {_COLUMNS} FROM queue WHERE id = ? AND environment = ?",
        (item_id, store.environment_id()),
    )
    return item_of(rows[0]) if rows else None


def load(store: Store, item_id: str) -> tuple[bytes, bytes | None]:
    """The module of an item, and recorded values of its inputs, compressed, where there are any.

    Raises:
        StoreError: there is no such item, it is damaged, or the store cannot be read.
    """
    check_id(item_id)
    rows = store.rows(
        "SELECT length(module), length(recorded) FROM queue WHERE id = ? AND environment = ?",
        (item_id, store.environment_id()),
    )
    if not rows:
        raise damaged(f"no item {item_id}")
    if rows[0][0] > MAX_MODULE_BYTES or (rows[0][1] or 0) > MAX_RECORDED_BYTES:
        raise damaged(f"{rows[0][0]:,} and {rows[0][1] or 0:,} bytes for one item")
    ((packed, values),) = store.rows(
        "SELECT module, recorded FROM queue WHERE id = ? AND environment = ?",
        (item_id, store.environment_id()),
    )
    if values is not None and not isinstance(values, bytes | memoryview):
        raise damaged("values that are no bytes")
    return unpack(item_id, packed), None if values is None else bytes(values)


def forget(store: Store, ids: Sequence[str]) -> int:
    """Removes items of this environment, with all that is known of them; their winners stay.

    Args:
        store: with the queue.
        ids: of the items, also of damaged rows.

    Returns:
        How many there were.
    """
    return _forget(store, store.environment_id(), ids) if store.exists() else 0


def clear(store: Store) -> int:
    """Removes all items of all environments; returns how many there were."""
    if not store.exists():
        return 0
    with store.transaction() as connection:
        return int(connection.execute("DELETE FROM queue").rowcount)


def _forget(store: Store, environment: int, ids: Sequence[str]) -> int:
    removed = 0
    with store.transaction() as connection:
        for item_id in ids:
            removed += connection.execute(
                "DELETE FROM queue WHERE id = ? AND environment = ?", (item_id, environment)
            ).rowcount
    return removed


def item_of(row: Sequence[Any]) -> Item:
    """An item from its row.

    Raises:
        StoreError: the row is damaged.
    """
    values = list(row)
    values[3] = decode_inputs(values[3])
    values[4] = bool(values[4])
    try:
        values[10] = State(values[10])
    except ValueError as error:
        raise damaged(f"a state that is none: {str(values[10])[:40]!r}") from error
    return Item(*values)
