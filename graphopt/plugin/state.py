"""What is installed in this process, and what was seen so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphopt import xla_hook
from graphopt.outcomes import Ledger
from graphopt.plugin.blas_threads import BlasThreads
from graphopt.plugin.memory import Memory
from graphopt.policy import NamedPolicy

if TYPE_CHECKING:
    from graphopt.measure.adoption import StoredWinners
    from graphopt.measure.capabilities.table import Capabilities
    from graphopt.plugin.recording import Recorder


@dataclass
class Installation:
    """One `install` call.

    Attributes:
        policy: what decides.
        timeout_s: longest time a policy that is not ours may take.
        max_instructions: larger modules are left alone.
        keep_async: no program is moved to the thread that calls it.
        isolated: False if the persistent compilation cache cannot be kept apart.
        winners: what tuning has stored; None if the store is not to be used.
        capabilities: what this jaxlib keeps of a rewritten module.
        subscription: our place in XLA's hook.
        memory: answers given before.
        recorder: leaves modules in the store's queue; None where that was not asked for.
        blas_threads: takes threads away from BLAS where they stall; None where they are to be kept.
    """

    policy: NamedPolicy
    timeout_s: float
    max_instructions: int
    keep_async: bool
    isolated: bool
    winners: StoredWinners | None
    capabilities: Capabilities
    subscription: xla_hook.Subscription
    memory: Memory = field(default_factory=Memory)
    recorder: Recorder | None = None
    blas_threads: BlasThreads | None = None


@dataclass
class State:
    """Process-wide state of the plugin."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    installed: Installation | None = None
    ledger: Ledger = field(default_factory=Ledger)
    notes: list[str] = field(default_factory=list)


state = State()


def note(text: str) -> None:
    """Adds a note to the report, once."""
    if text not in state.notes:
        state.notes.append(text)
