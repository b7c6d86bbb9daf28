"""A Ray cluster of several nodes on this machine, and work that only pretends to measure."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from graphopt.executing.request import Body, Needs, Request


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
