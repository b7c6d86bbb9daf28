"""The recorder of the thread that asks."""

from __future__ import annotations

from threading import local
from typing import Final

from graphopt.lazy.record.threads import Recorder


class _Threads(local):
    """One look-up of thread-local data per operation."""

    def __init__(self) -> None:
        self.now = Recorder()


state: Final = _Threads()
