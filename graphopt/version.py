"""The package version, without importing the package."""

import hashlib
import os
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("graphopt")
except PackageNotFoundError:  # a source tree that was never installed
    VERSION = "0+unknown"


_NO_DECISIONS = frozenset({"corpus", "env", "evaluate", "learn", "render", "tasks"})
"""Packages that neither decide about a module nor write one."""


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Digest of the package's own code: equal digests decide and rewrite alike."""
    digest = hashlib.sha256()
    root = os.path.dirname(os.path.abspath(__file__))
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(name for name in inner if folder != root or name not in _NO_DECISIONS)
        for name in sorted(name for name in files if name.endswith(".py")):
            path = os.path.join(folder, name)
            digest.update(path[len(root) :].encode())
            with open(path, "rb", buffering=0) as file:
                digest.update(file.read())
    return digest.hexdigest()[:16]
