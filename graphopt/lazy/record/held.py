"""Which tensors somebody holds: references are counted."""

from __future__ import annotations

import sys
from typing import Any, Final

from graphopt.lazy.record.tensor_base import TensorBase

_references: Final[Any] = sys.getrefcount


def held_elsewhere(handles: list[Any]) -> list[Any]:
    """The tensors of a list that something else refers to, too."""
    unused = _UNUSED
    return [tensor for tensor in handles if _references(tensor) > unused]


_UNUSED = 0
_UNUSED = max(
    count for handles in [[TensorBase()]] for count in [_references(tensor) for tensor in handles]
)
"""References that a tensor has while `held_elsewhere` looks at it and nobody holds it."""
