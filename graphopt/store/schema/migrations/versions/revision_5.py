"""The queue of modules that programs compiled, to be tuned in the background."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from graphopt.store.schema.tables import BYTES, COUNT, NUMBER, TEXT, environment_column

revision = "5"
down_revision = "4"


def _column(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[object]:
    return sa.Column(name, kind, nullable=False)


def _optional(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[object]:
    return sa.Column(name, kind)


def upgrade() -> None:
    """Adds a table."""
    op.create_table(
        "queue",
        sa.Column("id", TEXT, primary_key=True, autoincrement=False),
        environment_column(),
        _column("program", TEXT),
        _column("module", BYTES),
        _column("module_bytes", COUNT),
        _column("inputs", TEXT),
        _optional("recorded", BYTES),
        _column("compile_s", NUMBER),
        _column("processes", COUNT),
        _column("calls", NUMBER),
        _column("first_seen", NUMBER),
        _column("last_seen", NUMBER),
        _column("state", TEXT),
        _column("reason", TEXT),
        _column("owner", TEXT),
        _column("lease_until", NUMBER),
        _column("attempts", COUNT),
        _optional("call_s", NUMBER),
        _optional("gain", NUMBER),
        _optional("speedup", NUMBER),
        _optional("low", NUMBER),
        _optional("high", NUMBER),
        _column("spent_s", NUMBER),
    )
