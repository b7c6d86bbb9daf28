"""What a file of a benchmark says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Found:
    """What a file says.

    Attributes:
        kind: of the table.
        rows: of the table.
        command: that writes such a file, as far as the file tells.
        versions: as far as the file tells.
        machine: as far as the file tells.
        date: as far as the file tells.
        seed: as far as the file tells.
        note: on rows that were left out.
    """

    kind: str
    rows: Rows
    command: str
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    date: str = ""
    seed: int | None = None
    note: str = ""
