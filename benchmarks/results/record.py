"""One measured table, as it lies in ``docs/data``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks.results.kinds import KINDS
from graphopt.errors import ConfigError

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT / "docs" / "data"
_NAME: Final = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """A table with all that is needed to measure it again.

    Attributes:
        name: of its file, such as ``held-out``.
        kind: a name of `KINDS`: which columns the rows have.
        command: what measured it.
        machine: in words: processor, vector width, cores.
        versions: of jax and of what else matters.
        date: of the measurement, as 2026-11-24.
        source: the file or page that the rows were taken from.
        rows: the table; every row has the columns that its kind asks for.
        commit: that was measured; empty if it was not noted.
        seed: of the run; None where nothing is drawn.
        note: what a reader must know besides.
    """

    name: str
    kind: str
    command: str
    machine: str
    versions: Mapping[str, str]
    date: str
    source: str
    rows: tuple[Row, ...] = field(repr=False)
    commit: str = ""
    seed: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        """Checks every field.

        Raises:
            ConfigError: something is missing, or no such kind or column exists.
        """
        if not _NAME.fullmatch(self.name):
            raise self._error(f"the name {self.name!r}", "Use small letters, digits, - and dots.")
        if self.kind not in KINDS:
            raise self._error(f"the kind {self.kind!r}", f"Kinds: {', '.join(KINDS)}.")
        for key in ("command", "machine", "source"):
            if not getattr(self, key).strip():
                raise self._error(f"no {key}", f"Give --{key}.")
        if "jax" not in self.versions:
            raise self._error("no version of jax", "Give --jax.")
        try:
            date.fromisoformat(self.date)
        except ValueError:
            raise self._error(f"the date {self.date!r}", "Write it as 2026-11-24.") from None
        if not self.rows:
            raise self._error("no rows", "Measure first.")
        self._check_rows()

    def _check_rows(self) -> None:
        kind = KINDS[self.kind]
        for number, row in enumerate(self.rows):
            for column in kind.columns:
                value = row.get(column.key)
                if value is None and not column.optional:
                    raise self._error(
                        f"row {number} has no {column.key}", f"{self.kind} needs one in every row."
                    )
                if value is not None and not isinstance(value, column.type):
                    raise self._error(
                        f"{column.key} of row {number} is {value!r}",
                        f"{self.kind} wants {column.type} there.",
                    )

    def _error(self, what: str, fix: str) -> ConfigError:
        return ConfigError(what=what, where=f"result {self.name}", fix=fix)

    @property
    def about(self) -> str:
        """Machine, versions, commit and date in one line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        commit = [f"commit {self.commit}"] if self.commit else []
        return "; ".join([self.machine, versions, *commit, self.date])

    def text(self) -> str:
        """The file's text: one line per row, so that changes can be read."""
        fields = asdict(self)
        rows = fields.pop("rows")
        head = json.dumps(fields, indent=1, ensure_ascii=False).removesuffix("\n}")
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
        return f'{head},\n "rows": [\n{lines}\n ]\n}}\n'


def load(name: str, folder: Path = DATA) -> Result:
    """Reads one table.

    Raises:
        ConfigError: there is none of that name, or it is not valid.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.json")))
        raise ConfigError(what=f"no {path.name}", where=str(folder), fix=f"There are: {known}.")
    content = json.loads(path.read_text())
    return Result(**{**content, "rows": tuple(content["rows"])})


def load_all(folder: Path = DATA) -> dict[str, Result]:
    """All tables by name."""
    return {path.stem: load(path.stem, folder) for path in sorted(folder.glob("*.json"))}


def save(result: Result, folder: Path = DATA) -> Path:
    """Writes one table; returns its path."""
    path = folder / f"{result.name}.json"
    path.write_text(result.text())
    return path
