"""A Ray cluster of several nodes on this machine, and work that only pretends to measure."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from graphopt.executing.executor import LocalExecutor
from graphopt.executing.request import Answer, Body, Needs, Request


def pretend(body: Body, blobs: tuple[bytes, ...]) -> tuple[Body, tuple[bytes, ...]]:
    """Sleeps as long as the measuring would take; says which process did it."""
    time.sleep(body.get("seconds", 0.0))
    if body.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if body.get("fails"):
        raise ValueError("it cannot be measured")
    flags = os.environ.get("XLA_FLAGS", "")
    return {"number": body["number"], "pid": os.getpid(), "flags": flags}, blobs


def numbered(number: int, needs: Needs | None = None, **body: Any) -> Request:
    """A request of `pretend`."""
    return Request(
        "support.fleet:pretend",
        {"number": number, **body},
        needs=needs or Needs(),
        label=f"{number}",
    )


class Disturbed(LocalExecutor):
    """This machine, whose answer to a request is the status that `disturb` gives, unless that is None."""

    batch = 3

    def __init__(self, disturb: Callable[[Request], str | None]) -> None:
        super().__init__()
        self.disturb = disturb
        self.asked: list[tuple[int, str | None]] = []

    def results(self) -> Iterator[Answer]:
        while self._waiting:
            request = self._waiting[0]
            status = self.disturb(request)
            self.asked.append((len(request.body.get("pairs", "")), status))
            if status is None:
                yield next(super().results())
            else:
                self._waiting.popleft()
                yield Answer(request.id, status, tries=5, detail="its process died")
