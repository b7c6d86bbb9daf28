"""Which policy optimizes the lazy runtime's graphs, and what became of each."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import graphopt.version
from graphopt import plugin
from graphopt.errors import GraphOptError
from graphopt.lazy.core import metrics
from graphopt.policy.heuristic import caller_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphopt.hlo import Decisions, Graph
    from graphopt.measure.adoption import StoredWinners
    from graphopt.policy import NamedPolicy, Policy

_logger: Final = logging.getLogger("graphopt.lazy")

AUTO: Final = "auto"
"""The plugin's installed policy, or the shipped one if none is installed."""


@dataclass
class _State:
    choice: Any = AUTO
    checked: bool = False
    version: int = 0


_state: Final = _State()


def set_optimizer(policy: str | Policy | None = AUTO) -> None:
    """Sets what optimizes graphs that are compiled from now on.

    A graph compiled under another policy stays in the cache, under that policy.

    Args:
        policy: a policy name, a function ``Graph -> Decisions | None``, None for XLA's default, or
            ``"auto"`` for the installed policy (`graphopt.install`) or, without one, the shipped one.

    Raises:
        PolicyError: there is no such policy.
    """
    from graphopt.policy import resolve

    _state.choice = policy if policy is None or policy == AUTO else resolve(policy)
    _state.version += 1


def current() -> NamedPolicy | None:
    """The policy that a graph compiled now would get."""
    from graphopt.policy import resolve
    from graphopt.policy.registry import DEFAULT

    if os.environ.get("GRAPHOPT_DISABLE", "") not in ("", "0"):
        return None
    choice = _state.choice
    if choice != AUTO:
        found: NamedPolicy | None = choice
        return found
    return plugin.installed_policy() or resolve(DEFAULT)


def for_waiting_callers(policy: NamedPolicy | None) -> NamedPolicy | None:
    """A policy for graphs whose callers wait for each result: short ones run on the caller's thread.

    Policies of users, and None, stay as they are.
    """
    if policy is None or not policy.built_in:
        return policy
    decide = policy.decide

    def decide_waiting(graph: Graph) -> Decisions | None:
        return caller_thread.for_waiting_callers(graph, decide(graph))

    return replace(
        policy, key=f"{policy.key}-waiting", decide=decide_waiting, choose=None, passes_over=None
    )


def context() -> Any:
    """What tells executables of different optimizers apart in the cache."""
    policy = plugin.installed_policy() if _state.choice == AUTO else None
    return _state.version, policy, _state.checked


def checked_mode() -> bool:
    """Whether `checked` is active."""
    return _state.checked


@contextmanager
def checked() -> Iterator[None]:
    """Inside, every compiled graph also runs as XLA's default compiles it, and results are compared.

    Where they differ by more than rounding, the default's are kept, the graph stays on the default
    from then on, and `lt.metrics()` and the log say so.
    """
    before, _state.checked = _state.checked, True
    _state.version += 1
    try:
        yield
    finally:
        _state.checked = before
        _state.version += 1


def optimize(data: bytes, policy: NamedPolicy, name: str) -> tuple[bytes | None, str]:
    """Offers a module to a policy; whatever fails keeps XLA's default.

    Returns:
        The rewritten module or None, and the outcome in words.
    """
    try:
        winners = _winners() if policy.built_in else None
        record, answer = plugin.optimize_module(data, policy, winners=winners)
    except GraphOptError as error:
        metrics.fallback(f"optimizer: {error.what}")
        return None, f"fell back: {error.what}"
    if record.outcome.value == "fell back":
        metrics.fallback(f"optimizer: {record.reason}")
        _logger.warning("%s keeps XLA's default: %s", name, record.reason)
    metrics.outcome(str(record.outcome))
    return answer, f"{record.outcome}: {record.reason}" if record.reason else str(record.outcome)


def keeps_donation(policy: NamedPolicy | None) -> bool:
    """Whether a module that this policy rewrites still gets the buffers that are given to it."""
    from graphopt.measure.capabilities.own import own_capabilities

    return policy is None or "donation" in own_capabilities().holding


def cache_text(policy: NamedPolicy | None) -> str:
    """What makes entries of jax's persistent cache differ between optimizers."""
    from graphopt.machine import machine_key
    from graphopt.machine.cost_rows import measured_key

    if policy is None:
        return "lazy-default"
    try:
        tuned = _winners().state() if policy.built_in else "no store"
    except GraphOptError:
        tuned = "unreadable store"
    source = graphopt.version.source_digest()
    return "-".join(("lazy", policy.key, machine_key(), source, tuned, measured_key()))


def _winners() -> StoredWinners:
    """What tuning has stored; it comes before what a built-in policy decides."""
    from graphopt.measure.adoption import StoredWinners
    from graphopt.store import Store

    return StoredWinners(Store())


def renew() -> None:
    """Makes graphs compile anew at their next run: what decides about them has changed."""
    _state.version += 1
