"""Events of a tuning run, for whoever shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """What has just happened.

    Attributes:
        stage: ``calibrate``, ``plan``, ``tasks``, ``search``, ``confirm`` or ``done``.
        message: one line.
        elapsed_s: seconds since the start.
        left_s: seconds of the budget that are left.
        evaluations: candidates measured so far.
        best: best ratio so far.
    """

    stage: str
    message: str
    elapsed_s: float
    left_s: float
    evaluations: int = 0
    best: float = 1.0


Listener = Callable[[Event], None]
"""Told of each step of tuning."""


def ignore(event: Event) -> None:
    """A listener that does nothing."""
