"""Migrations of the store by alembic, for both engines; revisions are numbers."""
