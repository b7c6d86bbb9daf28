"""install(), uninstall(), report(): the optimizer inside every ``jax.jit`` of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import graphopt.version
from graphopt import jax_private, xla_hook
from graphopt.errors import GraphOptError
from graphopt.machine.cost_rows import measured_key
from graphopt.outcomes import Ledger, ModuleRecord, Report
from graphopt.plugin.blas_threads import BlasThreads
from graphopt.plugin.forms_in_use import remove_forms, use_forms
from graphopt.plugin.memory import Memory
from graphopt.plugin.modules import handle
from graphopt.plugin.recording import Record, Recorder, record_wanted
from graphopt.plugin.refused import begin, withdraw
from graphopt.plugin.state import Installation, note, state
from graphopt.policy import NamedPolicy, Policy, resolve
from graphopt.policy.registry import DEFAULT
from graphopt.store import Store, environment
from graphopt.store.answers import Answers
from graphopt.store.machine_costs import use_stored_costs

if TYPE_CHECKING:
    from graphopt.measure.adoption import StoredWinners
    from graphopt.measure.capabilities.table import Capabilities


def install(
    policy: str | Policy | None = DEFAULT,
    *,
    policy_timeout_s: float = 5.0,
    max_instructions: int = 100_000,
    keep_async: bool = False,
    keep_blas_threads: bool = False,
    forms: bool | str = True,
    store: str | os.PathLike[str] | Store | Literal[False] | None = None,
    record: Record | None = None,
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
        keep_blas_threads: SciPy's OpenBLAS, which computes factorizations and eigenvalues for XLA, keeps its
            threads. Otherwise it goes on with one, in all of this process, where a trial at the first such
            program finds that its threads keep each other waiting. OPENBLAS_NUM_THREADS or OMP_NUM_THREADS
            in the environment leave them alone as well.
        forms: operations that XLA computes slowly are lowered in another form where that is faster by
            estimate; results are equal to rounding. False for none, or names of forms with commas
            between: those alone, or all but those with a minus in front (``"-convolution-shifts"``).
            GRAPHOPT_FORMS in the environment takes away likewise; ``0`` takes all.
        store: path of the store with tuned winners, or URL of one on a server; the user's store by default,
            False for none. A server is waited for here, for 2 s at most; later a copy of what it has said
            answers where it does not answer at once.
        record: leave every module in the store's queue, with shapes and ranges of its inputs, its calls and
            its compile time, so that ``graphopt tune --queue`` can tune it later. ``"inputs"`` records values
            of the inputs too. GRAPHOPT_RECORD in the environment says it where this is None; ``0`` there
            takes it away.

    Raises:
        UnsupportedJaxError: jax or jaxlib is older than 0.10.2.
        PolicyError: there is no such policy.
        ConfigError: there is no form of such a name, or nothing of that kind to record.
    """
    if policy is None:
        uninstall()
        return
    xla_hook.check_jax()
    from graphopt.forms import names_in_use  # it imports jax
    from graphopt.measure.adoption import StoredWinners
    from graphopt.measure.capabilities.own import own_capabilities

    found = resolve(policy)
    names = names_in_use(forms)
    recording = record_wanted(record)
    with state.lock:
        uninstall()
        if os.environ.get("GRAPHOPT_DISABLE", "") not in ("", "0"):
            note("GRAPHOPT_DISABLE is set: nothing is optimized")
            return
        winners = None if store is False else StoredWinners(Store.of(store))
        if winners is not None and winners.shared is not None:
            winners.shared.start()
        own_store = None if winners is None else winners.store
        capabilities = own_capabilities(own_store)
        _note_beginning(found, capabilities)
        _use_measured_costs(own_store)
        settings = (str(max_instructions), str(keep_async))

        def depends_on() -> str:
            return "-".join((*_depends_on(found, winners), *settings))

        depends_on()  # reads files once: no compile waits for that
        subscription = xla_hook.subscribe(handle)
        isolated = jax_private.set_cache_key_hook(depends_on)
        recorder = _recorder(recording, own_store)
        jax_private.watch_compiles(begin, withdraw, recorder.compiled if recorder else None)
        memory = Memory(None if own_store is None else _answers(found, own_store), depends_on)
        state.installed = Installation(
            found,
            policy_timeout_s,
            max_instructions,
            keep_async,
            isolated,
            winners,
            capabilities,
            subscription,
            memory,
            recorder,
            None if keep_blas_threads else BlasThreads(note),
        )
        use_forms(names)


def _recorder(record: Record, store: Store | None) -> Recorder | None:
    """What leaves modules in the queue; None where that was not asked for, or cannot be."""
    if not record:
        return None
    if store is None:
        note("nothing is recorded: install(store=False) leaves no store for the queue")
        return None
    recorder = Recorder(store, record == "inputs", note)
    if not jax_private.watch_calls(recorder.wanted, recorder.called):
        note("calls are not counted, and inputs not looked at: this jax has other names for it")
    return recorder


def _note_beginning(policy: NamedPolicy, capabilities: Capabilities) -> None:
    """What a user should know of an installation from the first."""
    if policy.note:
        note(policy.note)
    if jax_private.backends_initialized():
        note(
            "functions compiled before install() keep their code; "
            "jax.clear_caches() makes jax compile them anew"
        )
    if not capabilities.known:
        note(str(capabilities))


def _answers(policy: NamedPolicy, store: Store) -> Answers | None:
    """Where answers are kept between processes; None where nobody knows what a policy depends on."""
    if not policy.built_in or os.environ.get("GRAPHOPT_REMEMBER", "1") in ("", "0"):
        return None
    return Answers(store.path.with_suffix(".answers.sqlite"))


def _use_measured_costs(store: Store | None) -> None:
    """Decisions rest on what was measured of this machine, where its kind is not known."""
    try:
        use_stored_costs(store)
    except GraphOptError as error:
        note(f"measured costs of this machine are not used: {error}")


def _depends_on(policy: NamedPolicy, winners: StoredWinners | None) -> Iterator[str]:
    """What answers, and so compiled code, depend on beside the program."""
    yield policy.key
    yield from environment()
    yield measured_key()
    yield graphopt.version.source_digest()
    try:
        yield winners.state() if winners is not None else "no store"
    except GraphOptError as error:
        note(f"stored winners are not used: {error}")
        yield "unreadable store"


def uninstall() -> None:
    """Stops optimizing. Functions compiled meanwhile keep their rewritten code."""
    with state.lock:
        installed, state.installed = state.installed, None
        if installed is not None:
            installed.subscription.close()
            jax_private.watch_compiles(None, None)
            if installed.recorder is not None:
                jax_private.watch_calls(None, None)
                installed.recorder.close()
            jax_private.reset_cache_key_hook()
            remove_forms()
            if installed.blas_threads is not None:
                installed.blas_threads.restore()


def report() -> Report:
    """What was seen, rewritten, kept and why, since the first `install` of this process."""
    installed = state.installed
    winners = None if installed is None else installed.winners
    shared = [] if winners is None else winners.notes()
    notes = [*state.notes, *shared, *_platform_notes()]
    return state.ledger.snapshot(installed.policy.name if installed else None, tuple(notes))


def reset_report() -> None:
    """Forgets all records and notes."""
    with state.lock:
        state.ledger = Ledger()
        state.notes.clear()


def add_record(record: ModuleRecord) -> None:
    """Adds the outcome of something decided outside XLA's compile, such as a placement."""
    state.ledger.add(record)


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
    installed = state.installed
    return None if installed is None else installed.policy
