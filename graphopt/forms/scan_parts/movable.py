"""Which equations can be computed for all iterations at once, and which are cheap enough to be done twice."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from graphopt.forms.traced.primitives import ELEMENTWISE

VIEWS: Final = frozenset("broadcast_in_dim expand_dims reshape squeeze".split())
"""Primitives that cost nothing in a kernel that computes more."""

BY_ELEMENT: Final = ELEMENTWISE | frozenset("complex conj imag log2 real".split())
"""Primitives that go element by element."""

MOVES: Final = frozenset("concatenate iota pad rev slice split transpose".split())
"""Primitives that bring elements to other places."""

JOINS: Final = frozenset(
    "argmax argmin dot_general reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum".split()
)
"""Primitives whose results take several elements each."""

SLOW: Final = frozenset({"digamma", "erf_inv", "lgamma"})
"""Primitives by element that take as long as dozens of others."""

AGAIN: Final = (BY_ELEMENT | VIEWS | MOVES) - SLOW
"""Primitives that are cheaper computed twice than kept."""

MOVABLE: Final = AGAIN | JOINS | SLOW

DRAWS: Final = frozenset({"rng_uniform"})
"""Primitives that give something else each time."""

FREE: Final = VIEWS | {"convert_element_type", "iota"}
"""Primitives that are no work worth moving."""


def size(variable: Any) -> int:
    """Elements of a variable in one iteration."""
    shape: Sequence[int] = variable.aval.shape
    return prod(shape)


def nbytes(variable: Any) -> int:
    """Bytes of a variable in one iteration."""
    return size(variable) * int(variable.aval.dtype.itemsize)


def is_movable(equation: Any, most_bytes: float) -> bool:
    """Whether an equation can be computed for all iterations at once, in results of so many bytes each."""
    if equation.primitive.name not in MOVABLE or equation.effects:
        return False
    plain = all(isinstance(v.aval.dtype, np.dtype) for v in equation.outvars)
    return plain and all(nbytes(v) <= most_bytes for v in equation.outvars)
