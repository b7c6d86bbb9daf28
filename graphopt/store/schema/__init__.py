"""Tables of the store and the statements on them, for both engines."""

from __future__ import annotations

from typing import Final

VERSION: Final = 5
"""Version of the tables that this code reads and writes: the newest of `graphopt.store.schema.migrations`."""

APPLICATION_ID: Final = 0x47724F70
"""``PRAGMA application_id``: tells our SQLite files from others."""

CHUNK: Final = 100
"""Keys that one execution of the statement ``kernels_by_key`` looks up: parameters ``key0`` ... ``key99``."""
