"""A captured program: what the tuner works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import WorkloadError
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


def compile_default(compile_: Callable[[], Compiled], name: str, fails: str, fix: str) -> Compiled:
    """A program compiled by XLA alone.

    Args:
        compile_: compiles it.
        name: of the program.
        fails: what to say of it where compiling raises.
        fix: what helps then.

    Raises:
        WorkloadError: it raises, or compiles to nothing.
    """
    try:
        default = compile_()
    except Exception as error:
        what = f"{fails}: {type(error).__name__}: {error}"[:600]
        raise WorkloadError(what=what, where=name, fix=fix) from error
    if not default.modules:
        raise WorkloadError(
            what="compiles to no CPU module", where=name, fix="See graphopt doctor."
        )
    return default
