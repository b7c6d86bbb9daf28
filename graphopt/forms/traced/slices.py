"""What equations read, and which of them lead to a variable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax.extend.core as jex


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Those that are no literals, each once."""
    return list(dict.fromkeys(a for a in atoms if not isinstance(a, jex.Literal)))


def leading_to(equations: Sequence[Any], wanted: Iterable[Any]) -> list[Any]:
    """The equations that variables need, in order."""
    needed, found = set(wanted), []
    for equation in reversed(equations):
        if not needed.isdisjoint(equation.outvars):
            found.append(equation)
            needed.update(variables(equation.invars))
    return found[::-1]


def read_by(equations: Sequence[Any]) -> list[Any]:
    """Variables that equations read and do not make."""
    made = {out for e in equations for out in e.outvars}
    return [v for v in variables(a for e in equations for a in e.invars) if v not in made]
