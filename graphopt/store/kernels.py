"""The kernel bank: time of every distinct cluster body and unit measured so far."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphopt.store.database import Store
from graphopt.store.schema import CHUNK
from graphopt.store.screening import name_refused, screened, shortened

MOST_FEATURES: Final = 1000
"""No kernel has more."""


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


def put_kernels(store: Store, kernels: Iterable[Kernel]) -> None:
    """Stores measurements in one transaction.

    A kernel measured before gets the mean of both, weighted by samples. A new time of more than twice the
    old one is a disturbance and ignored; an old one of more than twice the new one was a disturbance and
    forgotten.
    """
    now = time.time()
    rows = [
        {
            "key": kernel.key,
            "ns": kernel.ns,
            "samples": kernel.samples,
            "features": json.dumps([round(f, 6) for f in kernel.features]),
            "seen": now,
        }
        for kernel in kernels
    ]
    store.write(*(("put_kernel", row) for row in rows))


def get_kernels(store: Store, keys: Sequence[str]) -> dict[str, float]:
    """Nanoseconds of those kernels that are known."""
    out: dict[str, float] = {}
    for start in range(0, len(keys), CHUNK):
        chunk = list(keys[start : start + CHUNK])
        chunk += chunk[-1:] * (CHUNK - len(chunk))
        rows = screened(store, "kernels_by_key", {f"key{i}": key for i, key in enumerate(chunk)})
        out.update((key, float(ns)) for key, ns in rows)
    return out


def all_kernels(store: Store) -> list[Kernel]:
    """All kernels of this environment, by key; rows that are none are named in the log."""
    found, refused = [], []
    for key, ns, samples, text in screened(store, "all_kernels"):
        features = _features(text)
        if features is None:
            refused.append(f"{shortened(key)}: features are {shortened(text)}")
        else:
            found.append(Kernel(key, ns, samples, features))
    name_refused(store, "all_kernels", refused)
    return found


def _features(text: str) -> tuple[float, ...] | None:
    """The features of a row; None if they are not finite numbers, or more than any kernel has."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) > MOST_FEATURES:
        return None
    if not all(type(one) in (int, float) and abs(one) < math.inf for one in found):
        return None
    return tuple(found)


def state_of_kernels(store: Store) -> tuple[Any, ...]:
    """What changes with every measurement: kernels, samples of all, time of the last."""
    return tuple(store.rows("kernels_state")[0])
