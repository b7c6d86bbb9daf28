"""What becomes of one module in XLA's hook.

Nothing here raises into the user's program, aborts it or hangs it: a module that cannot be rewritten
keeps XLA's default, and the report says why.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from graphopt import jax_private, xla_hook
from graphopt.errors import GraphOptError, UnsupportedModuleError, message
from graphopt.hlo import Decisions, Graph, rewrite
from graphopt.hlo.emit.release import release
from graphopt.hlo.gc_pause import gc_paused
from graphopt.hlo.graph.build import build_from_module
from graphopt.hlo.module.index import check_supported, has_donation, parse
from graphopt.machine import probe
from graphopt.outcomes import ModuleRecord, Outcome
from graphopt.plugin.donation import outweighs_donation
from graphopt.plugin.memory import Key, Recalled
from graphopt.plugin.state import Installation, note, state
from graphopt.policy import NamedPolicy
from graphopt.policy.heuristic.caller_thread import asynchronous
from graphopt.policy.nothing_to_gain import is_split
from graphopt.policy_guard import compiled_by_a_policy, decide_guarded

if TYPE_CHECKING:
    from graphopt.measure.adoption import Adopted, StoredWinners

MIN_INSTRUCTIONS: Final = 8
"""Smaller modules hold one kernel or none; they are not worth a graph unless it is split over cores."""

MIN_BYTES: Final = 2048
"""Smaller modules are decided anew each time: that costs less than to look for them."""

_logger = logging.getLogger("graphopt")


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
    installation = Installation(
        policy, policy_timeout_s, max_instructions, False, True, winners, capabilities, subscription
    )
    return _record(data, installation)


def handle(data: bytes) -> bytes | None:
    """The hook: any failure keeps XLA's default."""
    installed = state.installed
    return None if installed is None else _record(data, installed)[1]


def _record(data: bytes, installed: Installation) -> tuple[ModuleRecord, bytes | None]:
    """Answers from memory or optimizes, and records how it went."""
    start = time.perf_counter()
    try:
        with gc_paused():
            record, answer = _answer(data, installed, start)
    except KeyboardInterrupt:
        state.ledger.add(_fell_back(data, "interrupted"))
        raise  # it is handed on once XLA has its answer
    except BaseException as error:
        _logger.exception("graphopt failed on a module; it keeps XLA's default")
        record, answer = _fell_back(data, f"internal error {message(error)}"), None
        record = replace(record, seconds=time.perf_counter() - start)
    state.ledger.add(record)
    _logger.info("%s", record)
    current = state.installed
    if current is not None and current.recorder is not None:
        current.recorder.note(data, record)
    return record, answer


def _answer(
    data: bytes, installed: Installation, start: float
) -> tuple[ModuleRecord, bytes | None]:
    """What was answered before, else what is decided now."""
    if installed.blas_threads is not None:
        installed.blas_threads.look(data)
    memory = installed.memory
    found = memory.find(data) if len(data) >= MIN_BYTES else None
    key: Key | None
    if isinstance(found, Recalled):
        key, record, answer = found.key, found.record, found.data
    else:
        key = found
        record, answer = _decide(data, installed)
    record = replace(record, seconds=time.perf_counter() - start)
    if key is not None and record.outcome is Outcome.REWRITTEN:
        memory.note_rewritten(key, record)
    if key is found and key is not None and _is_kept(record):
        memory.keep(key, record, answer)
    return record, answer


def _is_kept(record: ModuleRecord) -> bool:
    return record.outcome is not Outcome.FELL_BACK and not record.failed


def _decide(data: bytes, installed: Installation) -> tuple[ModuleRecord, bytes | None]:
    """Optimizes; what cannot be handled falls back."""
    try:
        return _optimize(data, installed)
    except UnsupportedModuleError as error:
        return _fell_back(data, error.rule), None
    except GraphOptError as error:
        return _fell_back(data, message(error)), None


def _fell_back(data: bytes, reason: str) -> ModuleRecord:
    try:
        name = parse(data).proto.name
    except Exception:
        name = "unreadable module"
    return ModuleRecord(name, Outcome.FELL_BACK, reason)


def _optimize(data: bytes, installed: Installation) -> tuple[ModuleRecord, bytes | None]:
    module = parse(data)
    name = module.proto.name
    if module.instruction_count < MIN_INSTRUCTIONS and not is_split(module):
        return ModuleRecord(name, Outcome.KEPT, "too small to matter"), None
    if not installed.capabilities.sound:
        return ModuleRecord(name, Outcome.FELL_BACK, str(installed.capabilities)), None
    if not installed.isolated and jax_private.persistent_cache_enabled():
        return ModuleRecord(name, Outcome.FELL_BACK, "persistent cache cannot be kept apart"), None
    if compiled_by_a_policy():
        return ModuleRecord(name, Outcome.KEPT, "compiled by a policy"), None
    tuned = _has_winners(installed.winners)
    check_supported(module, installed.max_instructions, allow_donation=True)
    passes_over = installed.policy.passes_over
    if not tuned and passes_over is not None and passes_over(module):
        return ModuleRecord(name, Outcome.KEPT, "no gain expected"), None
    loses = has_donation(module) and not installed.capabilities.donation
    graph = build_from_module(module, probe())
    before = graph.default_cluster_count
    record = ModuleRecord(name, Outcome.KEPT, nodes=len(graph), clusters_before=before)
    adopted = _find_winner(graph, data, installed.winners) if tuned else None
    if adopted is not None:
        record = replace(record, reason=adopted.reason, tuned=True)
        if adopted.decisions is None:
            return record, None
        return _rewritten(graph, adopted.decisions, record, installed)
    if loses and installed.policy.choose is None:
        check_supported(module)  # nobody says what a policy function gains
    if installed.policy.choose is not None:
        chosen = installed.policy.choose(graph)
        if chosen is None:
            return replace(record, reason="no gain expected"), None
        steps = tuple(step.step for step in chosen.steps)
        record = replace(record, failed=chosen.failed)
        if chosen.decisions.same_as(graph.default):
            return replace(record, reason="no gain expected"), None
        if loses and not outweighs_donation(data, chosen):
            check_supported(module)
        record = replace(record, reason=chosen.name, expected=chosen.speedup, steps=steps)
        return _rewritten(graph, chosen.decisions, record, installed)
    decisions = decide_guarded(installed.policy, graph, installed.timeout_s)
    if isinstance(decisions, str):
        return replace(record, outcome=Outcome.FELL_BACK, reason=decisions), None
    if decisions is None:
        return replace(record, reason="no gain expected"), None
    return _rewritten(graph, decisions, record, installed)


def _rewritten(
    graph: Graph, decisions: Decisions, record: ModuleRecord, installed: Installation
) -> tuple[ModuleRecord, bytes | None]:
    if installed.keep_async:
        decisions = asynchronous(decisions)
        if decisions.same_as(graph.default):
            return replace(record, reason="no gain expected"), None
    result = rewrite(graph, decisions)
    written = result.data
    if has_donation(graph.source.module) and not installed.capabilities.donation:
        written = release(written).data
    done = replace(
        record,
        outcome=Outcome.REWRITTEN,
        clusters_after=result.clusters,
        regions=result.regions,
        caller_thread=result.caller_thread,
        sequences=result.sequences,
    )
    return done, written


def _has_winners(winners: StoredWinners | None) -> bool:
    try:
        return winners is not None and winners.any()
    except GraphOptError as error:
        note(f"stored winners are not used: {error}")
        return False


def _find_winner(graph: Graph, data: bytes, winners: StoredWinners | None) -> Adopted | None:
    try:
        return None if winners is None else winners.find(graph, data)
    except GraphOptError as error:
        note(f"stored winners are not used: {error}")
        return None
