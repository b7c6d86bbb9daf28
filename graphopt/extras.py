"""Optional dependencies: which extra of the package brings what, and the error where one is missing."""

from __future__ import annotations

import importlib.util
from typing import Final

from graphopt.errors import MissingExtraError

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "tune": ("psutil", "sklearn"),
    "plots": ("matplotlib",),
    "env": ("gymnasium",),
    "postgres": ("psycopg",),
    "train": (
        "flax",
        "jraph",
        "matplotlib",
        "optax",
        "orbax",
        "sklearn",
        "tensorboardX",
        "yaml",
    ),
    "ray": ("ray",),
    "telemetry": ("opentelemetry",),
}
"""Extra -> the modules it brings, as they are imported; `pyproject.toml` has their distributions."""


def available(module: str) -> bool:
    """True if a top-level module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # an import hook refuses it, or it is half loaded
        return False


def require(purpose: str, extra: str) -> None:
    """Checks that an extra is installed, before the work that needs it begins.

    Args:
        purpose: what was to be done, for the message: "training a policy".
        extra: a key of `EXTRAS`.

    Raises:
        MissingExtraError: a module of the extra is missing.
    """
    missing = [module for module in EXTRAS[extra] if not available(module)]
    if missing:
        raise MissingExtraError(
            what=f"{purpose} needs {', '.join(missing)}, which cannot be imported",
            where=f"optional dependencies [{extra}]",
            fix=fix(extra),
        )


def fix(extra: str) -> str:
    """How to install an extra, as a sentence."""
    return f'Install what is missing: pip install "graphopt[{extra}]".'
