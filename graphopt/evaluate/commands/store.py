"""``graphopt store``: what a store holds, its tables on a server, and what waits to be written there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    import graphopt.store


@dataclass(frozen=True)
class Store:
    """The store: show what it holds, init its tables on a server, flush what waits for the server."""

    action: Annotated[Literal["show", "init", "flush"], tyro.conf.Positional] = "show"
    """What to do."""
    url: str | None = None
    """postgresql://... (or the path of a file); $GRAPHOPT_STORE or the user's store by default."""
    reader: str | None = None
    """With init: a role of the server that may look for winners, and nothing else: enough for install()."""
    writer: str | None = None
    """With init: a role that may write what tuning and measuring find."""

    def run(self) -> int:
        """Exit status 1 if the server refused writes that were kept for it."""
        from graphopt.store import Store as Place

        place = Place(self.url)
        if self.action == "init":
            _initialise(place, self.reader, self.writer)
        elif self.action == "flush":
            print(f"{place.shown}: {place.flush()} writes sent")
        else:
            print("\n".join(lines_of(place)))
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
