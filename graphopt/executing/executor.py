"""The seam: everything that measures in bulk hands requests to an executor and takes answers as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from graphopt.closing import Closing
from graphopt.errors import GraphOptError
from graphopt.executing.request import Answer, Needs, Request
from graphopt.executing.telemetry import told
from graphopt.executing.work import perform
from graphopt.machine import machine_key, probe
from graphopt.machine.kinds import jaxlib_version
from graphopt.store.database import environment


class ExecutorError(GraphOptError):
    """Raised when no machine can answer: the cluster is gone, or has none of the kind asked for."""


class Executor(Protocol):
    """Answers requests, each once.

    Attributes:
        batch: how many small questions one request should hold: one where answers are at hand at once,
            more where every request travels.
    """

    batch: int

    def submit(self, request: Request) -> None:
        """Takes a request; nothing need have begun when it returns. An equal one is not done twice."""

    def results(self) -> Iterator[Answer]:
        """Answers as they come, until none is outstanding; more may be submitted meanwhile.

        Raises:
            ExecutorError: what is outstanding cannot be answered.
        """

    @property
    def hungry(self) -> bool:
        """True if another request would be begun soon."""

    def drop(self, unwanted: Callable[[Request], bool] = lambda request: True) -> None:
        """Forgets requests that have not begun."""

    def close(self) -> None:
        """Ends whatever it started; outstanding requests are forgotten."""

    def __enter__(self) -> Self:
        """Itself."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""


class LocalExecutor(Closing):
    """This machine, one request after the other, in the order in which they came."""

    batch = 1

    def __init__(self) -> None:
        """Starts nothing."""
        self._waiting: deque[Request] = deque()
        self.place = place_here()

    def submit(self, request: Request) -> None:
        """Takes a request that this machine can answer.

        Raises:
            ExecutorError: it asks for another machine or jaxlib.
        """
        if not request.needs.met_by(machine_key(), jaxlib_version()):
            raise ExecutorError(
                what=f"a request asks for {request.needs}; this is {self.place}",
                where=request.label or request.work,
                fix="Use --executor ray:... with such a machine in the cluster.",
            )
        if request not in self._waiting:
            self._waiting.append(request)

    def results(self) -> Iterator[Answer]:
        """Does the work, one request per answer asked for."""
        while self._waiting:
            request = self._waiting.popleft()
            answer = perform(request, self.place)
            told(request, answer)
            yield answer

    @property
    def hungry(self) -> bool:
        """True if nothing waits."""
        return not self._waiting

    def drop(self, unwanted: Callable[[Request], bool] = lambda request: True) -> None:
        """Forgets requests that have not begun."""
        self._waiting = deque(r for r in self._waiting if not unwanted(r))

    def close(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()


def own_needs() -> Needs:
    """What makes a machine's times comparable with this one's: kind, jaxlib, flags that change code."""
    machine, jaxlib, flags = environment()
    return Needs(machine, jaxlib, flags)


def place_here() -> str:
    """This machine, for answers and logs."""
    import socket

    return f"{socket.gethostname()} ({probe().name}, {machine_key()}, jaxlib {jaxlib_version()})"
