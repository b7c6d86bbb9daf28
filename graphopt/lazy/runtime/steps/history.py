"""What is remembered of a graph whose steps may run together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class History:
    """Steps of one graph so far.

    Attributes:
        steps: cuts by `lt.step()` that ran it, those put off included.
        together: how many steps may run together; None before anybody looked.
        programs: loops over several steps, by `program.Form`.
    """

    steps: int = 0
    together: int | None = None
    programs: dict[Any, Any] = field(default_factory=dict)
