"""Writes ``statements.sql``: the statements of the store as SQLite's SQL. A test compares.

Run ``python -m graphopt.store.schema.page`` after a change of `graphopt.store.schema.tables` or
`graphopt.store.schema.statements`.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from graphopt.store.schema import VERSION
from graphopt.store.schema.statements import statements
from graphopt.store.schema.tables import TABLES
from graphopt.store.schema.texts import CREATE, FILE, MARK

_NOTED: Final = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Where alembic notes the version, as it makes the table itself."""


def write() -> str:
    """What ``statements.sql`` should hold."""
    dialect = sqlite.dialect(paramstyle="named")

    def sql(statement: sa.sql.ClauseElement) -> str:
        lines = str(statement.compile(dialect=dialect)).splitlines()
        return "\n".join(line.rstrip() for line in lines if line.strip())

    creation = []
    for table in TABLES.sorted_tables:
        creation.append(sql(sa.schema.CreateTable(table)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        creation += [sql(sa.schema.CreateIndex(index)) for index in indexes]
    out = ["-- Written by python -m graphopt.store.schema.page", f"{MARK}{CREATE}"]
    creation.append(sql(sa.schema.CreateTable(_NOTED)))
    creation.append(f"INSERT INTO {_NOTED.name} VALUES ('{VERSION}')")
    out.append(";\n".join(creation))
    for name, statement in sorted(statements("sqlite").items()):
        out += [f"{MARK}{name}", sql(statement)]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    FILE.write_text(write())
