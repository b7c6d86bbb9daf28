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
from graphopt.store.screening import fetched, screened

COLUMNS: Final = (
    "id", "program", "module_bytes", "inputs", "compile_s", "processes", "calls", "first_seen",
    "last_seen", "state", "reason", "owner", "lease_until", "attempts", "call_s", "gain", "speedup", "low",
    "high", "spent_s", "has_values",
)  # fmt: skip
"""What the statements ``queue_items`` and ``queue_item`` return, in their order."""


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
    now = time.time()
    row = {
        **dict.fromkeys(("call_s", "gain", "speedup", "low", "high")),
        **dict.fromkeys(("reason", "owner"), ""),
        **dict.fromkeys(("lease_until", "attempts", "spent_s"), 0),
        "id": seen.id,
        "program": seen.program,
        "module": pack(seen.module),
        "module_bytes": len(seen.module),
        "inputs": encode_inputs(seen.inputs),
        "recorded": _bounded(seen.values),
        "compile_s": seen.compile_s,
        "processes": 1,
        "calls": seen.calls,
        "first_seen": now,
        "last_seen": now,
        "state": str(State.WAITING),
    }
    store.write(("add_item", row))
    _trim(store, now)
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
    known = _known_inputs(store, item_id)
    if known is None:
        return False
    changes = {
        "item": item_id,
        "new_calls": calls,
        "new_processes": int(compile_s is not None),
        "new_compile_s": compile_s,
        "new_last_seen": time.time(),
        "new_inputs": encode_inputs(_merged(known, inputs)),
        "new_recorded": _bounded(values),
    }
    store.write(("add_calls", changes))
    return True


def _bounded(values: bytes | None) -> bytes | None:
    return None if values is None or len(values) > MAX_RECORDED_BYTES else values


def _known_inputs(store: Store, item_id: str) -> tuple[InputRange, ...] | None:
    """What the queue says of a module's inputs; None where the module is not in it."""
    rows = store.rows("queue_inputs", {"id": item_id})
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


def _trim(store: Store, now: float) -> None:
    """Forgets what nobody compiled for long, and the oldest beyond the limits; not what is being tuned."""
    total, dropped = 0, []
    for number, (item_id, size, last_seen) in enumerate(screened(store, "queue_ages")):
        total += size
        if number >= MAX_ITEMS or total > MAX_BYTES or now - last_seen > KEPT_S:
            dropped.append(item_id)
    if dropped:
        store.write(*(("forget_item", {"id": item_id}) for item_id in dropped))


def items(store: Store, states: Collection[State] = tuple(State)) -> Listing:
    """Items of this environment; rows that cannot be used are named, not raised.

    Raises:
        StoreError: the store cannot be read.
    """
    if not store.exists():
        return Listing((), {})
    rows = fetched(store, "queue_items")
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
    rows = store.rows("queue_item", {"id": item_id})
    return item_of(rows[0]) if rows else None


def load(store: Store, item_id: str) -> tuple[bytes, bytes | None]:
    """The module of an item, and recorded values of its inputs, compressed, where there are any.

    Raises:
        StoreError: there is no such item, it is damaged, or the store cannot be read.
    """
    check_id(item_id)
    sizes = store.rows("queue_sizes", {"id": item_id})
    if not sizes:
        raise damaged(f"no item {item_id}")
    module_bytes, value_bytes = sizes[0]
    if module_bytes > MAX_MODULE_BYTES or value_bytes > MAX_RECORDED_BYTES:
        raise damaged(f"{module_bytes:,} and {value_bytes:,} bytes for one item")
    # The row may have changed since: what is too long now is not fetched either.
    most = {"most_module": MAX_MODULE_BYTES, "most_recorded": MAX_RECORDED_BYTES}
    rows = store.rows("queue_bytes", {"id": item_id, **most})
    if not rows:
        raise damaged(f"no item {item_id}")
    packed, values = rows[0]
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
    if not store.exists():
        return 0
    known = {item_id for (item_id,) in screened(store, "queue_ids")}
    wanted = known.intersection(ids)
    if wanted:
        store.write(*(("forget_item", {"id": item_id}) for item_id in sorted(wanted)))
    return len(wanted)


def clear(store: Store) -> int:
    """Removes all items of all environments; returns how many there were."""
    if not store.exists():
        return 0
    count = int(store.rows("queue_count")[0][0])
    store.write(("clear_queue", {}))
    return count


def item_of(row: Sequence[Any]) -> Item:
    """An item from its row.

    Raises:
        StoreError: the row is damaged.
    """
    values = dict(zip(COLUMNS, row, strict=True))
    values["inputs"] = decode_inputs(values["inputs"])
    values["has_values"] = bool(values["has_values"])
    try:
        values["state"] = State(str(values["state"]))
    except ValueError as error:
        raise damaged(f"a state that is none: {str(values['state'])[:40]!r}") from error
    return Item(**values)
