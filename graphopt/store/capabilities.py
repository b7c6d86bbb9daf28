"""What a jaxlib keeps of a rewritten module, as tried: see `graphopt.measure.capabilities`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from graphopt.store.database import Store
from graphopt.store.screening import screened


def put_capabilities(store: Store, jaxlib: str, probes: int, holds: Mapping[str, bool]) -> None:
    """Keeps what was found; replaces what was known of that jaxlib.

    Args:
        store: where.
        jaxlib: version that was tried.
        probes: version of the probes.
        holds: capability -> whether it holds.
    """
    store = store.local  # it is tried in seconds: machines need not share it
    same = {"jaxlib": jaxlib, "probes": probes, "seen": time.time()}
    rows = [{**same, "name": name, "holds": int(value)} for name, value in holds.items()]
    store.write(
        ("forget_capabilities", {"jaxlib": jaxlib}), *(("put_capability", row) for row in rows)
    )


def get_capabilities(store: Store, jaxlib: str, probes: int) -> frozenset[str] | None:
    """Names of what holds; None if that jaxlib was never tried with these probes."""
    rows = screened(store.local, "capabilities", {"jaxlib": jaxlib, "probes": probes})
    return frozenset(name for name, holds in rows if holds) if rows else None
