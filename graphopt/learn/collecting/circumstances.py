"""Failures that say nothing of a program: something died or was cut off. Asked again, it may work."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from graphopt.executing.executor import ExecutorError
from graphopt.measure.children.child import ChildFailure

PASSING: Final = (ChildFailure, ExecutorError, ConnectionError, MemoryError, BlockingIOError)
"""Errors of a child process or a machine that is gone, or has no room."""

ERRNOS: Final = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC})
"""Of system calls that may succeed once others have ended."""


def may_pass(error: BaseException) -> bool:
    """True if an error, or one that it came of, is a matter of circumstances."""
    return any(
        isinstance(one, PASSING) or (isinstance(one, OSError) and one.errno in ERRNOS)
        for one in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
