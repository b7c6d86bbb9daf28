"""The queue worked off by the machines of an executor: a request per item, which its machine leases."""

from __future__ import annotations

import math
import time
from collections import Counter

from graphopt.executing.executor import Executor, own_needs
from graphopt.executing.request import Body, Request
from graphopt.learn.background.estimates import estimate_waiting
from graphopt.learn.background.load import Load
from graphopt.learn.background.worker import Listener, Summary, Told, tune_leased
from graphopt.store import Store
from graphopt.store.leases import claim, new_owner
from graphopt.store.queue import items
from graphopt.store.queue_items import State

WORK = "graphopt.learn.background.elsewhere:tune_one"
"""What a machine is asked for."""


def work_elsewhere(
    store: Store,
    executor: Executor,
    *,
    budget_s: float = 60.0,
    limit_s: float = math.inf,
    most: int | None = None,
    listener: Listener = lambda _: None,
) -> Summary:
    """Has every item that waits tuned by a machine of this kind, largest expected saving first.

    The machines read and write the store themselves, so it should be one that all of them reach. They are
    there for measuring: nobody looks at their load.

    Args:
        store: with the queue.
        executor: whose machines tune; it is not closed.
        budget_s: seconds of tuning per item.
        limit_s: seconds after which no further item is begun.
        most: items to ask for; None for all.
        listener: told of progress.

    Raises:
        StoreError: the store cannot be read or written.
        ExecutorError: no machine can answer.
    """
    estimate_waiting(store)
    waiting = items(store, (State.WAITING,)).items[:most]
    names = {}
    place = store.url or str(store.path)
    for item in waiting:
        body = {"store": place, "item": item.id, "budget_s": budget_s}
        request = Request(WORK, body, needs=own_needs(), label=item.program)
        names[request.id] = item.program
        executor.submit(request)
    counts: Counter[str] = Counter()
    until = time.monotonic() + limit_s
    for answer in executor.results():
        state = str(answer.body.get("state", "")) if answer.ok else answer.status
        if state:
            counts[state] += 1
        reason = answer.body.get("reason", answer.detail)
        listener(
            Told("end", names.get(answer.id, ""), f"{state or 'left'} by {answer.place}: {reason}")
        )
        if time.monotonic() >= until:
            executor.drop()
    return Summary(counts, "no more was asked for")


def tune_one(body: Body, blobs: tuple[bytes, ...]) -> tuple[Body, tuple[bytes, ...]]:
    """The work of one request: leases an item, tunes it, writes what came of it.

    Args:
        body: place of the store, id of the item, seconds to spend.
        blobs: none.

    Returns:
        State and reason; no state where the item was no longer there to be leased.
    """
    store = Store(str(body["store"]))
    try:
        lease = claim(store, new_owner(), item_id=str(body["item"]))
        if lease is None:
            return {"state": "", "reason": "another worker has it"}, ()
        budget_s, load = float(body["budget_s"]), Load(math.inf)
        result = tune_leased(store, lease, budget_s, load, lambda _: None)
        if result is None:
            return {"state": "", "reason": "another worker has taken it"}, ()
        return {"state": str(result.state), "reason": result.reason}, ()
    finally:
        store.close()
