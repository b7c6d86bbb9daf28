"""Parts of the data set: what one collecting run measured, in one file that is never written again.

A part is a zip archive of JSON lines, compressed with xz, so that the standard library writes and reads it,
and so does anything else: no data library is among the dependencies, and none is needed for some 10 MB.

==================  ==========================================================================
``card.json``       who measured, where, with which versions, and how much
``tasks.jsonl.xz``  a row per task: what it is, where it was found, the heuristic's decisions
``modules.bin.xz``  serialised modules, one after the other; a task's ``module`` says where
``duels.jsonl.xz``  a row per duel
==================  ==========================================================================
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import subprocess
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import jax

from graphopt.errors import StoreError
from graphopt.machine import probe
from graphopt.store.database import environment
from graphopt.version import VERSION, source_digest

FORMAT: Final = 1
"""Raised when fields change their meaning."""

SUFFIX: Final = ".duels.zip"

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Part:
    """One part in memory.

    Attributes:
        path: its file.
        card: machine, versions, commit, counts.
        tasks: a row per task.
        duels: a row per duel.
    """

    path: Path
    card: Row
    tasks: list[Row]
    duels: list[Row]

    @cached_property
    def _modules(self) -> bytes:
        with zipfile.ZipFile(self.path) as file:
            return lzma.decompress(file.read("modules.bin.xz"))

    def module(self, task: Row) -> bytes:
        """The serialised module of one of its tasks."""
        start, length = task["module"]
        return self._modules[start : start + length]


def provenance() -> Row:
    """What a measurement depends on beside the task: machine, versions, options, commit."""
    machine, jaxlib, options = environment()
    return {
        "machine": machine,
        "processor": probe().name,
        "cores": probe().cores,
        "jax": jax.__version__,
        "jaxlib": jaxlib,
        "xla_options": options,
        "graphopt": VERSION,
        "source": source_digest(),
        "commit": _commit(),
    }


def _commit() -> str:
    """The commit of the source tree that runs; empty if it is none."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def write_part(
    folder: Path,
    card: Mapping[str, Any],
    tasks: Iterable[tuple[Row, bytes]],
    duels: Sequence[Row],
) -> Path:
    """Writes a part under a name of its own; it appears whole or not at all.

    The name ends with a digest of the duels. Where there is a part with the same duels already, nothing is
    written: whoever died between writing a part and forgetting its rows writes it again.

    Args:
        folder: made if need be.
        card: `provenance` and whatever else is to be known.
        tasks: row and serialised module of each task.
        duels: rows.

    Raises:
        StoreError: the file cannot be written.
    """
    text = _lines(duels)
    ending = f"{card.get('machine', 'machine')}-{hashlib.sha256(text).hexdigest()[:16]}{SUFFIX}"
    for path in folder.glob(f"*-{ending}"):
        return path
    rows, modules = [], bytearray()
    for row, data in tasks:
        rows.append({**row, "module": [len(modules), len(data)]})
        modules += data
    full = {
        "format": FORMAT, **card, "tasks": len(rows), "duels": len(duels),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{ending}"
    partial = path.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w") as file:
            file.writestr("card.json", json.dumps(full, indent=1))
            file.writestr("tasks.jsonl.xz", _packed(_lines(rows)))
            file.writestr("modules.bin.xz", _packed(bytes(modules)))
            file.writestr("duels.jsonl.xz", _packed(text))
        os.replace(partial, path)
    except OSError as error:
        raise StoreError(
            what=f"a part of the data set cannot be written: {error.strerror or error}",
            where=str(folder),
            fix="Choose a folder that you may write to, on a disk with room.",
        ) from error
    return path


def _lines(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def _packed(data: bytes) -> bytes:
    return lzma.compress(data, preset=9)


def read_part(path: Path) -> Part:
    """Reads a part.

    Raises:
        StoreError: the file is damaged, or of another format.
    """
    try:
        with zipfile.ZipFile(path) as file:
            card = json.loads(file.read("card.json"))
            if card["format"] != FORMAT:
                raise ValueError(f"format {card['format']}, this is {FORMAT}")
            tasks, duels = (
                [json.loads(line) for line in lzma.decompress(file.read(name)).splitlines()]
                for name in ("tasks.jsonl.xz", "duels.jsonl.xz")
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, lzma.LZMAError) as error:
        raise StoreError(
            what=f"a part of the data set cannot be read: {error}",
            where=str(path),
            fix="Take the file from where it was made again.",
        ) from error
    return Part(path, card, tasks, duels)


def read_parts(folder: Path) -> Iterator[Part]:
    """All parts in a folder, oldest first.

    Raises:
        StoreError: one is damaged.
    """
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield read_part(path)
