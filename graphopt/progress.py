"""What long commands show: one line that says what is done, how far it is and how long it will take.

The line is on a terminal or nowhere: on that of the command's output or, where the output goes elsewhere, of
its standard error. It is gone when the work ends.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

REDRAWN: Final = 2
"""Times a second that the line is drawn: programs are timed beside it."""

REMEMBERED_S: Final = 86_400.0
"""The time left follows from all steps of so many seconds: one step may take minutes."""

Show = Callable[[str, int], None]
"""Told what is being done, and how many steps are finished."""


def live(console: Console, counted: bool = True) -> Progress:
    """A line of progress, to which a task is added.

    Args:
        console: what the command prints to, which may go on meanwhile.
        counted: steps are counted, and their numbers shown; otherwise seconds or nothing.
    """
    shown = console if console.is_terminal else Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        *([MofNCompleteColumn()] if counted else []),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=shown,
        disable=not shown.is_terminal,
        refresh_per_second=REDRAWN,
        redirect_stdout=not shown.stderr,  # output for a file stays output
        speed_estimate_period=REMEMBERED_S,
        transient=True,
    )


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Set once Ctrl-C was pressed: Python drops the exception where a finalizer happens to run.

    What it would print about that is left out, since the interrupt is raised with the next step.
    """
    pressed = threading.Event()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed  # somebody else's business
        return

    def handler(number: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.default_int_handler(number, frame)

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        if not (pressed.is_set() and args.exc_type is KeyboardInterrupt):
            tell(args)

    try:
        before = signal.signal(signal.SIGINT, handler)
    except ValueError:  # not the main thread, which alone is interrupted
        yield pressed
        return
    tell, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        yield pressed
    finally:
        sys.unraisablehook = tell
        signal.signal(signal.SIGINT, before)


@contextmanager
def steps(console: Console, total: int, what: str) -> Iterator[Show]:
    """A line of progress for counted work; after an interrupt, how much of it is done.

    Args:
        console: what the command prints to.
        total: number of steps.
        what: what has happened to those that are done: ``programs measured``.

    Raises:
        KeyboardInterrupt: the work was interrupted; it has been said.
    """
    finished = 0
    try:
        with _interrupted() as pressed, live(console) as progress:
            task = progress.add_task("starting", total=total)

            def show(doing: str, done: int) -> None:
                nonlocal finished
                finished = done
                if pressed.is_set():
                    raise KeyboardInterrupt
                progress.update(task, description=doing, completed=done)

            yield show
    except KeyboardInterrupt:
        text = f"interrupted: {finished} of {total} {what}"
        console.print(text, markup=False, highlight=False)
        raise


@contextmanager
def waiting(console: Console, what: str) -> Iterator[None]:
    """A line of progress for work of which nobody knows how far it is.

    Args:
        console: what the command prints to.
        what: is being done.
    """
    with live(console, counted=False) as progress:
        progress.add_task(what, total=None)
        yield
