"""What the workers of one test run share: results that several tests compare with, computed once."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "GRAPHOPT_TESTS_SHARED"
"""Names the folder of this run, which `conftest` makes and removes."""


def shared(name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, from whichever worker asked first; each makes it itself outside of a run.

    Args:
        name: a file name; one per value.
        make: returns something that can be pickled.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return make()
    path = Path(folder, name)
    try:
        return pickle.loads(path.read_bytes())
    except FileNotFoundError:
        value = make()
    part = path.with_name(f"{name}.{os.getpid()}.part")
    part.write_bytes(pickle.dumps(value))
    part.replace(path)
    return value
