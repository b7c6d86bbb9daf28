"""Where graphopt keeps what belongs to a user: in the cache directory of the platform."""

from __future__ import annotations

import os
from pathlib import Path


def cache_path(variable: str, name: str) -> Path:
    """The path that an environment variable names, else `name` in the user's cache directory.

    That is ``$XDG_CACHE_HOME/graphopt``, by default ``~/.cache/graphopt``, on Linux. Nothing is created.

    Args:
        variable: environment variable; unset and empty are the same.
        name: file or directory.
    """
    named = os.environ.get(variable)
    if named:
        return Path(named)
    import platformdirs

    return platformdirs.user_cache_path("graphopt", appauthor=False) / name
