"""The two engines of the store: a SQLite file, and a PostgreSQL server."""
