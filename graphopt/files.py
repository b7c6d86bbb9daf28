"""Directories that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from graphopt.errors import PolicyError


def write_directory(path: Path, fill: Callable[[Path], None]) -> None:
    """Lets `fill` write a new directory and moves it to `path`, replacing what is there.

    Replacing takes two renames: a reader in between sees no directory, never a partial one.

    Raises:
        PolicyError: the directory cannot be written.
    """
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as work:
            new, old = Path(work, "new"), Path(work, "old")
            new.mkdir()
            fill(new)
            if path.exists():
                os.rename(path, old)
            try:
                os.rename(new, path)
            except OSError:
                if old.exists():
                    os.rename(old, path)
                raise
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise PolicyError(
            what=f"cannot be written: {error.strerror or error}",
            where=str(path),
            fix="Choose a directory that you may write to, on a disk with room.",
        ) from error
