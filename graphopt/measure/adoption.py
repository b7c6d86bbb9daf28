"""Stored winners at compile time: found by fingerprint, checked, verified before their first use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.errors import GraphOptError
from graphopt.hlo import Decisions, Graph
from graphopt.measure.children.runner import Runner
from graphopt.store import Store, Winner, decode_decisions
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
    """Looks winners up; cheap where the store is empty or not there."""

    def __init__(self, store: Store) -> None:
        """Names the store; a missing file is not made."""
        self.store = store

    def state(self) -> str:
        """Text that changes with the winners: part of compilation cache keys."""
        return str(revision(self.store) if self.store.exists() else 0)

    def any(self) -> bool:
        """True if there are winners for this environment."""
        return self.store.exists() and any_winner(self.store)

    def find(self, graph: Graph, data: bytes) -> Adopted | None:
        """The winner of a module, verified; None where there is none.

        An imported winner is tried in a child process first, which takes some seconds once. If it does not
        fit, fails, differs or is no faster, it is removed and the reason returned.

        Raises:
            StoreError: the store cannot be read.
        """
        winner = get_winner(self.store, graph.fingerprint)
        if winner is None:
            return None
        if not winner.changes:
            return Adopted(None, "tuned: XLA's default is the fastest known")
        try:
            decisions = decode_decisions(graph, winner.decisions)
        except GraphOptError as error:
            remove_winner(self.store, winner.fingerprint)
            return Adopted(None, f"stored winner dropped: {error.what}")
        if not winner.verified:
            failure = self._verify(data, winner, decisions)
            if failure is not None:
                return Adopted(None, f"imported winner dropped: {failure}")
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
            return f"only {result.ratio:.2f}x on this machine"
        put_quarantine(self.store, winner.fingerprint, winner.decisions, result.status)
        return result.status
