"""What tuning an item of the queue may be worth: the order in which the queue is worked off."""

from __future__ import annotations

from typing import Final

from graphopt.costs.model import CostModel
from graphopt.errors import StoreError
from graphopt.hlo import Graph
from graphopt.learn.background.refusals import graph_of
from graphopt.store import Store
from graphopt.store.leases import note_estimate, refuse, refuse_damaged
from graphopt.store.queue import items, load
from graphopt.store.queue_items import State

OPEN_GAIN: Final = 0.25
"""Share of the time outside of library calls that tuning is expected to save; products by the library stay
what they are. Only ratios of expectations count, and each is replaced by what was measured."""


def estimate(graph: Graph) -> tuple[float, float]:
    """(seconds of a call by XLA's default, share of it that tuning may save)."""
    model = CostModel(graph)
    whole = model.computations[-1]
    total_ns = max(1.0, whole.default_ns(model.cores))
    return total_ns * 1e-9, OPEN_GAIN * max(0.0, 1.0 - whole.library_ns / total_ns)


def estimate_waiting(store: Store) -> None:
    """Estimates every item that waits and has no estimate; refuses those that cannot be tuned alone.

    Raises:
        StoreError: the store cannot be read or written.
    """
    refuse_damaged(store)
    for item in items(store, (State.WAITING,)).items:
        if item.call_s is not None:
            continue
        try:
            found = graph_of(load(store, item.id)[0], store)
        except StoreError as error:
            found = f"damaged: {error.what}"
        if isinstance(found, str):
            refuse(store, item.id, found)
        else:
            note_estimate(store, item.id, *estimate(found))
