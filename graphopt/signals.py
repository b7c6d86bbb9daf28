"""Exceptions of signal handlers that come while C++ code computes, which loses what Python raises within it.

Python runs handlers in the main thread where its next function begins. While XLA compiles that is a function
that XLA calls back, and XLA makes a text of whatever leaves it: a program would see neither the interrupt nor
its own timeout, but an internal error.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_Handler = Callable[[int, FrameType | None], Any]

_ONLY_WAKES: Final = "asyncio.unix_events"
"""Module of a handler that wakes an event loop and raises nothing."""


class Interrupted(KeyboardInterrupt):
    """Stands for what a handler raised until `handed_on` raises that."""


@contextmanager
def handed_on() -> Iterator[Sequence[BaseException]]:
    """Raises what a signal's handler raises within, at the end and as it is, whatever became of it.

    Handlers run when they would; in their place `Interrupted` is raised there, so that the work ends early.
    Of several the first is handed on. On other threads, where no handler runs, nothing is done.

    Yields:
        What handlers have raised so far.

    Raises:
        BaseException: what the first of them raised.
    """
    notes = _Notes()
    try:
        if threading.current_thread() is threading.main_thread():
            notes.begin()
        yield notes.raised
    except BaseException:
        if not notes.raised:
            raise
    finally:
        notes.end()
    if notes.raised:
        raise notes.raised[0]


class _Notes:
    """Takes the place of every handler that Python runs, and notes what these raise."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []
        self._is_over = False
        self._replaced: dict[int, tuple[_Handler, _Handler]] = {}

    def begin(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and getattr(handler, "__module__", None) != _ONLY_WAKES:
                self._replaced[number] = self._noting(handler), handler
                signal.signal(number, self._replaced[number][0])

    def end(self) -> None:
        self._is_over = True
        for number, (noting, handler) in self._replaced.items():
            if signal.getsignal(number) is noting:  # or the handler has put another in its place
                signal.signal(number, handler)

    def _noting(self, handler: _Handler) -> _Handler:
        def noting(number: int, frame: FrameType | None) -> None:
            if self._is_over:
                handler(number, frame)
                return
            try:
                handler(number, frame)
            except BaseException as error:
                self.raised.append(error)
                raise Interrupted from error

        return noting
