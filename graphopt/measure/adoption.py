"""Stored winners at compile time: found by fingerprint, checked, verified before their first use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.errors import GraphOptError
from graphopt.hlo import Decisions, Graph
from graphopt.measure.children.runner import Runner
from graphopt.store import Store, Winner, decode_decisions
from graphopt.store.shared import shared_winners
from graphopt.store.winners import (
    any_winner,
    get_winner,
    mark_verified,
    put_quarantine,
    remove_winner,
    revision,
)

VERIFY_TIMEOUT_S: Final = 60.0
VERIFY_BUDGET_S: Final = 1.0


@dataclass(frozen=True)
class Adopted:
    """What the store says of a module.

    Attributes:
        decisions: the winner; None keeps XLA's default.
        reason: for the report.
    """

    decisions: Decisions | None
    reason: str


class StoredWinners:
    """Looks winners up; cheap where the store is empty or not there.

    Attributes:
        store: where they are found, and what comes of them is noted: a file; for a store on a server its copy
            on this machine.
        shared: where they come from, if that is a server.
    """

    def __init__(self, store: Store) -> None:
        """Names the store; a missing file is not made, a server not reached."""
        self.shared = None if store.url is None else shared_winners(store)
        self.store = store if self.shared is None else self.shared.copy

    def state(self) -> str:
        """Text that changes with the winners: part of compilation cache keys."""
        if self.shared is not None:
            return f"shared {self.shared.refresh()}"
        return str(revision(self.store) if self.store.exists() else 0)

    def any(self) -> bool:
        """True if there are winners for this environment."""
        if self.shared is not None and self.shared.refresh() > 0:
            return True
        return self.store.exists() and any_winner(self.store)

    def notes(self) -> list[str]:
        """What a user should know of where winners come from."""
        return [] if self.shared is None else self.shared.notes()

    def find(self, graph: Graph, data: bytes) -> Adopted | None:
        """The winner of a module, verified; None where there is none.

        An imported winner, and one of a server without our team's signature, is tried in a child
        process first, which takes some seconds once. If it does not fit, fails, differs or is no
        faster, it is removed and the reason returned.

        Raises:
            StoreError: the store cannot be read.
        """
        if self.shared is not None:
            self.shared.bring(graph.fingerprint)
        winner = get_winner(self.store, graph.fingerprint)
        if winner is None:
            return None
        if not winner.changes:
            return Adopted(None, "tuned: XLA's default is the fastest known")
        try:
            decisions = decode_decisions(graph, winner.decisions)
        except GraphOptError as error:
            remove_winner(self.store, winner.fingerprint)
            if self.shared is not None:
                put_quarantine(self.store, winner.fingerprint, winner.decisions, error.what)
            return Adopted(None, f"stored winner dropped: {error.what}")
        if not winner.verified:
            failure = self._verify(data, winner, decisions)
            if failure is not None:
                return Adopted(None, f"{winner.origin} winner dropped: {failure}")
        return Adopted(decisions, f"stored winner, measured {winner.speedup:.2f}x")

    def _verify(self, data: bytes, winner: Winner, decisions: Decisions) -> str | None:
        """Why an imported winner cannot be used; None if it can."""
        try:
            with Runner(data, None, self.store, timeout_s=VERIFY_TIMEOUT_S) as runner:
                result = runner.measure(decisions, budget_s=VERIFY_BUDGET_S, method="imported")
        except GraphOptError as error:
            return error.what  # cannot be judged here: unused, but kept
        if result.ok and result.low > 1.0:
            mark_verified(self.store, winner.fingerprint)
            return None
        remove_winner(self.store, winner.fingerprint)
        if result.ok:  # legal and right, only slow: the tuner may look at it again
            if self.shared is not None:  # its copy is not the tuner's, and must not fetch it again
                put_quarantine(self.store, winner.fingerprint, winner.decisions, "slow")
            return f"only {result.ratio:.2f}x on this machine"
        put_quarantine(self.store, winner.fingerprint, winner.decisions, result.status)
        return result.status
