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
        compile: compiles it anew, in its forms, its modules passing through a transform.
        default: compiled by XLA alone, operations as jax lowers them.
        start: compiled by XLA alone, operations in the forms that `graphopt.install` gives them; the same
            object as `default` where there are none. Decisions are about this one.
        modules: the main modules, largest first: (bytes, inputs or None).
        donates: its module donates inputs, which a rewrite loses.
        digest: of the lowered program, for compile options.
    """

    name: str
    compile: Callable[..., Compiled]
    default: Compiled
    start: Compiled
    modules: list[tuple[bytes, list[Array] | None]]
    donates: bool
    digest: str

    @property
    def forms(self) -> tuple[str, ...]:
        """Names of the forms of operations in it."""
        return self.start.forms


def compile_both(
    make: Callable[[], tuple[Compiled, Compiled]], name: str, fails: str, fix: str
) -> tuple[Compiled, Compiled]:
    """A program compiled by XLA alone: as jax lowers it, and in its forms.

    Args:
        make: compiles it in both ways.
        name: of the program.
        fails: what to say of it where compiling raises.
        fix: what helps then.

    Raises:
        WorkloadError: it raises, or compiles to nothing.
    """
    try:
        default, start = make()
    except Exception as error:
        what = f"{fails}: {type(error).__name__}: {error}"[:600]
        raise WorkloadError(what=what, where=name, fix=fix) from error
    if not start.modules:
        raise WorkloadError(
            what="compiles to no CPU module", where=name, fix="See graphopt doctor."
        )
    return default, start
