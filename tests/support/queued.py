"""Modules in a queue, and rows that no program of ours wrote."""

from __future__ import annotations

from typing import Any

from graphopt.hlo.module.labels import take_labels
from graphopt.store import Store
from graphopt.store.queue import items, put_sighting
from graphopt.store.queue_items import InputRange, Item, Sighting
from support.captures import capture
from support.small_programs import STATE, chain


def sighting(name: str = "jit_step", **more: Any) -> Sighting:
    """Something that stands for a module: its bytes are the name's."""
    return Sighting(name, name.encode() * 40, **{"compile_s": 0.5, "calls": 3.0, **more})


def queued(store: Store, *names: str, **more: Any) -> list[str]:
    """Ids of such items, now in the queue."""
    seen = [sighting(name, **more) for name in names]
    assert all(put_sighting(store, one) for one in seen)
    return [one.id for one in seen]


def chain_sighting(calls: float = 1000.0) -> Sighting:
    """A real module, in which native code gains a lot."""
    data = take_labels(capture(chain, STATE).data)[0]
    inputs = (InputRange(STATE.shape, "float32", -1.0, 1.0),)
    return Sighting("jit_chain", data, inputs, compile_s=0.2, calls=calls)


def only_item(store: Store) -> Item:
    """The one item of a queue without damaged rows."""
    listing = items(store)
    assert not listing.refused
    (item,) = listing.items
    return item


def spoil(store: Store, **columns: Any) -> None:
    """Writes something into every row of the queue."""
    import sqlalchemy as sa

    changes = ", ".join(f"{name} = :{name}" for name in columns)
    with store.transaction() as connection:
        connection.execute(sa.text(f"UPDATE queue SET {changes}"), columns)
