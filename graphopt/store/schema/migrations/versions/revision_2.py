"""What was measured of kinds of machines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from graphopt.store.schema.tables import COUNT, NUMBER, TEXT

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "machine_costs",
        sa.Column("vendor", TEXT, primary_key=True),
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("simd_bits", COUNT, primary_key=True, autoincrement=False),
        sa.Column("cores", COUNT, primary_key=True, autoincrement=False),
        sa.Column("jaxlib", TEXT, primary_key=True),
        sa.Column("facts", TEXT, nullable=False),
        sa.Column("measured", COUNT, nullable=False),
        sa.Column("seen", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
