"""What the demo shows at its end: a picture, and what to type next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

WIDTH: Final = 40
"""Characters of the longest bar."""


def picture(speedups: Mapping[str, float]) -> str:
    """Speed-ups as bars on a logarithmic scale, the largest first; ``<`` marks a program that is slower."""
    ordered = sorted(speedups.items(), key=lambda pair: -pair[1])
    longest = max(map(len, speedups))
    scale = max(math.log(ordered[0][1]), math.log(2.0))
    lines = ["speed-up over XLA's default, on a logarithmic scale"]
    for name, value in ordered:
        length = round(WIDTH * math.log(value) / scale)
        bar = "█" * length if length > 0 else "|" if length == 0 else "<"
        lines.append(f"{name:>{longest}} {value:6.2f}x {bar}")
    return "\n".join(lines)


def next_steps(name: str) -> str:
    """What to type after the demo; `name` is what `graphopt explain` takes, a program worth explaining."""
    steps = {
        "graphopt run your_script.py": "your own script, unchanged",
        "graphopt tune your_module:builder": "search with measurements, and keep the winner",
        f"graphopt explain {name} --html why.html": "what was changed, and why",
    }
    longest = max(map(len, steps))
    return "\n".join(["next:", *(f"  {step:<{longest}}  {why}" for step, why in steps.items())])
