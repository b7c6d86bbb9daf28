"""Working off the queue: lease, tune, write, one item after the other, while the machine is idle."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from graphopt.errors import GraphOptError, StoreError, message
from graphopt.learn.background.estimates import estimate_waiting
from graphopt.learn.background.load import Load
from graphopt.learn.background.tuning import tune_item
from graphopt.measure.calibrating.once import calibrate_once
from graphopt.store import Store
from graphopt.store.leases import (
    LEASE_S,
    Lease,
    Result,
    claim,
    finish,
    new_owner,
    release,
    renew,
)
from graphopt.store.queue_items import State

RENEW_S: Final = LEASE_S / 5.0
"""Time after which a worker renews its lease."""

FOLLOW_S: Final = 10.0
"""Time between two looks at an empty queue."""


@dataclass(frozen=True)
class Told:
    """What has just happened.

    Attributes:
        stage: ``wait``, ``begin``, ``tune`` or ``end``.
        program: which module; empty where there is none.
        message: one line.
    """

    stage: str
    program: str
    message: str


Listener = Callable[[Told], None]
"""Told what a worker on the queue does."""


@dataclass(frozen=True)
class Summary:
    """What a worker came to.

    Attributes:
        counts: state -> items that ended so.
        left: why it ended, in words.
    """

    counts: Counter[str] = field(default_factory=Counter)
    left: str = ""

    def __str__(self) -> str:
        """One line."""
        counts = ", ".join(f"{n} {state}" for state, n in sorted(self.counts.items()))
        return f"{counts or 'nothing'}; {self.left}"


class Stopped(BaseException):
    """Ends the tuning of an item from inside; no error, so that nothing takes it for a reason to go on."""


def work(
    store: Store,
    *,
    budget_s: float = 60.0,
    limit_s: float = math.inf,
    most: int | None = None,
    follow: bool = False,
    load: Load | None = None,
    listener: Listener = lambda _: None,
    seed: int = 0,
) -> Summary:
    """Works the queue off by expected saving, largest first, while the machine is idle.

    When others need the machine, the item is given back and the worker waits. What was measured until then
    is in the store and not measured again. An interrupt gives the item back too. Several workers may share a
    queue.

    Args:
        store: with the queue; winners go there too.
        budget_s: seconds of tuning per item.
        limit_s: seconds after which no further item is begun, waiting included.
        most: items after which it ends; None for no limit.
        follow: wait for further items when the queue is empty, until `limit_s` or an interrupt.
        load: when the machine is busy; by default when others use more than half a core.
        listener: told of progress.
        seed: of the searches.

    Raises:
        StoreError: the store cannot be read or written.
        MissingExtraError: psutil is not installed.
    """
    load = Load() if load is None else load
    until = time.monotonic() + limit_s
    owner = new_owner()
    counts: Counter[str] = Counter()

    def wait(line: str) -> None:
        listener(Told("wait", "", line))

    calibrate_once(store, wait)
    while most is None or sum(counts.values()) < most:
        if time.monotonic() >= until:
            return Summary(counts, "the time is over")
        if not load.wait(until, wait):
            return Summary(counts, "the machine is busy")
        estimate_waiting(store)
        lease = claim(store, owner)
        if lease is not None:
            result = tune_leased(store, lease, budget_s, load, listener, seed)
            counts.update([] if result is None else [str(result.state)])
        elif follow:
            wait("nothing waits")
            time.sleep(min(FOLLOW_S, max(0.0, until - time.monotonic())))
        else:
            return Summary(counts, "nothing waits")
    return Summary(counts, "that many items were wanted")


def tune_leased(
    store: Store, lease: Lease, budget_s: float, load: Load, listener: Listener, seed: int = 0
) -> Result | None:
    """Tunes a leased item and writes what came of it; None where it was given back, or the lease was lost.

    Raises:
        KeyboardInterrupt: it was interrupted; the item waits again.
        StoreError: the store cannot be read or written.
    """
    name = lease.item.program
    renewed = time.monotonic()

    def tell(line: str) -> None:
        nonlocal renewed
        if time.monotonic() - renewed > RENEW_S:
            renewed = time.monotonic()
            if not renew(store, lease):
                raise Stopped("another worker has taken it")
        if load.busy:
            raise Stopped("others need the machine")
        listener(Told("tune", name, line))

    listener(Told("begin", name, f"{lease.item.saving_s:.1f} s a day may be saved"))
    try:
        result = _result(lease, store, budget_s, tell, seed)
    except Stopped as stopped:
        release(store, lease)
        listener(Told("end", name, f"given back: {stopped}"))
        return None
    except BaseException:
        release(store, lease)
        raise
    if not finish(store, lease, result):
        listener(Told("end", name, "another worker has taken it: nothing is written"))
        return None
    listener(Told("end", name, f"{result.state}: {result.reason}"))
    return result


def _result(
    lease: Lease, store: Store, budget_s: float, tell: Callable[[str], None], seed: int
) -> Result:
    """What came of an item; whatever is wrong with it alone lets it fail."""
    try:
        return tune_item(lease.item, store, budget_s, tell, seed)
    except StoreError as error:
        if error.where == str(store.path):
            raise
        return Result(State.FAILED, f"damaged: {error.what}")
    except GraphOptError as error:
        return Result(State.FAILED, message(error))
    except Exception as error:
        return Result(State.FAILED, f"internal error: {message(error)}")
