"""A captured program: what the tuner works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.measure.compiling.functions import Compiled

Array = np.ndarray[Any, Any]


@dataclass
class Subject:
    """A program to tune.

    Attributes:
        name: for reports.
        compile: compiles it anew, its modules passing through a transform.
        default: compiled by XLA alone.
        modules: the main modules, largest first: (bytes, inputs or None).
        donates: its module donates inputs, which a rewrite loses.
        digest: of the lowered program, for compile options.
    """

    name: str
    compile: Callable[..., Compiled]
    default: Compiled
    modules: list[tuple[bytes, list[Array] | None]]
    donates: bool
    digest: str
