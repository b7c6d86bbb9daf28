"""Exceptions of signal handlers that come while C++ code computes, which loses what Python raises within it.

Python runs handlers in the main thread where its next function begins. While XLA compiles on that thread,
this is a function that XLA calls back, and XLA makes a text of whatever leaves it: a program would see
neither the interrupt nor its own timeout, but an internal error.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_Handler = Callable[[int, FrameType | None], Any]

_ONLY_WAKE: Final = frozenset({"asyncio.unix_events", "uvloop.loop"})
"""Modules of handlers that wake an event loop and raise nothing."""


class Interrupted(KeyboardInterrupt):
    """Stands for what a handler raised until `handed_on` raises that."""


@contextmanager
def handed_on() -> Iterator[Sequence[BaseException]]:
    """Raises what a signal's handler raises within, at the end and as it is, whatever became of it.

    Handlers run when they would; in their place `Interrupted` is raised there, so that the work ends early.
    Of several the first is handed on. On other threads, where no handler runs, nothing is done. Handlers are
    put back as Python knows them: what C code set up below them (`signal.siginterrupt`) is lost.

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
        notes.is_over = True  # by itself, as a handler may run before any call
        notes.put_back()
    if notes.raised:
        _raise_as_it_is(notes.raised[0])


def _raise_as_it_is(error: BaseException) -> None:
    """Raises an error without what else is being handled here as its context."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context


class _Notes:
    """Takes the place of every handler that Python runs, and notes what these raise.

    Attributes:
        raised: that, in order.
        is_over: handlers whose place is still taken are only passed on to.
    """

    def __init__(self) -> None:
        self.raised: list[BaseException] = []
        self.is_over = False
        self._replaced: dict[int, tuple[_Handler, _Handler]] = {}

    def begin(self) -> None:
        """Takes their places; none where this interpreter may not."""
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and getattr(handler, "__module__", None) not in _ONLY_WAKE:
                self._replaced[number] = self._noting(handler), handler
                try:
                    signal.signal(number, self._replaced[number][0])
                except ValueError:  # embedded, and its main thread is another one
                    return

    def put_back(self) -> None:
        """Gives the places back, also if a handler raises meanwhile."""
        while self._replaced:
            number, (noting, handler) = self._replaced.popitem()
            try:
                if signal.getsignal(number) is noting:  # or the handler has put another there
                    signal.signal(number, handler)
            except BaseException:
                self.put_back()
                raise

    def _noting(self, handler: _Handler) -> _Handler:
        def noting(number: int, frame: FrameType | None) -> None:
            if self.is_over:
                handler(number, frame)
                return
            try:
                handler(number, frame)
            except BaseException as error:
                self.raised.append(error)
                raise Interrupted from None

        return noting
