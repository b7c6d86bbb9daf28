"""What users can say about a placement."""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.devices.plan import (
    MIN_GAIN,
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How a function is placed.

    Attributes:
        measure: try the best candidates against one device at the first call, keep what is faster.
        profile: time the program's parts with its real arguments first; False: trust the model.
        check: wait for every result, and repeat the call on one device if it failed.
        budget_s: seconds to measure per candidate.
        min_gain: predicted speed-up below which a program stays on one device.
    """

    measure: bool = True
    profile: bool = True
    check: bool = False
    budget_s: float = 1.5
    min_gain: float = MIN_GAIN
