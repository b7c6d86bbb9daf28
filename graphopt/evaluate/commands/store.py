"""``graphopt store``: what a store holds, its tables on a server, and what waits to be written there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import tyro
from rich.console import Console

from graphopt.progress import waiting

if TYPE_CHECKING:
    import graphopt.store


PRUNED: Final = ("evaluations", "deliveries")
"""Tables that grow with every measurement; all others have a row per module, kernel or machine."""


@dataclass(frozen=True)
class Store:
    """The store: show what it holds, init its tables on a server, flush what waits for it, prune old rows."""

    action: Annotated[Literal["show", "init", "flush", "prune"], tyro.conf.Positional] = "show"
    """What to do."""
    url: str | None = None
    """postgresql://... (or the path of a file); $GRAPHOPT_STORE or the user's store by default."""
    reader: str | None = None
    """With init: a role of the server that may look for winners, and nothing else: enough for install()."""
    writer: str | None = None
    """With init: a role that may write what tuning and measuring find."""
    days: float = 365.0
    """With prune: older candidates are forgotten; winners, kernel times and quarantine stay."""

    def run(self) -> int:
        """Exit status 1 if the server refused writes that were kept for it."""
        from graphopt.store import Store as Place

        place = Place(self.url)
        if self.action == "init":
            with waiting(Console(), f"{place.shown}: tables and roles"):
                _initialise(place, self.reader, self.writer)
        elif self.action == "flush":
            with waiting(Console(), f"{place.shown}: sending what waits"):
                sent = place.flush()
            print(f"{place.shown}: {sent} writes sent")
        elif self.action == "prune":
            with waiting(Console(), f"{place.shown}: looking for old rows"):
                forgotten = prune(place, 86_400 * self.days)
            print(f"{place.shown}: {forgotten:,} rows forgotten")
        else:
            with waiting(Console(), f"{place.shown}: counting rows"):
                lines = lines_of(place)
            print("\n".join(lines))
        refused = place.outbox.refusals() if place.outbox is not None else []
        for reason in refused:
            print(f"refused: {reason}")
        place.close()
        return 1 if refused else 0


def _initialise(place: graphopt.store.Store, reader: str | None, writer: str | None) -> None:
    from graphopt.errors import ConfigError
    from graphopt.store.engines.roles import initialise
    from graphopt.store.schema import VERSION

    if place.url is None:
        raise ConfigError(
            what="only a store on a server needs to be made",
            where=place.shown,
            fix="Name one: graphopt store init --url postgresql://user@host/database.",
        )
    initialise(place.url, reader, writer)
    print(f"{place.shown}: version {VERSION}")
    for role, may in ((reader, "look for winners"), (writer, "write")):
        if role is not None:
            print(f"role {role} may {may}")


def prune(place: graphopt.store.Store, age_s: float) -> int:
    """Forgets measured candidates, and notes of deliveries, of more than an age; returns how many rows.

    Args:
        place: the store.
        age_s: in seconds.

    Raises:
        StoreError: it cannot be written.
    """
    import sqlalchemy as sa

    from graphopt.store.schema.tables import TABLES

    count = 0
    with place.transaction() as connection:
        for name in PRUNED:
            table = TABLES.tables[name]
            old = table.c.seen < time.time() - age_s
            count += connection.execute(sa.delete(table).where(old)).rowcount
    return count


def lines_of(place: graphopt.store.Store) -> list[str]:
    """Where a store is, the rows of its tables, and what waits for it.

    Raises:
        StoreError: it cannot be read.
    """
    from graphopt.store.schema import VERSION
    from graphopt.store.schema.tables import TABLES

    if not place.exists():
        return [f"{place.shown}: not there yet"]
    lines = [f"{place.shown}: version {VERSION}"]
    for table in TABLES.sorted_tables:
        ((count,),) = place.rows(f"SELECT count(*) FROM {table.name}")
        lines.append(f"  {table.name}: {count:,} rows")
    if place.outbox is not None:
        waiting, refused = place.outbox.counts()
        lines.append(f"  on this machine: {waiting:,} writes wait, {refused:,} were refused")
    return lines
