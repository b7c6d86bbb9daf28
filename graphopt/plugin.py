"""install(), uninstall(), report(): the optimizer inside every ``jax.jit`` of this process.

Nothing here raises into the user's program, aborts it or hangs it: a module that cannot be rewritten
keeps XLA's default, and the report says why.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

import graphopt.version
from graphopt import jax_private, xla_hook
from graphopt.errors import GraphOptError, UnsupportedModuleError
from graphopt.hlo import Decisions, Graph, rewrite
from graphopt.hlo.gc_pause import gc_paused
from graphopt.hlo.graph.build import build_from_module
from graphopt.hlo.module.index import check_supported, parse
from graphopt.machine import machine_key, probe
from graphopt.outcomes import Ledger, ModuleRecord, Outcome, Report
from graphopt.policy import NamedPolicy, Policy, resolve
from graphopt.policy.heuristic.caller_thread import asynchronous
from graphopt.policy.registry import DEFAULT
from graphopt.policy_guard import compiled_by_a_policy, decide_guarded, message
from graphopt.store import Store

if TYPE_CHECKING:
    from graphopt.measure.adoption import Adopted, StoredWinners
    from graphopt.measure.capabilities.table import Capabilities

MIN_INSTRUCTIONS: Final = 8
"""Smaller modules hold one kernel or none; they are not worth a graph."""

_logger = logging.getLogger("graphopt")


@dataclass
class _Installation:
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
    """

    policy: NamedPolicy
    timeout_s: float
    max_instructions: int
    keep_async: bool
    isolated: bool
    winners: StoredWinners | None
    capabilities: Capabilities
    subscription: xla_hook.Subscription


@dataclass
class _State:
    """Process-wide state of the plugin."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    installed: _Installation | None = None
    ledger: Ledger = field(default_factory=Ledger)
    notes: list[str] = field(default_factory=list)


_state = _State()


def install(
    policy: str | Policy | None = DEFAULT,
    *,
    policy_timeout_s: float = 5.0,
    max_instructions: int = 100_000,
    keep_async: bool = False,
    store: str | os.PathLike[str] | Store | Literal[False] | None = None,
) -> None:
    """Optimizes every function that jax compiles for the CPU from now on.

    Modules for which the store has a tuned winner get that; the policy decides for all others.

    Functions compiled before keep their code (``jax.clear_caches()`` makes jax compile them anew).
    Installing again replaces the policy. ``GRAPHOPT_DISABLE=1`` in the environment turns this into a
    no-op that the report mentions. Under a jaxlib that graphopt does not know, the first install tries in
    a child process what rewriting rests on, which takes some seconds; the store remembers it.

    Args:
        policy: a policy name, or a function ``Graph -> Decisions | None``; None installs nothing and
            removes what was installed: XLA's default stands.
        policy_timeout_s: a policy function that takes longer is given up for that module.
        max_instructions: larger modules are left alone.
        keep_async: every call returns before its program ends, as with XLA's default. Otherwise programs
            of less than an estimated 0.15 ms run on the thread that calls them, which takes less time than to
            wake it when they end, but leaves no time for other work meanwhile.
        store: path of the store with tuned winners; the user's store by default, False for none.

    Raises:
        UnsupportedJaxError: jax or jaxlib is older than 0.10.2.
        PolicyError: there is no such policy.
    """
    if policy is None:
        uninstall()
        return
    xla_hook.check_jax()
    from graphopt.measure.adoption import StoredWinners  # it imports jax
    from graphopt.measure.capabilities.own import own_capabilities

    found = resolve(policy)
    with _state.lock:
        uninstall()
        if os.environ.get("GRAPHOPT_DISABLE", "") not in ("", "0"):
            _note("GRAPHOPT_DISABLE is set: nothing is optimized")
            return
        if found.note:
            _note(found.note)
        if jax_private.backends_initialized():
            _note(
                "functions compiled before install() keep their code; "
                "jax.clear_caches() makes jax compile them anew"
            )
        winners = None
        if store is not False:
            winners = StoredWinners(Store.of(store))
        capabilities = own_capabilities(winners.store if winners is not None else None)
        if not capabilities.known:
            _note(str(capabilities))
        subscription = xla_hook.subscribe(_handle)
        isolated = jax_private.set_cache_key_hook(
            lambda: "-".join((*_cache_key(found, winners), str(max_instructions), str(keep_async)))
        )
        _state.installed = _Installation(
            found,
            policy_timeout_s,
            max_instructions,
            keep_async,
            isolated,
            winners,
            capabilities,
            subscription,
        )


def _cache_key(policy: NamedPolicy, winners: StoredWinners | None) -> Iterator[str]:
    """What compiled code depends on beside the program."""
    yield policy.key
    yield machine_key()
    yield graphopt.version.source_digest()
    try:
        yield winners.state() if winners is not None else "no store"
    except GraphOptError as error:
        _note(f"stored winners are not used: {error}")
        yield "unreadable store"


def uninstall() -> None:
    """Stops optimizing. Functions compiled meanwhile keep their rewritten code."""
    with _state.lock:
        installed, _state.installed = _state.installed, None
        if installed is not None:
            installed.subscription.close()
            jax_private.reset_cache_key_hook()


def report() -> Report:
    """What was seen, rewritten, kept and why, since the first `install` of this process."""
    installed = _state.installed
    notes = [*_state.notes, *_platform_notes()]
    return _state.ledger.snapshot(installed.policy.name if installed else None, tuple(notes))


def reset_report() -> None:
    """Forgets all records and notes."""
    with _state.lock:
        _state.ledger = Ledger()
        _state.notes.clear()


def add_record(record: ModuleRecord) -> None:
    """Adds the outcome of something decided outside XLA's compile, such as a placement."""
    _state.ledger.add(record)


def _note(text: str) -> None:
    if text not in _state.notes:
        _state.notes.append(text)


def _platform_notes() -> Iterator[str]:
    if not jax_private.backends_initialized():
        return
    import jax

    platform = jax.default_backend()
    if platform != "cpu":
        yield (
            f"modules for {platform} are left alone: there XLA calls the hook before fusion, "
            "where decisions would not last"
        )


def installed_policy() -> NamedPolicy | None:
    """The policy of the last `install`; None if none is installed."""
    installed = _state.installed
    return None if installed is None else installed.policy


def optimize_module(
    data: bytes,
    policy: NamedPolicy,
    *,
    winners: StoredWinners | None = None,
    policy_timeout_s: float = 5.0,
    max_instructions: int = 100_000,
) -> tuple[ModuleRecord, bytes | None]:
    """Offers one module to a policy, for callers that compile on their own; never raises.

    The record also enters `report()`.

    Args:
        data: the module as XLA's hook receives it.
        policy: decides where there is no stored winner.
        winners: stored winners, which come first; None for none.
        policy_timeout_s: a policy function that takes longer is given up.
        max_instructions: larger modules are left alone.

    Returns:
        What became of the module, and its replacement or None for XLA's default.
    """
    # Callers give their compiles cache entries of their own.
    from graphopt.measure.capabilities.own import own_capabilities  # it imports jax

    subscription = xla_hook.Subscription(lambda _: None)
    capabilities = own_capabilities(winners.store if winners is not None else None)
    installation = _Installation(
        policy, policy_timeout_s, max_instructions, False, True, winners, capabilities, subscription
    )
    return _record(data, installation)


def _handle(data: bytes) -> bytes | None:
    """The hook: any failure keeps XLA's default."""
    installed = _state.installed
    return None if installed is None else _record(data, installed)[1]


def _record(data: bytes, installed: _Installation) -> tuple[ModuleRecord, bytes | None]:
    """Optimizes, and records how it went."""
    start = time.perf_counter()
    try:
        with gc_paused():
            record, answer = _optimize(data, installed)
    except UnsupportedModuleError as error:
        record, answer = _fell_back(data, error.rule), None
    except GraphOptError as error:
        record, answer = _fell_back(data, message(error)), None
    except BaseException as error:
        _logger.exception("graphopt failed on a module; it keeps XLA's default")
        record, answer = _fell_back(data, f"internal error {message(error)}"), None
    finished = replace(record, seconds=time.perf_counter() - start)
    _state.ledger.add(finished)
    _logger.info("%s", finished)
    return finished, answer


def _fell_back(data: bytes, reason: str) -> ModuleRecord:
    try:
        name = parse(data).proto.name
    except Exception:
        name = "unreadable module"
    return ModuleRecord(name, Outcome.FELL_BACK, reason)


def _optimize(data: bytes, installed: _Installation) -> tuple[ModuleRecord, bytes | None]:
    module = parse(data)
    name = module.proto.name
    if module.instruction_count < MIN_INSTRUCTIONS:
        return ModuleRecord(name, Outcome.KEPT, "too small to matter"), None
    if not installed.capabilities.sound:
        return ModuleRecord(name, Outcome.FELL_BACK, str(installed.capabilities)), None
    if not installed.isolated and jax_private.persistent_cache_enabled():
        return ModuleRecord(name, Outcome.FELL_BACK, "persistent cache cannot be kept apart"), None
    if compiled_by_a_policy():
        return ModuleRecord(name, Outcome.KEPT, "compiled by a policy"), None
    tuned = _has_winners(installed.winners)
    donation = installed.capabilities.donation
    check_supported(module, installed.max_instructions, allow_donation=tuned or donation)
    graph = build_from_module(module, probe())
    before = graph.default_cluster_count
    record = ModuleRecord(name, Outcome.KEPT, nodes=len(graph), clusters_before=before)
    adopted = _find_winner(graph, data, installed.winners) if tuned else None
    if adopted is not None:
        record = replace(record, reason=adopted.reason)
        if adopted.decisions is None:
            return record, None
        return _rewritten(graph, adopted.decisions, record, installed)
    check_supported(module, installed.max_instructions, allow_donation=donation)
    if installed.policy.choose is not None:
        chosen = installed.policy.choose(graph)
        if chosen is None:
            return replace(record, reason="no gain expected"), None
        steps = tuple(step.step for step in chosen.steps)
        record = replace(record, reason=chosen.name, expected=chosen.speedup, steps=steps)
        return _rewritten(graph, chosen.decisions, record, installed)
    decisions = decide_guarded(installed.policy, graph, installed.timeout_s)
    if isinstance(decisions, str):
        return replace(record, outcome=Outcome.FELL_BACK, reason=decisions), None
    if decisions is None:
        return replace(record, reason="no gain expected"), None
    return _rewritten(graph, decisions, record, installed)


def _rewritten(
    graph: Graph, decisions: Decisions, record: ModuleRecord, installed: _Installation
) -> tuple[ModuleRecord, bytes | None]:
    if installed.keep_async:
        decisions = asynchronous(decisions)
        if decisions.same_as(graph.default):
            return replace(record, reason="no gain expected"), None
    result = rewrite(graph, decisions)
    done = replace(
        record,
        outcome=Outcome.REWRITTEN,
        clusters_after=result.clusters,
        regions=result.regions,
        caller_thread=result.caller_thread,
    )
    return done, result.data


def _has_winners(winners: StoredWinners | None) -> bool:
    try:
        return winners is not None and winners.any()
    except GraphOptError as error:
        _note(f"stored winners are not used: {error}")
        return False


def _find_winner(graph: Graph, data: bytes, winners: StoredWinners | None) -> Adopted | None:
    try:
        return None if winners is None else winners.find(graph, data)
    except GraphOptError as error:
        _note(f"stored winners are not used: {error}")
        return None
