"""Rows of a store are data of others: what no program of ours writes is refused and named, never used.

How much is fetched at all is bounded before, by the statements (`graphopt.store.schema.bounds`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from graphopt.store.database import Store

MAX_COUNT: Final = 1 << 53
"""No count is larger, and every smaller one is exact as a floating-point number."""

NAMED: Final = 3
"""Of the rows of an answer that are refused, so many are named."""

_logger = logging.getLogger("graphopt.store")

Check = Callable[[object], bool]


def is_text(value: object) -> bool:
    """A text that can be written to a file."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def is_positive(value: object) -> bool:
    """A time, a ratio or a date."""
    return isinstance(value, int | float) and 0.0 < value < math.inf


def is_size(value: object) -> bool:
    """Bytes or a date, or none yet."""
    return isinstance(value, int | float) and 0 <= value < math.inf


def is_count(value: object) -> bool:
    """A whole number that is not negative."""
    return type(value) is int and 0 <= value < MAX_COUNT


def is_ratio(value: object) -> bool:
    """A ratio, or None for a failure."""
    return value is None or is_positive(value)


def is_flag(value: object) -> bool:
    """Yes or no."""
    return value in (0, 1)


COLUMNS: Final[Mapping[str, Mapping[str, Check]]] = {
    "evaluations": {"decisions": is_text, "ratio": is_positive},
    "outcomes": {"decisions": is_text, "ratio": is_ratio},
    "outcomes_elsewhere": {"machine": is_text, "decisions": is_text, "ratio": is_ratio},
    "quarantined": {"digest": is_text, "reason": is_text},
    "kernels_by_key": {"key": is_text, "ns": is_positive},
    "all_kernels": {"key": is_text, "ns": is_positive, "samples": is_count, "features": is_text},
    "capabilities": {"name": is_text, "holds": is_flag},
    "revision": {"revision": is_count},
    "queue_ages": {"id": is_text, "bytes": is_size, "last_seen": is_size},
    "queue_ids": {"id": is_text},
}
"""Statement -> its columns, each with what its values are."""

CUT: Final = frozenset(
    {
        "all_kernels", "all_winners", "capabilities", "evaluations", "outcomes", "outcomes_elsewhere",
        "quarantined", "queue_ages", "queue_ids", "queue_items",
    }
)  # fmt: skip
"""Statements that fetch the rows within the bounds, and say in a last column how many there are."""


def fetched(store: Store, query: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Rows of a statement of `CUT` without that column; says so where there are more.

    Raises:
        StoreError: the store cannot be read.
    """
    rows = store.rows(query, values or {})
    there = int(rows[0][-1]) if rows else 0
    if there > len(rows):
        _logger.warning(
            "%s: only %d of %d rows of %s are read", store.shown, len(rows), there, query
        )
    return [row[:-1] for row in rows]


def screened(store: Store, query: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Rows of a statement of `COLUMNS` that can be used; the others are named in the log.

    Raises:
        StoreError: the store cannot be read.
    """
    rows = fetched(store, query, values) if query in CUT else store.rows(query, values or {})
    columns = COLUMNS[query]
    good, refused = [], []
    for row in rows:
        wrong = [
            f"{name} is {shortened(value)}"
            for (name, fits), value in zip(columns.items(), row, strict=True)
            if not fits(value)
        ]
        if wrong:
            refused.append(f"{shortened(row[0])}: {', '.join(wrong)}")
        else:
            good.append(row)
    name_refused(store, query, refused)
    return good


def name_refused(store: Store, query: str, refused: Sequence[str]) -> None:
    """Says which rows of an answer are not used, and why."""
    if refused:
        told = "; ".join(refused[:NAMED])
        _logger.warning("%s: %d rows of %s are refused: %s", store.shown, len(refused), query, told)


def shortened(value: object) -> str:
    """A value for messages; a text that was too long to fetch is None."""
    if isinstance(value, str | bytes):
        value = value[:40]
    return "missing or too long" if value is None else repr(value)[:60]
