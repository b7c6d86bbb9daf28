"""Winners, quarantine and the log of evaluations."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from dataclasses import astuple, dataclass, fields
from typing import Final

from graphopt.errors import StoreError
from graphopt.store.database import Store
from graphopt.store.encoding import decisions_digest

KEPT = "{}"
"""Encoded decisions of a winner that is XLA's default."""


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool, int),
}


MAX_COUNT: Final = 1 << 53
"""No count is larger, and every smaller one is exact as a floating-point number."""


@dataclass(frozen=True)
class Winner:
    """The best known decisions of one module on one machine.

    Attributes:
        fingerprint: of the default module's graph.
        decisions: encoded; `KEPT` where nothing beat XLA's default.
        program: what was tuned.
        nodes: nodes of the graph.
        default_s: median seconds of XLA's default.
        tuned_s: median seconds of the winner.
        speedup: median of the paired ratios default / winner.
        low: lower end of its 95 % interval.
        high: upper end.
        evaluations: candidates measured to find it.
        verified: its results were compared with the default's on this machine.
        origin: ``tuned here`` or ``imported``.
        seen: Unix time.
    """

    fingerprint: str
    decisions: str
    program: str
    nodes: int
    default_s: float
    tuned_s: float
    speedup: float
    low: float
    high: float
    evaluations: int
    verified: bool
    origin: str
    seen: float

    def __post_init__(self) -> None:
        """Checks what an imported file could get wrong.

        Raises:
            StoreError: a field has another type, a time or ratio is not positive.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, _KINDS[str(field.type)]):
                raise _bad(f"{field.name} is {value!r}, not of type {field.type}")
            if isinstance(value, str) and not _is_text(value):
                raise _bad(f"{field.name} holds characters that no text has")
            if isinstance(value, int) and not 0 <= value < MAX_COUNT:
                raise _bad(f"{field.name} is out of range")
        numbers = (self.default_s, self.tuned_s, self.speedup, self.low, self.high, self.seen)
        if not all(math.isfinite(x) and x > 0 for x in numbers):
            raise _bad("a time or ratio is not a positive number")

    @property
    def changes(self) -> bool:
        """True if it differs from XLA's default."""
        return self.decisions != KEPT


_COLUMNS = ", ".join(f.name for f in fields(Winner))


def put_winner(store: Store, winner: Winner) -> None:
    """Stores a winner; replaces the one of the same module and environment."""
    environment = store.environment_id()
    with store.transaction() as connection:
        write_winner(connection, winner, environment)


def write_winner(connection: sqlite3.Connection, winner: Winner, environment: int) -> None:
    """`put_winner` as a part of a transaction."""
    marks = ", ".join("?" for _ in fields(Winner))
    connection.execute(
        f"INSERT OR REPLACE INTO winners ({_COLUMNS}, environment) VALUES ({marks}, ?)",
        (*astuple(winner), environment),
    )


def get_winner(store: Store, fingerprint: str) -> Winner | None:
    """The winner of a module in this environment."""
    rows = store.rows(
        f"SELECT {_COLUMNS} FROM winners WHERE fingerprint=? AND environment=?",
        (fingerprint, store.environment_id()),
    )
    return _winner(rows[0]) if rows else None


def all_winners(store: Store) -> list[Winner]:
    """Winners of this environment, newest first."""
    rows = store.rows(
        f"SELECT {_COLUMNS} FROM winners WHERE environment=? ORDER BY seen DESC",
        (store.environment_id(),),
    )
    return [_winner(row) for row in rows]


def remove_winner(store: Store, fingerprint: str) -> None:
    """Forgets a winner."""
    environment = store.environment_id()
    with store.transaction() as connection:
        connection.execute(
            "DELETE FROM winners WHERE fingerprint=? AND environment=?",
            (fingerprint, environment),
        )


def mark_verified(store: Store, fingerprint: str) -> None:
    """Notes that a winner's results equal the default's on this machine."""
    environment = store.environment_id()
    with store.transaction() as connection:
        connection.execute(
            "UPDATE winners SET verified=1 WHERE fingerprint=? AND environment=?",
            (fingerprint, environment),
        )


def put_quarantine(store: Store, fingerprint: str, decisions: str, reason: str) -> None:
    """Never try these decisions on this module again."""
    environment = store.environment_id()
    with store.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO quarantine VALUES (?, ?, ?, ?, ?, ?)",
            (
                fingerprint,
                environment,
                decisions_digest(decisions),
                decisions,
                reason,
                time.time(),
            ),
        )


def quarantined(store: Store, fingerprint: str) -> dict[str, str]:
    """Digest of decisions -> why they are never tried again."""
    rows = store.rows(
        "SELECT digest, reason FROM quarantine WHERE fingerprint=? AND environment=?",
        (fingerprint, store.environment_id()),
    )
    return {str(digest): str(reason) for digest, reason in rows}


def put_evaluation(
    store: Store, fingerprint: str, decisions: str, ratio: float | None, status: str, method: str
) -> None:
    """Logs one measured candidate."""
    environment = store.environment_id()
    with store.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                fingerprint,
                environment,
                decisions_digest(decisions),
                decisions,
                ratio,
                status,
                method,
                time.time(),
            ),
        )


def evaluations(store: Store, fingerprint: str) -> list[tuple[str, float]]:
    """(decisions, ratio) of every candidate that worked and is not quarantined, best first."""
    rows = store.rows(
        "SELECT decisions, ratio FROM evaluations AS e WHERE fingerprint=? AND environment=? "
        "AND status='ok' AND NOT EXISTS (SELECT 1 FROM quarantine AS q WHERE q.digest=e.digest "
        "AND q.fingerprint=e.fingerprint AND q.environment=e.environment) "
        "ORDER BY ratio DESC, digest",
        (fingerprint, store.environment_id()),
    )
    return [(str(decisions), float(ratio)) for decisions, ratio in rows]


def outcomes(store: Store, fingerprint: str) -> list[tuple[str, float | None]]:
    """(decisions, ratio or None where it failed) of every candidate ever tried, quarantined ones too."""
    return _outcomes(store, fingerprint, store.environment_id())


def _outcomes(store: Store, fingerprint: str, environment: int) -> list[tuple[str, float | None]]:
    rows = store.rows(
        "SELECT e.decisions, CASE WHEN q.digest IS NULL AND status='ok' THEN ratio END "
        "FROM evaluations AS e LEFT JOIN quarantine AS q ON q.digest=e.digest "
        "AND q.fingerprint=e.fingerprint AND q.environment=e.environment "
        "WHERE e.fingerprint=? AND e.environment=? ORDER BY e.digest",
        (fingerprint, environment),
    )
    return [(str(text), None if ratio is None else float(ratio)) for text, ratio in rows]


def outcomes_elsewhere(store: Store, fingerprint: str) -> list[list[tuple[str, float | None]]]:
    """`outcomes` of every other machine with the same jaxlib and options, where there are any."""
    here = store.environment_id()
    others = store.rows(
        "SELECT o.id FROM environments AS o, environments AS e WHERE e.id=? AND o.id!=e.id "
        "AND o.jaxlib=e.jaxlib AND o.options=e.options ORDER BY o.machine",
        (here,),
    )
    found = [_outcomes(store, fingerprint, int(row[0])) for row in others]
    return [known for known in found if known]


def put_options(
    store: Store, program: str, options: dict[str, str], ratio: tuple[float, float, float]
) -> None:
    """Stores the best compile options of a lowered program; `ratio` is speed-up, low, high."""
    environment = store.environment_id()
    with store.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO compile_options VALUES (?, ?, ?, ?, ?, ?, ?)",
            (program, environment, json.dumps(options), *ratio, time.time()),
        )


def get_options(store: Store, program: str) -> dict[str, str]:
    """Compile options of a lowered program; empty where none are better than the defaults."""
    rows = store.rows(
        "SELECT options FROM compile_options WHERE program=? AND environment=?",
        (program, store.environment_id()),
    )
    return {str(k): str(v) for k, v in json.loads(rows[0][0]).items()} if rows else {}


def _winner(row: tuple[object, ...]) -> Winner:
    values = dict(zip((f.name for f in fields(Winner)), row, strict=True))
    values["verified"] = bool(values["verified"])
    return Winner(**values)  # type: ignore[arg-type]


def _is_text(value: str) -> bool:
    """False for lone surrogates, which JSON can spell and no file can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bad(what: str) -> StoreError:
    return StoreError(
        what=f"a winner cannot be used: {what}",
        where="winner",
        fix="Tune the program again, or correct the file it came from.",
    )
