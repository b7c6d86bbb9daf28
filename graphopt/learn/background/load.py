"""How busy the machine is with other things than tuning."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from graphopt.extras import require

MOST_CORES: Final = 0.5
"""Cores that others may use while the queue is worked off."""

WINDOW_S: Final = 2.0
"""Shortest time over which it is measured."""


class Load:
    """Cores that other processes use: CPU time of the machine less that of this process and all under it."""

    def __init__(self, most_cores: float = MOST_CORES) -> None:
        """Begins to measure.

        Args:
            most_cores: more than these, used by others, are a busy machine; infinite: it is never busy.

        Raises:
            MissingExtraError: psutil is not installed.
        """
        require("watching the load of the machine", "tune")
        self.most_cores = most_cores
        self._others = 0.0
        self._seen = self._times()

    def others(self) -> float:
        """Cores that others used since the last time, measured anew once `WINDOW_S` is over."""
        wall, everything, own = self._times()
        elapsed = wall - self._seen[0]
        if elapsed >= WINDOW_S:
            spent = (everything - self._seen[1]) - (own - self._seen[2])
            self._others = max(0.0, spent / elapsed)
            self._seen = (wall, everything, own)
        return self._others

    @property
    def busy(self) -> bool:
        """Whether others need the machine."""
        return self.others() > self.most_cores

    @staticmethod
    def _times() -> tuple[float, float, float]:
        """Seconds now, CPU seconds of the machine so far, and those of this process and all under it."""
        import psutil

        machine = psutil.cpu_times()
        everything = sum(
            getattr(machine, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq")
        )
        process = psutil.Process()
        own = sum(process.cpu_times()[:4])  # those of children that have ended are in it
        for child in process.children(recursive=True):
            try:
                own += sum(child.cpu_times()[:4])
            except psutil.Error:  # it has just ended
                continue
        return time.monotonic(), everything, own

    def wait(self, until: float, tell: Callable[[str], None]) -> bool:
        """Waits until the machine is idle.

        Args:
            until: when to give up, by the clock of `time.monotonic`.
            tell: told what is waited for, in one line.

        Returns:
            False where it still is not idle then.
        """
        while self.busy:
            if time.monotonic() >= until:
                return False
            tell(
                f"waiting: others use {self._others:.1f} cores, {self.most_cores:g} at most are idle"
            )
            time.sleep(min(WINDOW_S, max(0.0, until - time.monotonic())) + 0.01)
        return True
