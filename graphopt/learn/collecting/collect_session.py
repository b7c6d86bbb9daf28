"""``graphopt collect`` on the terminal: progress, interrupts, the part at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import jax
from rich.console import Console

from graphopt import jax_private
from graphopt.executing.executor import Executor
from graphopt.executing.opening import LOCAL, open_executor
from graphopt.learn.collecting.asking import collect
from graphopt.learn.collecting.collect import (
    CollectPlan,
    Notes,
    Progress,
    alone,
    check,
    machine_lock,
)
from graphopt.learn.collecting.command import INTERRUPTED
from graphopt.learn.collecting.own_states import own_states
from graphopt.progress import live

LOCK: Final = ".collecting.lock"
"""Held in the folder of the parts while a run writes there."""

REDRAWN: Final = 25
"""A line is printed every so many duels where there is no terminal to draw on."""


NAMED: Final = 20
"""Of what was left out, and of what was given up, so many are named."""


def collect_session(plan: CollectPlan, console: Console | None = None) -> int:
    """Collects with progress on the terminal; exit status 0, 1 if anything was given up, 130 if interrupted.

    Whatever was measured is in a part afterwards, also when the run was interrupted; what a killed run left
    in its journal becomes a part of its own first.

    Raises:
        ConfigError: the plan makes no sense.
        StoreError: another run measures on this machine, or a part is damaged.
    """
    check(plan)
    own_states(plan.states_of)  # says at once what is wrong with it
    console = console or Console(width=None if Console().is_terminal else 140)
    if not jax_private.backends_initialized():
        jax.config.update("jax_platforms", "cpu")
    with _held(plan), open_executor(plan.executor) as executor:
        rest = Notes(plan.out).finish(note="left by a run that was killed")
        if rest is not None:
            console.print(f"kept what an earlier run had measured: {rest}", highlight=False)
        notes = Notes(plan.out)
        console.print(f"{len(notes.known)} duels of this machine are known", highlight=False)
        status = 0
        try:
            done = _collect(plan, notes, console, executor)
            console.print(summary(done), highlight=False)
            status = _told_given_up(done, console)
        except KeyboardInterrupt:
            console.print("interrupted; the same command goes on")
            status = INTERRUPTED
        own = own_states(plan.states_of)
        path = notes.finish() if own is None else notes.finish(states_of=own.digest)
        console.print("nothing new" if path is None else f"part: {path}", highlight=False)
    return status


@contextlib.contextmanager
def _held(plan: CollectPlan) -> Iterator[None]:
    """Holds the folder of the parts, and this machine where it measures."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone(plan.out / LOCK, "writes to this folder"))
        if plan.executor == LOCAL:
            stack.enter_context(alone(machine_lock()))
        yield


def _collect(plan: CollectPlan, notes: Notes, console: Console, executor: Executor) -> Progress:
    with live(console, counted=False) as progress:
        bar = progress.add_task("loading", total=plan.source.budget_s)

        def tell(message: str, done: Progress) -> None:
            text = f"{message}; {done.duels} duels, {done.per_minute:.0f} a minute"
            progress.update(bar, description=text, completed=done.seconds)
            if not console.is_terminal and done.duels % REDRAWN == 1:
                console.print(text, highlight=False)

        return collect(plan, notes, tell, executor)


def _told_given_up(done: Progress, console: Console) -> int:
    """Names what was left out or given up; the exit status."""
    for name, rows in (("left out", done.left_out), ("given up", done.given_up)):
        for (_, what), why in list(rows.items())[:NAMED]:
            console.print(f"{name}: {what}: {why}", highlight=False, markup=False)
    if done.given_up:
        console.print(
            f"{len(done.given_up)} given up; the same command asks again", highlight=False
        )
    return 1 if done.given_up else 0


def summary(done: Progress) -> str:
    """What a run has done, in one line."""
    return (
        f"{done.duels} duels ({done.failed} failed, {done.clear} beyond doubt) of {done.tasks} tasks "
        f"of {done.programs} programs in {done.seconds:.0f} s, {done.per_minute:.0f} a minute"
    )
