"""``graphopt collect``: what is measured, what is known already, what a run has done so far."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from graphopt.errors import ConfigError, StoreError
from graphopt.executing.opening import LOCAL
from graphopt.learn.collecting.command import FillPlan
from graphopt.learn.collecting.duelling import Row
from graphopt.locations import cache_path
from graphopt.store.journal import add_to_journal, read_journal
from graphopt.tasks.parts import provenance, read_parts, write_part

JOURNAL: Final = "collecting.jsonl"

CARD: Final = """\
# Duels

One file per collecting run (`graphopt collect`), never written again; `graphopt.tasks.parts` describes the
format and reads it. A row of `duels` is one pair of decision vectors of one task, timed in turn in one
process: `log_ratio` is log(rival's time / time) with its 95 % interval `low` to `high`, from the repeats in
`looks` (log ratio, low, high, pairs). `edits` is what differs from the rival: with `rival` "heuristic" from
the hand-written heuristic's decisions (`heuristic` of the task, as differences from XLA's), with "default"
from XLA's, with "policy" from the `state` that a policy reached (`graphopt collect --states-of`). Results of
every vector were compared with those of XLA's default. Inputs were recorded from the program where `inputs`
says so; they are not kept. `key` is equal for equal duels. Machine, versions and commit stand in each card.
"""


@dataclass(frozen=True)
class CollectPlan:
    """What is measured.

    Attributes:
        source: program sets, names, seconds, largest graphs; nothing that must stay unseen.
        out: folder of the parts.
        least_share: part of its program's estimated time that a task must take.
        executor: where duels are held, as for `graphopt.executing.opening.open_executor`.
        states_of: a policy over alternatives whose own states are measured; None for all alternatives of
            the heuristic's decisions.
        most: duels of a task, those about most time first; 0 for all.
    """

    source: FillPlan
    out: Path
    least_share: float = 0.02
    executor: str = LOCAL
    states_of: Path | None = None
    most: int = 0


@dataclass
class Progress:
    """What a run has done so far.

    Attributes:
        begin: when it began, seconds of a monotonic clock.
        programs: programs seen.
        tasks: tasks measured.
        duels: duels held.
        failed: of these without a time.
        clear: of these beyond doubt faster or slower.
        given_up: (program, task or module) of which something is missing because of circumstances -> why.
        left_out: the same for what cannot be measured at all.
    """

    begin: float = field(default_factory=time.perf_counter)
    programs: int = 0
    tasks: int = 0
    duels: int = 0
    failed: int = 0
    clear: int = 0
    given_up: dict[tuple[str, str], str] = field(default_factory=dict)
    left_out: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Since the begin."""
        return time.perf_counter() - self.begin

    @property
    def per_minute(self) -> float:
        """Duels."""
        return 60.0 * self.duels / max(self.seconds, 1e-9)


Tell = Callable[[str, Progress], None]
"""Told what is measured now."""


@contextlib.contextmanager
def alone(path: Path, what: str = "measures on this machine") -> Iterator[None]:
    """Holds a file: two runs would measure each other, or write one journal.

    Args:
        path: of the file; made if need be.
        what: another run that holds it does, for the message.

    Raises:
        StoreError: another run holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                what=f"another graphopt collect {what}",
                where=str(path),
                fix="Wait for it, or end it: what it has measured is kept.",
            ) from error
        yield


def machine_lock() -> Path:
    """The file that whoever measures on this machine holds."""
    return cache_path("GRAPHOPT_COLLECT_LOCK", "collect.lock")


class Notes:
    """The journal of a run and the parts of earlier ones: what is known, and what is not in a part yet.

    Attributes:
        folder: of both.
        known: keys of duels of this machine and these versions.
        gains: log ratios of those that were faster beyond doubt.
    """

    def __init__(self, folder: Path) -> None:
        """Reads what is there.

        Raises:
            StoreError: a part is damaged.
        """
        self.folder = folder
        self.source = provenance()
        self.journal = folder / JOURNAL
        self.known: set[str] = set()
        self.gains: dict[str, float] = {}
        for part in read_parts(folder):
            if part.card["machine"] == self.source["machine"] and (
                part.card["jaxlib"] == self.source["jaxlib"]
            ):
                for row in part.duels:
                    self._know(row)

    def note_task(self, row: Row, data: bytes) -> None:
        """Keeps a task."""
        encoded = base64.b64encode(data).decode()
        add_to_journal(self.journal, {"task row": row, "module": encoded, "run": self.source})

    def note_duel(self, row: Row) -> None:
        """Keeps a duel."""
        self._know(row)
        add_to_journal(self.journal, {"duel row": row})

    def _know(self, row: Row) -> None:
        self.known.add(row["key"])
        if row.get("status") == "ok" and row.get("low", 0.0) > 0.0:
            self.gains[row["key"]] = row["log_ratio"]

    def finish(self, **facts: Any) -> Path | None:
        """Writes a part of what the journal holds, and ends the journal; None if it holds no duel."""
        tasks: dict[str, tuple[Row, bytes]] = {}
        duels: list[Row] = []
        run = self.source
        for row in read_journal(self.journal):
            if "task row" in row:
                run = row["run"]
                tasks.setdefault(
                    row["task row"]["task"], (row["task row"], base64.b64decode(row["module"]))
                )
            elif "duel row" in row:
                duels.append(row["duel row"])
        path = None
        if duels:
            used = {row["task"] for row in duels}
            kept = [task for name, task in tasks.items() if name in used]
            path = write_part(self.folder, {**run, **facts}, kept, duels)
            (self.folder / "README.md").write_text(CARD)
        self.journal.unlink(missing_ok=True)
        return path


def check(plan: CollectPlan) -> None:
    """Checks what `FillPlan` does not.

    Raises:
        ConfigError: a share is no share, or a count below 0.
    """
    if plan.most < 0:
        raise ConfigError(
            what=f"{plan.most} duels of a task",
            where="--most",
            fix="Give a count, or 0 for all.",
        )
    if not 0.0 <= plan.least_share < 1.0:
        raise ConfigError(
            what=f"a least share of {plan.least_share}",
            where="--least-share",
            fix="Give a number from 0 to below 1.",
        )
