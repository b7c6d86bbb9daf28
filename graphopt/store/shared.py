"""Winners of a server, for those who cannot wait: compiles in a user's process.

Two short questions go to the server for a compile: has anything changed, and is there a winner for this
module? What it answers is kept in a copy on this machine, a store in a file, which answers where the
server does not in time. A process only reads: a role with no other right is enough. What comes of a
winner here, whether it holds or is slow, is noted in the copy alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from graphopt.errors import GraphOptError, StoreError
from graphopt.store.database import Store
from graphopt.store.encoding import decisions_digest
from graphopt.store.engines.asking import Asker, TooLateError
from graphopt.store.engines.server import UnreachableError
from graphopt.store.signing import is_signed
from graphopt.store.winners import (
    copy_winner,
    get_options,
    get_signed,
    get_winner,
    put_options,
    quarantined,
    revision,
    set_revision,
)

DEADLINE_S: Final = 0.009
"""Longest wait for one answer; a compile asks twice, and is delayed by less than 20 ms."""

START_S: Final = 2.0
"""Longest wait of `SharedWinners.start`, which imports and connects."""

FRESH_S: Final = 1.0
"""Younger news of the server are not asked for again."""

PAUSE_S: Final = 1.0
"""First time for which a server that did not answer is left alone."""


_known: Final[dict[tuple[str, Path], SharedWinners]] = {}


def shared_winners(server: Store) -> SharedWinners:
    """The winners of a server: the same object for all who ask in this process.

    Args:
        server: a store on a server.
    """
    assert server.url is not None
    return _known.setdefault((server.url, server.path), SharedWinners(server))


class SharedWinners:
    """The winners of a server, and their copy on this machine.

    Attributes:
        server: the store on the server.
        copy: the store in a file.
    """

    def __init__(self, server: Store) -> None:
        """Reaches nothing yet.

        Args:
            server: a store on a server.
        """
        self.server = server
        self.copy = server.local
        self._asker = Asker(DEADLINE_S, PAUSE_S)
        self._lock = threading.Lock()
        self._asked = -FRESH_S
        self._missed = 0
        self._reason = ""

    def start(self) -> None:
        """Imports what a server needs and connects; waits for that, but not for ever.

        Raises:
            MissingExtraError: what a server needs is not installed.
        """
        try:
            self._ask(self._renew, START_S)
        except StoreError as error:
            self._miss(error.what)

    def refresh(self) -> int:
        """Number of changes of the server's winners, as far as it is known; asked for once in `FRESH_S`."""
        with self._lock:
            due = time.monotonic() - self._asked >= FRESH_S
            if due:
                self._asked = time.monotonic()
        if due:
            self._ask(self._renew)
        return revision(self.copy)

    def bring(self, fingerprint: str) -> None:
        """Takes the server's winner of a module over into the copy, if it answers in time.

        Raises:
            StoreError: what the server has is no winner.
        """
        self._ask(lambda: self._take(fingerprint))

    def options(self, program: str) -> dict[str, str]:
        """Compile options of a lowered program; empty where none are known to be better than the defaults."""

        def renew() -> None:
            found = get_options(self.server, program)
            if found != get_options(self.copy, program):
                put_options(self.copy, program, found, (1.0, 1.0, 1.0))

        self._ask(renew)
        return get_options(self.copy, program)

    def notes(self) -> list[str]:
        """What a user should know: that the server did not answer, how often, and why."""
        if not self._missed:
            return []
        where = self.server.shown
        return [f"{self._missed} times the copy answered for the store {where}: {self._reason}"]

    def _ask(self, question: Callable[[], None], deadline_s: float | None = None) -> None:
        try:
            self._asker.ask(question, deadline_s)
        except (TooLateError, UnreachableError) as error:
            if isinstance(error, UnreachableError):
                self._asker.failed()
            self._miss(error.what if isinstance(error, GraphOptError) else str(error))

    def _miss(self, reason: str) -> None:
        self._missed += 1
        self._reason = reason

    def _renew(self) -> None:
        there = revision(self.server)
        if there != revision(self.copy):
            set_revision(self.copy, there)

    def _take(self, fingerprint: str) -> None:
        found = get_signed(self.server, fingerprint)
        if found is None:
            return
        winner, signature = found
        if winner.fingerprint != fingerprint:
            raise StoreError(
                what="a winner cannot be used: it is another module's",
                where=self.server.shown,
                fix="Tune the program again.",
            )
        if decisions_digest(winner.decisions) in quarantined(self.copy, fingerprint):
            return
        signed = is_signed(self.server.here, fingerprint, winner.decisions, signature)
        known = get_winner(self.copy, fingerprint)
        if known is None or known.decisions != winner.decisions or (signed and not known.verified):
            copy_winner(self.copy, replace(winner, verified=signed, origin="shared"))
