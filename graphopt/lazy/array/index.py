"""What an index means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphopt.lazy.core.node import Node


@dataclass
class Index:
    """An index in the form that operations take.

    Attributes:
        items: one tuple per entry (see `index_ops`).
        extra: nodes of parameters and index arrays, in the order of their items.
        advanced: whether it holds integer arrays.
    """

    items: tuple[tuple[Any, ...], ...]
    extra: tuple[Node, ...]
    advanced: bool
