"""What long benchmarks show while they run, and what is left of them after Ctrl-C.

    with counted(programs, "programs measured") as rest:
        for program in rest:
            ...
    print(summary)  # after Ctrl-C too: of what was measured until then

A module that is run ends with ``sys.exit(ended(main))``: its status after Ctrl-C is 130, whatever it printed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from rich.console import Console

from graphopt.errors import exit_status
from graphopt.progress import steps

T = TypeVar("T")

_LABEL: Final = 60
"""Most characters of an item's name that are shown."""

_INTERRUPTED: Final = threading.Event()
"""Set when a benchmark was interrupted and went on to print what it had."""

_INTERRUPTED_STATUS: Final = 130


@contextmanager
def counted(items: Iterable[T], what: str, console: Console | None = None) -> Iterator[Iterator[T]]:
    """A loop over items with a line of progress; Ctrl-C ends the loop, and the caller goes on.

    Args:
        items: what is done one after the other; counted at once.
        what: what has happened to those that are done: ``programs measured``.
        console: what the benchmark prints to; standard output by default.

    Raises:
        KeyboardInterrupt: interrupted before the first item was finished: there is nothing to show.
    """
    listed, done = list(items), 0

    def rest(show: Callable[[str, int], None]) -> Iterator[T]:
        """The items; each counts as done when the next one is asked for."""
        nonlocal done
        for item in listed:
            show(label(item), done)
            yield item
            done += 1
        show("", done)

    try:
        with steps(console or Console(), len(listed), what) as show:
            yield rest(show)
    except KeyboardInterrupt:
        if not done:
            raise
        _INTERRUPTED.set()


def label(item: Any) -> str:
    """What an item is called: by its name, or the names of its parts, of moderate length."""
    if isinstance(item, tuple):
        text = ", ".join(label(part) for part in item if not callable(part))
    else:
        text = str(getattr(item, "name", item))
    return text[:_LABEL]


def interrupted() -> bool:
    """True if a loop of this process was ended by Ctrl-C: there is less than was asked for."""
    return _INTERRUPTED.is_set()


def ended(main: Callable[[], int | None], program: str = "python -m benchmarks") -> int:
    """Runs a benchmark; returns its exit status, 130 after an interrupt, 2 after one of our errors."""
    status = exit_status(program, lambda: main() or 0)
    return _INTERRUPTED_STATUS if interrupted() else status
