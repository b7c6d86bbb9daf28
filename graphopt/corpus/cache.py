"""Captured modules on disk: one record per program, one file per module.

Files are written beside their place and moved into it, so that a reader sees a whole file or none.
Module files are named after their content. Several processes can use one directory at once: whoever
captures a program last wins, and a reader that finds a record or a file missing or damaged captures anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from graphopt.errors import WorkloadError
from graphopt.locations import cache_path

FORMAT: Final = 2
"""Version of the files; records of another version are captured anew."""


def default_directory() -> Path:
    """``$GRAPHOPT_CORPUS``, else ``graphopt/corpus`` under the user's cache directory."""
    return cache_path("GRAPHOPT_CORPUS", "corpus")


@dataclass(frozen=True)
class Record:
    """What is known about a captured program.

    Attributes:
        name: program name.
        family: its family.
        split: its split.
        key: digest of what the modules depend on, see `graphopt.corpus.entries.capture_key`.
        modules: hex SHA-256 of every module, the largest module first.
        nodes: graph nodes of every module, in the same order.
        loops: ``while`` operations in all modules.
        argument_bytes: bytes of all arguments.
        seconds: time to build, trace and compile.
        workload: ``pkg.module:builder`` of a program that a user added; empty for the corpus's own.
    """

    name: str
    family: str
    split: str
    key: str
    modules: tuple[str, ...]
    nodes: tuple[int, ...]
    loops: int
    argument_bytes: int
    seconds: float
    workload: str = ""

    def __post_init__(self) -> None:
        """Check what other code relies on.

        Raises:
            ValueError: there is no module, or not one size per module.
        """
        if not self.modules or len(self.modules) != len(self.nodes):
            raise ValueError(f"record of {self.name!r}: {len(self.modules)} modules")


class CorpusCache:
    """A directory of captured programs."""

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        """Names the directory (default: `default_directory`); nothing is touched before it is used."""
        self.directory = Path(directory) if directory is not None else default_directory()

    def record(self, name: str) -> Record | None:
        """The record of a program; None if there is none that can be read."""
        try:
            loaded = json.loads(self._record_path(name).read_text())
        except (OSError, ValueError):  # not there, not text, not JSON
            return None
        return _parse(loaded, name)

    def modules(self, record: Record) -> list[bytes] | None:
        """The modules of a record; None if one is missing or damaged."""
        found = []
        for digest in record.modules:
            try:
                data = self._module_path(digest).read_bytes()
            except OSError:
                return None
            if hashlib.sha256(data).hexdigest() != digest:
                return None
            found.append(data)
        return found

    def store(self, record: Record, modules: list[bytes]) -> None:
        """Writes a program's modules, then its record; then removes modules it had before.

        Raises:
            WorkloadError: the directory cannot be written.
        """
        before = self.record(record.name)
        try:
            for digest, data in zip(record.modules, modules, strict=True):
                _write(self._module_path(digest), data)
            text = json.dumps({"format": FORMAT, **asdict(record)}, indent=1)
            _write(self._record_path(record.name), text.encode())
        except OSError as error:
            raise WorkloadError(
                what=f"cannot be written: {error}",
                where=str(self.directory),
                fix="Name another directory with --dir or GRAPHOPT_CORPUS.",
            ) from error
        for digest in set(before.modules if before else ()) - set(record.modules):
            with contextlib.suppress(OSError):
                self._module_path(digest).unlink()

    def records(self) -> list[Record]:
        """All records that can be read, by name."""
        names = sorted(path.stem for path in self.directory.glob("programs/*.json"))
        return [record for name in names if (record := self.record(name)) is not None]

    def _record_path(self, name: str) -> Path:
        return self.directory / "programs" / f"{name}.json"

    def _module_path(self, digest: str) -> Path:
        return self.directory / "modules" / f"{digest}.hlo"


def digest_of(data: bytes) -> str:
    """Name of a module file."""
    return hashlib.sha256(data).hexdigest()


def _parse(loaded: Any, name: str) -> Record | None:
    """A record from JSON; None if it is of another format or incomplete."""
    try:
        if loaded.pop("format") != FORMAT or loaded["name"] != name:
            return None
        modules = tuple(str(digest) for digest in loaded.pop("modules"))
        nodes = tuple(int(count) for count in loaded.pop("nodes"))
        if not all(len(digest) == 64 and digest.isalnum() for digest in modules):
            return None  # a path is made of it
        return Record(modules=modules, nodes=nodes, **loaded)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
