"""The statements of the store as SQLite's SQL, so that no look-up in a file needs SQLAlchemy.

`graphopt.store.schema.page` writes them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("statements.sql")

CREATE: Final = "create"
"""Name of the text with the statements that make all tables, separated by semicolons."""

MARK: Final = "-- name: "
"""In front of the name of a text, which the lines below it hold."""


@functools.cache
def texts() -> dict[str, str]:
    """Name of a statement -> SQL with parameters ``:name``."""
    named = FILE.read_text().split(MARK)[1:]
    return {name: text.strip() for name, _, text in (entry.partition("\n") for entry in named)}
