"""Making the tables of a store on a server, and who may do what with them."""

from __future__ import annotations

from typing import Final

from graphopt.store.engines.server import connected, refuse_newer, server_errors

READABLE: Final = (
    "alembic_version",
    "environments",
    "winners",
    "compile_options",
)
"""What a process that only looks for winners reads."""

WRITABLE: Final = (
    "environments",
    "winners",
    "compile_options",
    "kernels",
    "evaluations",
    "quarantine",
    "machine_costs",
    "capabilities",
    "deliveries",
    "queue",
)
"""What tuning and measuring read and write."""


def initialise(url: str, reader: str | None = None, writer: str | None = None) -> None:
    """Makes or upgrades the tables, in one transaction, and grants rights on them to roles.

    Args:
        url: of the database, with a role that may create tables in it.
        reader: role that may look for winners, nothing else.
        writer: role that may also write what tuning and measuring find, but no table's definition.

    Raises:
        StoreError: the server does not answer or refuses, or its tables are newer than this program.
    """
    from graphopt.store.schema.migrating import upgrade

    with server_errors(url, "made"):
        engine = connected(url)
        try:
            with engine.begin() as connection:
                # Whoever comes at the same time waits, and finds the tables made.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(71245)")
                refuse_newer(connection, url)
                upgrade(connection)
                for statement in grants(reader, writer):
                    connection.exec_driver_sql(statement)
        finally:
            engine.dispose()


def grants(reader: str | None, writer: str | None) -> list[str]:
    """The SQL that gives rights on the tables to roles, which exist.

    Args:
        reader: as for `initialise`.
        writer: as for `initialise`.
    """
    statements = []
    if reader is not None:
        statements.append(f"GRANT SELECT ON {', '.join(READABLE)} TO {_quoted(reader)}")
    if writer is not None:
        role = _quoted(writer)
        statements += [
            f"GRANT SELECT ON alembic_version TO {role}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(WRITABLE)} TO {role}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}",
        ]
    return statements


def _quoted(name: str) -> str:
    """A role's name as an identifier: whatever it holds, it is a name and nothing else."""
    from sqlalchemy.dialects import postgresql

    return str(postgresql.dialect().identifier_preparer.quote_identifier(name))  # type: ignore[no-untyped-call]
