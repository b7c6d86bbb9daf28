"""Winners, quarantine and the log of evaluations."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from graphopt.errors import StoreError
from graphopt.store.database import MOST_BYTES, Store
from graphopt.store.encoding import decisions_digest
from graphopt.store.screening import (
    MAX_COUNT,
    fetched,
    is_text,
    name_refused,
    screened,
    shortened,
)
from graphopt.store.signing import sign

KEPT = "{}"
"""Encoded decisions of a winner that is XLA's default."""


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


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
            if isinstance(value, str) and not is_text(value):
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


def put_winner(store: Store, winner: Winner) -> None:
    """Stores a winner; replaces the one of the same module and environment, unless that is newer."""
    store.write(("put_winner", winner_row(store, winner)), ("winners_changed", {}))


def copy_winner(store: Store, winner: Winner) -> None:
    """Keeps a winner of another store, in place of what was known of its module, however new that is."""
    store.write(
        ("remove_winner", {"fingerprint": winner.fingerprint}),
        ("put_winner", winner_row(store, winner)),
    )


def winner_row(store: Store, winner: Winner) -> dict[str, Any]:
    """A row, signed if this machine has compared the winner's results and knows the secret."""
    signed = winner.verified and winner.changes
    signature = sign(store.here, winner.fingerprint, winner.decisions) if signed else ""
    return {**asdict(winner), "verified": int(winner.verified), "signature": signature}


def get_signed(store: Store, fingerprint: str) -> tuple[Winner, str] | None:
    """The winner of a module in this environment, and its signature.

    Raises:
        StoreError: the store cannot be read, or what it has is no winner.
    """
    rows = store.rows("winner", {"fingerprint": fingerprint})
    return (_winner(rows[0]), str(rows[0][-1])) if rows else None


def get_winner(store: Store, fingerprint: str) -> Winner | None:
    """The winner of a module in this environment.

    Raises:
        StoreError: the store cannot be read, or what it has is no winner.
    """
    found = get_signed(store, fingerprint)
    return None if found is None else found[0]


def all_winners(store: Store) -> list[Winner]:
    """Winners of this environment, newest first; rows that are none are named in the log."""
    found, refused = [], []
    for row in fetched(store, "all_winners"):
        try:
            found.append(_winner(row))
        except StoreError as error:
            refused.append(f"{shortened(row[0])}: {error.what}")
    name_refused(store, "all_winners", refused)
    return found


def remove_winner(store: Store, fingerprint: str) -> None:
    """Forgets a winner."""
    store.write(("remove_winner", {"fingerprint": fingerprint}), ("winners_changed", {}))


def mark_verified(store: Store, fingerprint: str) -> None:
    """Notes that a winner's results equal the default's on this machine."""
    store.write(("mark_verified", {"module": fingerprint}))


def revision(store: Store) -> int:
    """Number of changes of the winners of this environment so far; 0 where that is no number."""
    rows = screened(store, "revision")
    return int(rows[0][0]) if rows else 0


def set_revision(store: Store, number: int) -> None:
    """Notes the changes of another store, of which this is a copy."""
    store.write(("set_revision", {"number": number}))


def any_winner(store: Store) -> bool:
    """True if there is a winner for this environment."""
    return bool(store.rows("any_winner")[0][0])


def put_quarantine(store: Store, fingerprint: str, decisions: str, reason: str) -> None:
    """Never try these decisions on this module again."""
    values = {"fingerprint": fingerprint, "decisions": decisions, "reason": reason}
    more = {"digest": decisions_digest(decisions), "seen": time.time()}
    store.write(("put_quarantine", {**values, **more}))


def quarantined(store: Store, fingerprint: str) -> dict[str, str]:
    """Digest of decisions -> why they are never tried again."""
    return dict(screened(store, "quarantined", {"fingerprint": fingerprint}))


def put_evaluation(
    store: Store, fingerprint: str, decisions: str, ratio: float | None, status: str, method: str
) -> None:
    """Logs one measured candidate."""
    values = {"fingerprint": fingerprint, "decisions": decisions, "ratio": ratio}
    more = {"digest": decisions_digest(decisions), "seen": time.time()}
    store.write(("put_evaluation", {**values, **more, "status": status, "method": method}))


def evaluations(store: Store, fingerprint: str) -> list[tuple[str, float]]:
    """(decisions, ratio) of every candidate that worked and is not quarantined, best first."""
    rows = screened(store, "evaluations", {"fingerprint": fingerprint})
    return [(decisions, float(ratio)) for decisions, ratio in rows]


def outcomes(store: Store, fingerprint: str) -> list[tuple[str, float | None]]:
    """(decisions, ratio or None where it failed) of every candidate ever tried, quarantined ones too."""
    return _ratios(screened(store, "outcomes", {"fingerprint": fingerprint}))


def outcomes_elsewhere(store: Store, fingerprint: str) -> list[list[tuple[str, float | None]]]:
    """`outcomes` of every other machine with the same jaxlib and options, where there are any."""
    rows = screened(store, "outcomes_elsewhere", {"fingerprint": fingerprint})
    machines = itertools.groupby(rows, key=lambda row: row[0])
    return [_ratios(row[1:] for row in group) for _, group in machines]


def _ratios(rows: Iterable[tuple[str, float | None]]) -> list[tuple[str, float | None]]:
    return [(text, None if ratio is None else float(ratio)) for text, ratio in rows]


def put_options(
    store: Store, program: str, options: dict[str, str], ratio: tuple[float, float, float]
) -> None:
    """Stores the best compile options of a lowered program; `ratio` is speed-up, low, high."""
    values = dict(zip(("speedup", "low", "high"), ratio, strict=True))
    more = {"program": program, "options": json.dumps(options), "seen": time.time()}
    store.write(("put_options", {**values, **more}))


def get_options(store: Store, program: str) -> dict[str, str]:
    """Compile options of a lowered program; empty where none are better than the defaults.

    Raises:
        StoreError: the store cannot be read, or what it has are no options.
    """
    rows = store.rows("options", {"program": program})
    if not rows:
        return {}
    try:
        return {str(k): str(v) for k, v in json.loads(rows[0][0]).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            what=f"compile options cannot be used: {error}",
            where=store.shown,
            fix="Tune the program again.",
        ) from error


def _winner(row: tuple[object, ...]) -> Winner:
    *columns, _signature = row
    values = dict(zip((f.name for f in fields(Winner)), columns, strict=True))
    for field in fields(Winner):
        if field.type == "str" and values[field.name] is None:
            raise _bad(f"{field.name} is longer than {MOST_BYTES >> 20} MiB")
    if values["verified"] in (0, 1):
        values["verified"] = bool(values["verified"])
    return Winner(**values)  # type: ignore[arg-type]


def _bad(what: str) -> StoreError:
    return StoreError(
        what=f"a winner cannot be used: {what}",
        where="winner",
        fix="Tune the program again, or correct the file it came from.",
    )
