"""The package version, without importing the package."""

import hashlib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

try:
    VERSION = version("graphopt")
except PackageNotFoundError:  # a source tree that was never installed
    VERSION = "0+unknown"


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Digest of the package's own code: equal digests decide and rewrite alike."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
