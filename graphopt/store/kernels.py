"""The kernel bank: time of every distinct cluster body and unit measured so far."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from graphopt.store.database import Store


@dataclass(frozen=True)
class Kernel:
    """One measured kernel.

    Attributes:
        key: digest of the canonical body and its unit.
        ns: median nanoseconds of one execution.
        samples: executions behind it.
        features: float [F]; see `graphopt.measure.bank.kernels`.
    """

    key: str
    ns: float
    samples: int
    features: tuple[float, ...]


_MERGE: Final = """
INSERT INTO kernels VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key, environment) DO UPDATE SET
  ns = CASE
    WHEN excluded.ns > 2 * ns THEN ns
    WHEN ns > 2 * excluded.ns THEN excluded.ns
    ELSE (ns * min(samples, 4 * excluded.samples) + excluded.ns * excluded.samples)
         / (min(samples, 4 * excluded.samples) + excluded.samples)
  END,
  samples = samples + excluded.samples, features = excluded.features, seen = excluded.seen
"""


def put_kernels(store: Store, kernels: Iterable[Kernel]) -> None:
    """Stores measurements in one transaction.

    A kernel measured before gets the mean of both, weighted by samples. A new time of more than twice the
    old one is a disturbance and ignored; an old one of more than twice the new one was a disturbance and
    forgotten.
    """
    environment = store.environment_id()
    now = time.time()
    rows = [
        (k.key, environment, k.ns, k.samples, json.dumps([round(f, 6) for f in k.features]), now)
        for k in kernels
    ]
    with store.transaction() as connection:
        connection.executemany(
            _MERGE,
            rows,
        )


def get_kernels(store: Store, keys: Sequence[str]) -> dict[str, float]:
    """Nanoseconds of those kernels that are known."""
    environment = store.environment_id()
    out: dict[str, float] = {}
    for start in range(0, len(keys), 500):
        chunk = keys[start : start + 500]
        marks = ",".join("?" for _ in chunk)
        rows = store.rows(
            f"SELECT key, ns FROM kernels WHERE environment=? AND key IN ({marks})",
            (environment, *chunk),
        )
        out.update((str(key), float(ns)) for key, ns in rows)
    return out


def all_kernels(store: Store) -> list[Kernel]:
    """All kernels of this environment, by key."""
    rows = store.rows(
        "SELECT key, ns, samples, features FROM kernels WHERE environment=? ORDER BY key",
        (store.environment_id(),),
    )
    return [Kernel(key, ns, samples, tuple(json.loads(text))) for key, ns, samples, text in rows]
