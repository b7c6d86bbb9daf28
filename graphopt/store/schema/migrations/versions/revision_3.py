"""What a jaxlib keeps of a rewritten module, as tried."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from graphopt.store.schema.tables import COUNT, NUMBER, TEXT

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "capabilities",
        sa.Column("jaxlib", TEXT, primary_key=True),
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("probes", COUNT, nullable=False),
        sa.Column("holds", COUNT, nullable=False),
        sa.Column("seen", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
