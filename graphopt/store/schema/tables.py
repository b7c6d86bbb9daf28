"""Tables of the store, as SQLAlchemy metadata; importing this imports SQLAlchemy.

How to add a table:

1. Write it here, with `TABLES` as its metadata. Use the types `TEXT`, `COUNT` and `NUMBER`; what depends on
   the machine gets `environment_column()`.
2. Add ``graphopt/store/schema/migrations/versions/revision_<n>.py``, made of alembic's operations,
   and raise ``graphopt.store.schema.VERSION``. A test compares what migrations make with what is here.
3. Name the statements on it in `graphopt.store.schema.statements`, and run
   ``python -m graphopt.store.schema.page``.
4. Write a module beside `graphopt.store.winners` with functions on a `Store`: ``store.rows(name, values)``
   reads, ``store.write((name, values), ...)`` writes in one transaction; values of the environment are filled
   in. Statements that are not known beforehand go through ``with store.transaction() as connection``:
   SQLAlchemy's connection.
5. Say in `READABLE` or `WRITABLE` of `graphopt.store.engines.roles` who may use it on a server.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

TABLES: Final = sa.MetaData()

TEXT: Final = sa.Text()
COUNT: Final = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
BYTES: Final = sa.LargeBinary()
NUMBER: Final[sa.types.TypeEngine[Any]] = sa.REAL().with_variant(
    postgresql.DOUBLE_PRECISION(), "postgresql"
)


def environment_column() -> sa.Column[Any]:
    """The machine, jaxlib and options that a row holds for; part of the primary key."""
    return sa.Column("environment", COUNT, sa.ForeignKey("environments.id"), primary_key=True)


def _key(name: str, kind: sa.types.TypeEngine[Any] = TEXT) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, TEXT, nullable=False)


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, COUNT, nullable=False)


def _number(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, NUMBER, nullable=nullable)


def _table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    # Rows are found by their whole key: without SQLite's row numbers that is one look-up, not two.
    return sa.Table(name, TABLES, *columns, sqlite_with_rowid=False)


environments: Final = sa.Table(
    "environments",
    TABLES,
    sa.Column("id", COUNT, primary_key=True),
    _text("machine"),  # machine_key()
    _text("jaxlib"),  # version
    _text("options"),  # XLA flags that change generated code, sorted, one string
    # Changes of the winners so far: compiled code that depends on them has it in its key.
    sa.Column("revision", COUNT, nullable=False, server_default=sa.text("0")),
    sa.UniqueConstraint("machine", "jaxlib", "options"),
)

kernels: Final = _table(
    "kernels",
    _key("key"),  # digest of the canonical cluster body and its unit
    environment_column(),
    _number("ns"),  # median nanoseconds of one execution
    _count("samples"),  # measurements behind it
    _text("features"),  # JSON list, see graphopt.measure.bank.kernels
    _number("seen"),  # Unix time of the last measurement
)

winners: Final = _table(
    "winners",
    _key("fingerprint"),  # Graph.fingerprint of the default module
    environment_column(),
    _text("decisions"),  # JSON, see graphopt.store.encoding; "{}" keeps XLA's default
    _text("program"),  # what was tuned, for people
    _count("nodes"),
    _number("default_s"),  # median seconds of XLA's default
    _number("tuned_s"),  # median seconds of the winner, in turn with the default
    _number("speedup"),  # median of paired ratios, with its 95 % interval
    _number("low"),
    _number("high"),
    _count("evaluations"),  # candidates measured to find it
    _count("verified"),  # 1: results compared with the default's on this machine
    _text("origin"),  # "tuned here", "imported" or "shared"
    _number("seen"),
    # Proof that a machine of the team wrote the row, see graphopt.store.signing; "" for none.
    sa.Column("signature", TEXT, nullable=False, server_default=""),
    sa.Index("winners_by_age", "environment", "seen"),
)

quarantine: Final = _table(
    "quarantine",
    _key("fingerprint"),
    environment_column(),
    _key("digest"),  # decisions_digest()
    _text("decisions"),
    _text("reason"),  # "abort: SIGSEGV", "wrong result", "hang", "memory" ...
    _number("seen"),
)

evaluations: Final = _table(
    "evaluations",
    _key("fingerprint"),
    environment_column(),
    _key("digest"),
    _text("decisions"),
    _number("ratio", nullable=True),  # default time / candidate time; NULL where it failed
    _text("status"),  # "ok" or why it failed
    _text("method"),  # what proposed it
    _number("seen"),
)

compile_options: Final = _table(
    "compile_options",
    _key("program"),  # digest of the lowered program
    environment_column(),
    _text("options"),  # JSON object of XLA options; "{}" keeps the defaults
    _number("speedup"),
    _number("low"),
    _number("high"),
    _number("seen"),
)

machine_costs: Final = _table(
    "machine_costs",
    _key("vendor"),  # these five: MachineKind
    _key("name"),
    _key("simd_bits", COUNT),
    _key("cores", COUNT),
    _key("jaxlib"),
    _text("facts"),  # JSON object: name of a fact -> measured value, where it differs
    _count("measured"),  # facts that were measured, those that do not differ too
    _number("seen"),  # Unix time of the measurement
)

capabilities: Final = _table(
    "capabilities",
    _key("jaxlib"),  # version that was tried
    _key("name"),  # see graphopt.measure.capabilities.table
    _count("probes"),  # version of the probes that tried it
    _count("holds"),  # 1: it holds there
    _number("seen"),
)

deliveries: Final = _table(
    "deliveries",
    _key("id"),  # of a queued write that has arrived: sent again, it is passed over
    _number("seen"),
)

queue: Final = sa.Table(
    "queue",
    TABLES,
    _key("id"),  # digest of the module without labels, see graphopt.store.queue_items
    environment_column(),
    _text("program"),  # name of the module, for people
    sa.Column("module", BYTES, nullable=False),  # zlib, without labels
    _count("module_bytes"),
    _text("inputs"),  # JSON list of [shape, dtype, low, high]
    sa.Column("recorded", BYTES),  # values of the inputs, where the user asked for that
    _number("compile_s"),
    _count("processes"),  # that compiled it
    _number("calls"),  # in all of them
    _number("first_seen"),
    _number("last_seen"),
    _text("state"),  # waiting, running, done or failed
    _text("reason"),
    _text("owner"),  # of the lease
    _number("lease_until"),  # Unix time
    _count("attempts"),  # leases
    _number("call_s", nullable=True),  # by XLA's default, estimated until it is tuned
    _number("gain", nullable=True),  # share of a call that is saved, estimated until it is tuned
    _number("speedup", nullable=True),
    _number("low", nullable=True),
    _number("high", nullable=True),
    _number("spent_s"),  # of tuning
)
