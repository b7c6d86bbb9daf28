"""Winners as one file to commit or share: plain JSON, checked field by field, never code."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

from graphopt.errors import StoreError
from graphopt.store.database import Store, environment
from graphopt.store.winners import Winner, all_winners, get_winner, put_winner

FORMAT: Final = "graphopt-winners"
FORMAT_VERSION: Final = 1
MAX_BYTES: Final = 64 << 20


def export_winners(store: Store, path: str | os.PathLike[str]) -> int:
    """Writes all verified winners of this environment; returns how many. Replaces the file atomically.

    Raises:
        StoreError: the store cannot be read or the file cannot be written.
    """
    machine, jaxlib, options = environment()
    winners = [w for w in all_winners(store) if w.verified]
    data = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "environment": {"machine": machine, "jaxlib": jaxlib, "options": options},
        "winners": [asdict(w) for w in winners],
    }
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(data, indent=1) + "\n")
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _error(target, f"cannot be written: {error}") from error
    return len(winners)


def import_winners(store: Store, path: str | os.PathLike[str]) -> int:
    """Takes winners over from a file; returns how many.

    They count as unverified: before the first use of one its decisions are checked against the masks
    of the module at hand and its results against the default's, in a child process. A winner tuned here
    is not replaced.

    Raises:
        StoreError: the file is unreadable, damaged, of another format, or from another environment.
    """
    source = Path(path)
    data = _read(source)
    machine, jaxlib, options = environment()
    found = data.get("environment")
    ours = {"machine": machine, "jaxlib": jaxlib, "options": options}
    if not isinstance(found, dict) or found.get("jaxlib") != jaxlib:
        raise _error(source, f"was made for {str(found)[:200]}, this is {ours}")
    taken = 0
    for winner in [_winner(source, entry) for entry in _entries(source, data)]:
        known = get_winner(store, winner.fingerprint)
        if known is None or known.origin == "imported":
            put_winner(store, winner)
            taken += 1
    return taken


def _read(source: Path) -> dict[str, Any]:
    try:
        if source.stat().st_size > MAX_BYTES:
            raise _error(source, f"is larger than {MAX_BYTES >> 20} MiB")
        data = json.loads(source.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise _error(source, f"cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _error(source, "is not a file of winners")
    if data.get("version") != FORMAT_VERSION:
        raise _error(source, f"has version {data.get('version')!r}, this reads {FORMAT_VERSION}")
    return data


def _entries(source: Path, data: dict[str, Any]) -> list[Any]:
    entries = data.get("winners")
    if not isinstance(entries, list):
        raise _error(source, "has no list of winners")
    return entries


def _winner(source: Path, entry: Any) -> Winner:
    if not isinstance(entry, dict) or set(entry) != {f.name for f in fields(Winner)}:
        raise _error(source, "holds a winner with missing or unknown fields")
    return replace(Winner(**entry), verified=False, origin="imported")


def _error(path: Path, what: str) -> StoreError:
    return StoreError(
        what=f"the file {what}", where=str(path), fix="Export it again with graphopt tune --export."
    )
