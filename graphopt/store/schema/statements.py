"""Every statement that is known beforehand, by name, built from the tables; this imports SQLAlchemy.

SQLite executes them as written to ``statements.sql`` by `graphopt.store.schema.page`, without SQLAlchemy.

The environment is named by what it is (parameters ``env_machine``, ``env_jaxlib``, ``env_options``), never by
its number, which differs between stores: a statement with its values means the same in each, and can be sent
later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from graphopt.store.schema import CHUNK
from graphopt.store.schema.bounds import at_most, bounded, number, size_of, text
from graphopt.store.schema.tables import (
    capabilities,
    compile_options,
    deliveries,
    environments,
    evaluations,
    kernels,
    machine_costs,
    quarantine,
    queue,
    winners,
)

DIALECTS: Final = ("sqlite", "postgresql")

_HERE: Final = sa.and_(
    environments.c.machine == sa.bindparam("env_machine"),
    environments.c.jaxlib == sa.bindparam("env_jaxlib"),
    environments.c.options == sa.bindparam("env_options"),
)


_OK: Final[Any] = sa.literal_column("'ok'")


def _number(value: int) -> Any:
    return sa.literal_column(str(value), sa.Integer())


def _here() -> Any:
    return sa.select(environments.c.id).where(_HERE).scalar_subquery()


def _of(table: sa.Table, *names: str) -> Any:
    """Rows of this environment with given values in some columns."""
    same = [table.c[name] == sa.bindparam(name) for name in names]
    return sa.and_(*same, table.c.environment == _here())


def _insert(table: sa.Table, dialect: str) -> Any:
    """Inserts a row with a value for every column, in this environment."""
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    values = {c.name: sa.bindparam(c.name, type_=c.type) for c in table.c}
    if "environment" in values:
        values["environment"] = _here()
    return insert(table).inline().values(values)


def _put(table: sa.Table, dialect: str) -> Any:
    """Inserts a row, in place of one with the same key, unless that is newer."""
    statement = _insert(table, dialect)
    keys = [column.name for column in table.primary_key]
    columns = [column.name for column in table.c]
    new = {name: statement.excluded[name] for name in columns if name not in keys}
    return statement.on_conflict_do_update(
        index_elements=keys, set_=new, where=statement.excluded.seen >= table.c.seen
    )


def _merge_kernel(dialect: str) -> Any:
    """A mean weighted by samples; see `graphopt.store.kernels.put_kernels`."""
    statement = _insert(kernels, dialect)
    new, old = statement.excluded, kernels.c
    most = _number(4) * new.samples
    past = sa.case((old.samples < most, old.samples), else_=most)
    mean = (old.ns * past + new.ns * new.samples) / (past + new.samples)
    return statement.on_conflict_do_update(
        index_elements=["key", "environment"],
        set_={
            "ns": sa.case(
                (new.ns > _number(2) * old.ns, old.ns),
                (old.ns > _number(2) * new.ns, new.ns),
                else_=mean,
            ),
            "samples": old.samples + new.samples,
            "features": new.features,
            "seen": new.seen,
        },
    )


def _winner_columns(dialect: str) -> list[Any]:
    """Columns as `graphopt.store.winners.Winner` has them, and the signature."""
    return [bounded(column, dialect) for column in winners.c if column.name != "environment"]


def _not_quarantined() -> Any:
    return ~sa.exists().where(_same_decisions())


def _same_decisions() -> Any:
    return sa.and_(
        quarantine.c.digest == evaluations.c.digest,
        quarantine.c.fingerprint == evaluations.c.fingerprint,
        quarantine.c.environment == evaluations.c.environment,
    )


def _outcomes(dialect: str, where: Any, *more: Any) -> Any:
    known = sa.and_(quarantine.c.digest.is_(None), evaluations.c.status == _OK)
    ratio = sa.case((known, number(evaluations.c.ratio, dialect))).label("ratio")
    columns = [*more, bounded(evaluations.c.decisions, dialect), ratio]
    joined = evaluations.outerjoin(quarantine, _same_decisions())
    query = sa.select(*columns).select_from(joined).where(where)
    return at_most(columns, dialect, [*more, evaluations.c.digest], query)


def _list(dialect: str, names: Any, where: Any, *order: Any) -> Any:
    """Columns of rows, within the bounds of an answer."""
    columns = [bounded(column, dialect) for column in names]
    return at_most(columns, dialect, order, sa.select(*columns).where(where))


def _of_winners(dialect: str) -> Iterator[tuple[str, Any]]:
    columns = _winner_columns(dialect)
    yield "winner", sa.select(*columns).where(_of(winners, "fingerprint"))
    by_age = winners.c.seen.desc(), winners.c.fingerprint
    query = sa.select(*columns).where(_of(winners))
    yield "all_winners", at_most(columns, dialect, by_age, query)
    yield "any_winner", sa.select(sa.exists().where(_of(winners)))
    yield "revision", sa.select(bounded(environments.c.revision, dialect)).where(_HERE)
    yield "put_winner", _put(winners, dialect)
    yield "remove_winner", sa.delete(winners).where(_of(winners, "fingerprint"))
    # SQLAlchemy takes a parameter with the name of a column for a value to be set.
    module = winners.c.fingerprint == sa.bindparam("module")
    marked = sa.update(winners).where(module, _of(winners))
    yield "mark_verified", marked.values(verified=_number(1))
    changed = sa.update(environments).where(_HERE)
    yield "set_revision", changed.values(revision=sa.bindparam("number"))
    yield "winners_changed", changed.values(revision=environments.c.revision + _number(1))


def _of_evaluations(dialect: str) -> Iterator[tuple[str, Any]]:
    mine = _of(quarantine, "fingerprint")
    told = quarantine.c.digest, quarantine.c.reason
    newest = quarantine.c.seen.desc(), quarantine.c.digest
    yield "quarantined", _list(dialect, told, mine, *newest)
    yield "put_quarantine", _put(quarantine, dialect)
    yield "put_evaluation", _put(evaluations, dialect)
    mine = _of(evaluations, "fingerprint")
    good = sa.and_(mine, evaluations.c.status == _OK, _not_quarantined())
    best = evaluations.c.ratio.desc(), evaluations.c.digest
    pair = evaluations.c.decisions, evaluations.c.ratio
    yield "evaluations", _list(dialect, pair, good, *best)
    yield "outcomes", _outcomes(dialect, mine)
    here = environments.alias("here")
    elsewhere = (
        sa.select(environments.c.id)
        .where(environments.c.machine != sa.bindparam("env_machine"))
        .where(environments.c.jaxlib == sa.bindparam("env_jaxlib"))
        .where(environments.c.options == sa.bindparam("env_options"))
    )
    machine = sa.select(here.c.machine).where(here.c.id == evaluations.c.environment)
    there = sa.and_(
        evaluations.c.fingerprint == sa.bindparam("fingerprint"),
        evaluations.c.environment.in_(elsewhere),
    )
    named = text(machine.scalar_subquery(), dialect).label("machine")
    yield "outcomes_elsewhere", _outcomes(dialect, there, named)


def _of_machines(dialect: str) -> Iterator[tuple[str, Any]]:
    yield "environment_id", sa.select(environments.c.id).where(_HERE)
    values: dict[str, Any] = {n: sa.bindparam(f"env_{n}") for n in ("machine", "jaxlib", "options")}
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    added = insert(environments).inline().values(values).on_conflict_do_nothing()
    yield "add_environment", added
    kind = [
        machine_costs.c[name] == sa.bindparam(name)
        for name in ("vendor", "name", "simd_bits", "cores", "jaxlib")
    ]
    facts = machine_costs.c.facts, machine_costs.c.measured, machine_costs.c.seen
    yield "costs", sa.select(*(bounded(column, dialect) for column in facts)).where(*kind)
    yield "put_costs", _put(machine_costs, dialect)
    tried = capabilities.c.jaxlib == sa.bindparam("jaxlib")
    same = sa.and_(tried, capabilities.c.probes == sa.bindparam("probes"))
    held = capabilities.c.name, capabilities.c.holds
    yield "capabilities", _list(dialect, held, same, capabilities.c.name)
    yield "forget_capabilities", sa.delete(capabilities).where(tried)
    yield "put_capability", _put(capabilities, dialect)


def _of_programs(dialect: str) -> Iterator[tuple[str, Any]]:
    options = sa.select(bounded(compile_options.c.options, dialect))
    yield "options", options.where(_of(compile_options, "program"))
    yield "put_options", _put(compile_options, dialect)
    yield "put_kernel", _merge_kernel(dialect)
    names: list[Any] = [sa.bindparam(f"key{i}") for i in range(CHUNK)]
    some = sa.and_(_of(kernels), kernels.c.key.in_(names))
    timed = bounded(kernels.c.key, dialect), bounded(kernels.c.ns, dialect)
    yield "kernels_by_key", sa.select(*timed).where(some)
    whole = kernels.c.key, kernels.c.ns, kernels.c.samples, kernels.c.features
    yield "all_kernels", _list(dialect, whole, _of(kernels), kernels.c.key)
    sums = (
        sa.func.count(),
        sa.func.coalesce(sa.func.sum(kernels.c.samples), _number(0)),
        sa.func.coalesce(sa.func.max(kernels.c.seen), _number(0)),
    )
    yield "kernels_state", sa.select(*sums).where(_of(kernels))


def _of_deliveries(dialect: str) -> Iterator[tuple[str, Any]]:
    added = _insert(deliveries, dialect).on_conflict_do_nothing()
    yield "put_delivery", added.returning(deliveries.c.id)


def _of_queue(dialect: str) -> Iterator[tuple[str, Any]]:
    bytes_ = (
        size_of(queue.c.module, dialect),
        sa.func.coalesce(size_of(queue.c.recorded, dialect), _number(0)),
    )
    columns = [
        bounded(queue.c[name], dialect)
        for name in queue.c.keys()  # noqa: SIM118 - a collection of columns has no names to iterate
        if name not in ("environment", "module", "recorded")
    ]
    has_values = sa.case((queue.c.recorded.is_(None), _number(0)), else_=_number(1))
    columns.append(has_values.label("has_values"))
    by_age = queue.c.last_seen.desc(), queue.c.id
    one = _of(queue, "id")
    query = sa.select(*columns).where(_of(queue))
    yield "queue_items", at_most(columns, dialect, by_age, query)
    yield "queue_item", sa.select(*columns).where(one)
    yield "queue_inputs", sa.select(bounded(queue.c.inputs, dialect)).where(one)
    yield "queue_sizes", sa.select(*bytes_).where(one)
    within = (
        text(queue.c.module, dialect, "most_module"),
        text(queue.c.recorded, dialect, "most_recorded"),
    )
    yield "queue_bytes", sa.select(*within).where(one)
    settled = sa.and_(_of(queue), queue.c.state != sa.literal_column("'running'"))
    ages = [
        bounded(queue.c.id, dialect),
        (bytes_[0] + bytes_[1]).label("bytes"),
        bounded(queue.c.last_seen, dialect),
    ]
    yield "queue_ages", at_most(ages, dialect, by_age, sa.select(*ages).where(settled))
    yield "queue_ids", _list(dialect, [queue.c.id], _of(queue), *by_age)
    yield "queue_count", sa.select(sa.func.count()).select_from(queue)
    yield "add_item", _insert(queue, dialect).on_conflict_do_nothing()
    seen: dict[str, sa.ColumnElement[Any]] = {
        name: sa.bindparam(f"new_{name}", type_=queue.c[name].type) for name in _SEEN
    }
    seen["calls"] = queue.c.calls + seen["calls"]
    seen["processes"] = queue.c.processes + seen["processes"]
    for name in ("compile_s", "recorded"):
        seen[name] = sa.func.coalesce(seen[name], queue.c[name])
    known = sa.and_(
        _of(queue), queue.c.id == sa.bindparam("item")
    )  # SQLAlchemy sets a column named so
    yield "add_calls", sa.update(queue).where(known).values(**seen)
    yield "forget_item", sa.delete(queue).where(one)
    yield "clear_queue", sa.delete(queue)


_SEEN: Final = ("calls", "processes", "compile_s", "last_seen", "inputs", "recorded")
"""Columns that change when a process tells more of an item."""

GROUPS: Final = (
    _of_winners,
    _of_evaluations,
    _of_machines,
    _of_programs,
    _of_deliveries,
    _of_queue,
)


def statements(dialect: str) -> dict[str, Any]:
    """Name -> statement, with parameters by name.

    Args:
        dialect: one of `DIALECTS`.
    """
    return {name: statement for group in GROUPS for name, statement in group(dialect)}
