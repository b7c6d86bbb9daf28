"""What `close` ends also ends with a ``with`` block, or with its owner."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class Closing:
    """A context manager that closes itself."""

    def close(self) -> None:
        """Ends what it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()


def ends_with(owner: object, end: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Calls ``end(*arguments)`` once: when asked, when the owner is gone, or when Python exits.

    A copy of the owner in a forked process ends nothing: processes and files are not its own.

    Args:
        owner: the arguments must not refer to it.
        end: frees what the owner holds.
        arguments: of `end`.

    Returns:
        A function that calls it now.
    """
    return weakref.finalize(owner, _end_here, os.getpid(), end, arguments)


def _end_here(process: int, end: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if os.getpid() == process:
        end(*arguments)
