"""What alembic runs first: migrations use the connection that `graphopt.store.schema.migrating` opened."""

from __future__ import annotations

from alembic import context

from graphopt.store.schema.tables import TABLES

context.configure(connection=context.config.attributes["connection"], target_metadata=TABLES)
with context.begin_transaction():
    context.run_migrations()
