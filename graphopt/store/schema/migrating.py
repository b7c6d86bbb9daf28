"""Upgrading a store to this version's tables, by alembic; importing this imports it and SQLAlchemy."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext


def upgrade(connection: sa.Connection, version: int = 0, to: str = "head") -> None:
    """Makes or upgrades all tables, in the connection's transaction.

    Args:
        connection: of the store; its transaction is left open.
        version: what the tables are at now, where they do not say so themselves; 0 for none.
        to: version to reach.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    if version and MigrationContext.configure(connection).get_current_revision() is None:
        command.stamp(config, str(version))
    command.upgrade(config, to)
