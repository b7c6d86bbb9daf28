"""Kernels, winners, quarantine, evaluations, compile options, each of an environment."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from graphopt.store.schema.tables import COUNT, NUMBER, TEXT

revision = "1"
down_revision = None


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "environments",
        sa.Column("id", COUNT, primary_key=True),
        *_texts("machine", "jaxlib", "options"),
        sa.UniqueConstraint("machine", "jaxlib", "options"),
    )
    _create(
        "kernels",
        *(_key("key"), _environment()),
        *(_number("ns"), _count("samples"), *_texts("features"), _number("seen")),
    )
    _create(
        "winners",
        *(_key("fingerprint"), _environment()),
        *(*_texts("decisions", "program"), _count("nodes")),
        *map(_number, ("default_s", "tuned_s", "speedup", "low", "high")),
        *(_count("evaluations"), _count("verified"), *_texts("origin"), _number("seen")),
    )
    _create(
        "quarantine",
        *(_key("fingerprint"), _environment(), _key("digest")),
        *(*_texts("decisions", "reason"), _number("seen")),
    )
    _create(
        "evaluations",
        *(_key("fingerprint"), _environment(), _key("digest")),
        *(*_texts("decisions"), sa.Column("ratio", NUMBER)),
        *(*_texts("status", "method"), _number("seen")),
    )
    _create(
        "compile_options",
        *(_key("program"), _environment(), *_texts("options")),
        *map(_number, ("speedup", "low", "high", "seen")),
    )


def _create(name: str, *columns: sa.Column[Any]) -> None:
    op.create_table(name, *columns, sqlite_with_rowid=False)


def _environment() -> sa.Column[Any]:
    return sa.Column("environment", COUNT, sa.ForeignKey("environments.id"), primary_key=True)


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, TEXT, primary_key=True)


def _texts(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, TEXT, nullable=False) for name in names]


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, COUNT, nullable=False)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, NUMBER, nullable=False)
