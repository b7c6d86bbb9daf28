"""Where a store is: a file, or the URL of a server."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from graphopt.locations import cache_path

VARIABLE: Final = "GRAPHOPT_STORE"

COPY_VARIABLE: Final = "GRAPHOPT_STORE_COPY"
"""Names the folder of what is kept of servers on this machine."""

_SCHEMES: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")


def is_url(place: str | os.PathLike[str]) -> bool:
    """True for the URL of a PostgreSQL server."""
    return isinstance(place, str) and place.startswith(_SCHEMES)


def default_place() -> str | Path:
    """``$GRAPHOPT_STORE``, a path or a URL; else ``graphopt/store.sqlite`` in the user's cache directory."""
    named = os.environ.get(VARIABLE, "")
    return named if is_url(named) else cache_path(VARIABLE, "store.sqlite")


def local_path(url: str) -> Path:
    """The file on this machine that holds the copy of a server's store."""
    parts = urlsplit(url)
    server = f"{parts.hostname}:{parts.port or 5432}{parts.path}?{parts.query}"
    digest = hashlib.sha256(server.encode()).hexdigest()[:16]
    return cache_path(COPY_VARIABLE, "shared") / f"{digest}.sqlite"


def shown(url: str) -> str:
    """A URL for messages: without what may hold a password."""
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
