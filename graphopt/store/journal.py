"""A file of JSON lines that long work adds to, so that an interrupted run can go on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of the file, none if it is missing; damaged lines, as a killed process leaves, are passed over."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def read_marked(path: Path, mark: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of the file that have the values of `mark`: those of a run with the same settings."""
    for row in read_journal(path):
        if all(row.get(name) == value for name, value in mark.items()):
            yield row


def add_to_journal(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a row on a line of its own, also behind a damaged one; makes the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        damaged = False
        if file.tell():
            file.seek(-1, 2)
            damaged = file.read(1) != b"\n"
        file.write((b"\n" if damaged else b"") + json.dumps(row).encode() + b"\n")
