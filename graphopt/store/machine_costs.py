"""What was measured of kinds of machines, and its use on this one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from graphopt.errors import StoreError
from graphopt.machine import MachineKind, own_kind
from graphopt.machine.cost_rows import hand_over, handed_over, here_is_known
from graphopt.store.database import Store


@dataclass(frozen=True)
class StoredCosts:
    """What a calibration has found.

    Attributes:
        facts: name of a fact -> value, for facts that differ from the table's.
        measured: how many facts were measured; 0 where the calibration failed.
        seen: Unix time.
    """

    facts: Mapping[str, float]
    measured: int
    seen: float

    @property
    def date(self) -> str:
        """The day of the measurement, such as 2026-05-01."""
        return time.strftime("%Y-%m-%d", time.localtime(self.seen))


def put_costs(store: Store, kind: MachineKind, facts: Mapping[str, float], measured: int) -> None:
    """Stores what was measured of a kind of machine; replaces what was known of it.

    Args:
        store: where.
        kind: of the machine.
        facts: name of a fact -> value, for those that differ from the table's.
        measured: how many were measured.
    """
    # They are read before every first compile: they stay on the machine.
    store = store.local
    values = {"facts": json.dumps(dict(facts), sort_keys=True), "measured": measured}
    store.write(("put_costs", {**asdict(kind), **values, "seen": time.time()}))


def get_costs(store: Store, kind: MachineKind) -> StoredCosts | None:
    """What was measured of a kind of machine; None where nobody has. A missing file is not made.

    Raises:
        StoreError: the store cannot be read, or the row is damaged.
    """
    store = store.local
    if not store.exists():
        return None
    rows = store.rows("costs", asdict(kind))
    return _stored(store, *rows[0]) if rows else None


def _stored(store: Store, text: object, measured: object, seen: object) -> StoredCosts:
    try:
        facts = json.loads(str(text))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or (type(measured), type(seen)) != (int, float):
        raise StoreError(
            what="measured costs of this machine are damaged",
            where=store.shown,
            fix="Measure them again: graphopt doctor --calibrate.",
        )
    return StoredCosts(facts, measured, seen)  # type: ignore[arg-type]


def use_stored_costs(store: Store | None) -> StoredCosts | None:
    """Makes decisions in this process rest on what the store says of this machine.

    On known kinds, whose row goes before any measurement, nothing is read. Where the store says nothing,
    or is damaged, decisions rest on the default again.

    Args:
        store: None for none.

    Returns:
        what is in use from now on; None for the row of a known kind, or the default.

    Raises:
        StoreError: the store cannot be read.
        ConfigError: what it says are no costs.
    """
    if here_is_known():
        return None
    if handed_over():
        hand_over({})
    found = None if store is None else get_costs(store, own_kind())
    if found is not None:
        hand_over(found.facts)
    return found
