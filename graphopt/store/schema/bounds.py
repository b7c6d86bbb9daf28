"""Bounds of what a statement fetches: size of a value, bytes and rows of an answer. Rows may be anybody's.

Parameters ``most_bytes`` (of a text), ``most_total`` (of all texts of an answer) and ``most_rows`` are filled
in by `graphopt.store.Store`. What is over a bound is not even fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

NO_NUMBER: Final = "no number"
"""Stands for a blob that somebody wrote into a column of numbers of a file, however long it is."""


def size_of(column: Any, dialect: str) -> Any:
    """Bytes of a text or blob."""
    if dialect == "sqlite":
        return sa.func.length(sa.cast(column, sa.LargeBinary))
    return sa.func.octet_length(column)


def text(column: Any, dialect: str, most: str = "most_bytes") -> Any:
    """A text or blob, NULL where it is longer than a parameter says."""
    return sa.case((size_of(column, dialect) <= sa.bindparam(most), column))


def number(column: Any, dialect: str) -> Any:
    """A number; the begin of a text and `NO_NUMBER` for a blob where it is none: PostgreSQL takes neither."""
    if dialect != "sqlite":
        return column
    kind = sa.func.typeof(column)
    begin = sa.func.substr(column, sa.literal_column("1"), sa.literal_column("40"))
    return sa.case(
        (kind == sa.literal_column("'text'"), begin),
        (kind == sa.literal_column("'blob'"), sa.literal_column(f"'{NO_NUMBER}'")),
        else_=column,
    )


def bounded(column: Any, dialect: str) -> Any:
    """A column under its own name: a text, a blob or a number."""
    long = isinstance(column.type, sa.Text | sa.LargeBinary)
    value = text(column, dialect) if long else number(column, dialect)
    return value.label(column.name)


def at_most(columns: Sequence[Any], dialect: str, order: Sequence[Any], query: Any) -> Any:
    """The first rows of a query within the bounds of an answer, and in a last column how many there are.

    Args:
        columns: labelled, as `query` selects them.
        dialect: of the statement.
        order: of the rows.
        query: selects the columns; has no order of its own.
    """
    long = [c for c in columns if isinstance(c.type, sa.Text | sa.LargeBinary)]
    bytes_: Any = sa.literal_column("0")
    for column in long:
        bytes_ = bytes_ + sa.func.coalesce(size_of(column.element, dialect), sa.literal_column("0"))
    found = query.add_columns(
        sa.func.row_number().over(order_by=order).label("number"),
        sa.func.sum(bytes_).over(order_by=order, rows=(None, 0)).label("upto"),
        sa.func.count().over().label("there"),
    ).subquery("found")
    return (
        sa.select(*(found.c[column.name] for column in columns), found.c.there)
        .where(found.c.upto <= sa.bindparam("most_total"))
        .where(found.c.number <= sa.bindparam("most_rows"))
        .order_by(found.c.number)
    )
