"""``graphopt queue`` and ``graphopt tune --queue``: what programs left to be tuned, and tuning it."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from graphopt.errors import StoreError
from graphopt.executing.opening import LOCAL, open_executor
from graphopt.learn.background import Listener, Load, Summary, Told, work, work_elsewhere
from graphopt.learn.background.load import MOST_CORES
from graphopt.store import Store
from graphopt.store.queue import Listing, clear, find, forget, items
from graphopt.store.queue_items import Item, State


def run_queue(action: str, ids: Sequence[str], store: str | Path | None, as_json: bool) -> int:
    """Lists, shows, forgets or clears.

    Args:
        action: ``list``, ``show``, ``forget`` or ``clear``.
        ids: of items, for ``show`` and ``forget``.
        store: with the queue; the user's by default.
        as_json: print JSON.

    Returns:
        Exit status: 2 where ids are missing, 1 where an item is not there.

    Raises:
        StoreError: the store cannot be read or written.
    """
    place = Store(store)
    if action in ("show", "forget") and not ids:
        print(f"graphopt queue {action}: name items by their ids", file=sys.stderr)
        return 2
    if action == "list":
        listing = items(place)
        print(json.dumps(listing_json(listing)) if as_json else listing_text(listing))
        return 0
    if action == "show":
        return _show(place, ids, as_json)
    removed = clear(place) if action == "clear" else forget(place, ids)
    print(json.dumps({"forgotten": removed}) if as_json else f"{removed} items forgotten")
    return 0 if action == "clear" or removed == len(set(ids)) else 1


def listing_json(listing: Listing) -> dict[str, object]:
    """All items, the seconds a day that are saved and may be saved, and rows that were refused."""
    return {
        "items": [item.to_json() for item in listing.items],
        "saved_s_per_day": _saving(listing, State.DONE),
        "may_be_saved_s_per_day": _saving(listing, State.WAITING, State.RUNNING),
        "refused": listing.refused,
    }


def _saving(listing: Listing, *states: State) -> float:
    return sum(item.saving_s for item in listing.items if item.state in states)


def listing_text(listing: Listing) -> str:
    """A table for people."""
    if not listing.items and not listing.refused:
        return "The queue is empty: graphopt.install(record=True) fills it."
    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("id", "left"), ("program", "left"), ("state", "left"), ("processes", "right"),
        ("calls a day", "right"), ("ms a call", "right"), ("s saved a day", "right"), ("", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for item in listing.items:
        table.add_row(*_row(item))
    console = Console(width=150, no_color=True)
    with console.capture() as captured:
        console.print(table)
    lines = [captured.get().rstrip()]
    lines += [f"refused {item_id}: {why}" for item_id, why in listing.refused.items()]
    counts = ", ".join(
        f"{sum(item.state is state for item in listing.items)} {state}" for state in State
    )
    lines.append(
        f"{counts}; {_saving(listing, State.DONE):.1f} s a day saved, "
        f"{_saving(listing, State.WAITING, State.RUNNING):.1f} s a day expected of what waits"
    )
    return "\n".join(lines)


def _row(item: Item) -> tuple[str, ...]:
    call = "" if item.call_s is None else f"{item.call_s * 1e3:.3f}"
    saving = "" if item.gain is None else f"{item.saving_s:.2f}"
    saving += "" if item.state is State.DONE or not saving else "?"
    note = item.reason
    if item.state is State.RUNNING:
        left = item.lease_until - time.time()
        note = f"leased by {item.owner}" if left > 0 else f"{item.owner} is gone: waits again"
    return (
        item.id, item.program, str(item.state), str(item.processes), f"{item.calls_per_day:,.0f}",
        call, saving, note,
    )  # fmt: skip


def _show(store: Store, ids: Sequence[str], as_json: bool) -> int:
    found = [find(store, item_id) for item_id in ids]
    known = [item for item in found if item is not None]
    if as_json:
        print(json.dumps([item.to_json() for item in known]))
    else:
        print("\n\n".join(item_text(item) for item in known))
    for item_id, item in zip(ids, found, strict=True):
        if item is None:
            print(f"graphopt queue: no item {item_id}", file=sys.stderr)
    return 0 if len(known) == len(ids) else 1


def item_text(item: Item) -> str:
    """All that is known of an item, line by line."""
    moment = "%Y-%m-%d %H:%M"
    lines = [f"{item.id}  {item.program}: {item.state}"]
    lines += [f"  {item.reason}"] if item.reason else []
    lines.append(
        f"  seen {item.processes} times, {time.strftime(moment, time.localtime(item.first_seen))} to "
        f"{time.strftime(moment, time.localtime(item.last_seen))}; {item.calls:,.0f} calls"
    )
    lines.append(f"  {item.module_bytes:,} bytes, compiled in {item.compile_s:.2f} s")
    for number, known in enumerate(item.inputs):
        ends = "range unknown" if known.low is None else f"{known.low:g} to {known.high:g}"
        shape = ",".join(map(str, known.shape))
        lines.append(f"  input {number}: {known.dtype}[{shape}], {ends}")
    lines.append(f"  values of inputs: {'recorded' if item.has_values else 'not recorded'}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Plan:
    """How the queue is worked off.

    Attributes:
        store: path or URL of the store with the queue; None for the user's.
        budget_s: seconds of tuning per item.
        limit_s: seconds in all; 0 for no limit.
        most: items; 0 for no limit.
        max_load: cores that others may use meanwhile; of the local machine.
        follow: wait for further items; on the local machine.
        executor: whose machines tune.
    """

    store: str | Path | None = None
    budget_s: float = 60.0
    limit_s: float = 0.0
    most: int = 0
    max_load: float = MOST_CORES
    follow: bool = False
    executor: str = LOCAL


def run_tune_queue(plan: Plan, as_json: bool) -> Summary:
    """Works the queue off, with progress; an interrupt gives the item back.

    Args:
        plan: how.
        as_json: print the outcome as JSON.

    Raises:
        StoreError: the store cannot be read or written.
        MissingExtraError: psutil is not installed.
    """
    place = Store(plan.store)
    if not place.exists():
        raise StoreError(
            what="there is no store, so nothing waits",
            where=str(place.path),
            fix="Run programs with graphopt.install(record=True) first.",
        )
    console = Console(stderr=as_json)
    with _telling(console) as listener:
        summary = _worked_off(place, plan, listener)
    if as_json:
        print(json.dumps({"counts": dict(summary.counts), "left": summary.left}))
    else:
        console.print(str(summary), highlight=False, markup=False)
        console.print(listing_text(items(place)).splitlines()[-1], highlight=False, markup=False)
    return summary


def _worked_off(store: Store, plan: Plan, listener: Listener) -> Summary:
    limits: dict[str, Any] = {
        "budget_s": plan.budget_s,
        "limit_s": plan.limit_s or math.inf,
        "most": plan.most or None,
    }
    if plan.executor == LOCAL:
        load = Load(plan.max_load)
        return work(store, follow=plan.follow, load=load, listener=listener, **limits)
    with open_executor(plan.executor) as machines:
        return work_elsewhere(store, machines, listener=listener, **limits)


@contextlib.contextmanager
def _telling(console: Console) -> Iterator[Listener]:
    """A listener that keeps a line of progress, and prints what begins and ends."""
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("looking", total=None)

        def listener(told: Told) -> None:
            line = f"{told.program}: {told.message}" if told.program else told.message
            if told.stage in ("begin", "end"):
                console.print(line, highlight=False, markup=False)
            progress.update(task, description=line[:110])

        yield listener
