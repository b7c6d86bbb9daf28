"""What a store of several machines needs: counted changes, signatures, writes that arrive once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from graphopt.store.schema.tables import COUNT, NUMBER, TEXT

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Adds two columns, an index and a table."""
    op.add_column(
        "environments", sa.Column("revision", COUNT, nullable=False, server_default=sa.text("0"))
    )
    op.add_column("winners", sa.Column("signature", TEXT, nullable=False, server_default=""))
    op.create_index("winners_by_age", "winners", ["environment", "seen"])
    op.create_table(
        "deliveries",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("seen", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
