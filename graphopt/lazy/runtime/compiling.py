"""Compiles cached graphs with XLA, at once or in the background."""

from __future__ import annotations

import atexit
import queue
import threading
import zlib
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final

import jax

from graphopt import jax_private, plugin, xla_hook
from graphopt.errors import UnsupportedJaxError
from graphopt.lazy.core import metrics
from graphopt.lazy.errors import ExecutionError
from graphopt.lazy.runtime import donation, executors, optimizer
from graphopt.lazy.runtime.cache import Entry
from graphopt.measure.compiling.functions import lowering

MAX_EXIT_WAIT_S: Final = 60.0
"""Longest wait at exit for a background compile: a thread inside XLA at exit aborts the process."""

_compile_lock: Final = threading.Lock()


def compile_entry(
    entry: Entry, policy: Any, check: bool = False, pairing: donation.Pairing = donation.NONE
) -> None:
    """Compiles a graph; afterwards its state is ``ready`` or ``failed``. Never raises.

    Args:
        entry: the graph; one that is compiled already keeps its executable if this fails.
        policy: what optimizes it; None for XLA's default.
        check: compile it without the optimizer, too.
        pairing: which buffers it takes.
    """
    start = perf_counter()
    try:
        with _compile_lock:
            executable, forms = _compile(entry, policy, policy is not None, pairing)
            if check and (forms or entry.outcome.startswith("rewritten")):
                entry.default, _ = _compile(entry, None, forms=False)
        entry.executable, entry.giving.pairing = executable, pairing
        entry.state = "ready"
        metrics.count("compiles")
    except Exception as error:
        metrics.fallback(f"compile failed: {type(error).__name__}")
        if entry.executable is None:
            entry.error = error
            entry.state = "failed"
    finally:
        metrics.spent("compile", perf_counter() - start)
        entry.done.set()


def flat_function(entry: Entry, order: tuple[int, ...] = ()) -> Any:
    """The graph as a function of its leaves and scalar vectors, in one argument list.

    Args:
        entry: the graph.
        order: positions of the results in the order to return them; empty for their own.
    """
    leaves = len(entry.plan.leaf_avals)
    run = executors.as_function(entry.plan, entry.packing)

    def flat(*arguments: Any) -> Any:
        values = run(arguments[:leaves], arguments[leaves:])
        return (*(values[k] for k in order), *values[len(order) :])

    flat.__name__ = flat.__qualname__ = entry.name
    return flat


def _compile(
    entry: Entry, policy: Any, forms: bool, pairing: donation.Pairing = donation.NONE
) -> tuple[Any, bool]:
    """The executable, and whether operations in it have other forms than jax gives them."""

    def handler(data: bytes) -> bytes | None:
        if entry.module is None and not pairing.leaves:  # others run it on inputs that they keep
            entry.module = zlib.compress(data, 1)
        if policy is None:
            return None
        answer, entry.outcome = optimizer.optimize(data, policy, entry.name)
        return answer

    leaves, packs = executors.abstract_arguments(entry.plan, entry.packing)
    function = flat_function(entry, pairing.order)
    return _compiled(function, entry, [*leaves, *packs], policy, forms, handler, pairing.leaves)


def compile_loop(
    entry: Entry, name: str, function: Any, arguments: Sequence[Any], policy: Any
) -> Any:
    """A compiled program of several runs of a graph; None if it cannot be compiled. Never raises.

    Args:
        entry: the graph.
        name: of the program.
        function: what it computes.
        arguments: shapes and dtypes of what the function takes.
        policy: what optimizes it; None for XLA's default.
    """

    def handler(data: bytes) -> bytes | None:
        return None if policy is None else optimizer.optimize(data, policy, name)[0]

    def named(*values: Any) -> Any:
        return function(*values)

    named.__name__ = named.__qualname__ = name
    start = perf_counter()
    try:
        with _compile_lock:
            return _compiled(named, entry, arguments, policy, policy is not None, handler)[0]
    except Exception as error:
        metrics.fallback(f"compile failed: {type(error).__name__}")
        return None
    finally:
        metrics.count("compiles")
        metrics.spent("compile", perf_counter() - start)


def _compiled(
    function: Any,
    entry: Entry,
    arguments: Sequence[Any],
    policy: Any,
    forms: bool,
    handler: Any,
    donated: tuple[int, ...] = (),
) -> tuple[Any, bool]:
    """A function compiled with a policy, and whether operations have other forms than jax's."""
    with jax.enable_x64(True), jax.default_device(entry.plan.device):
        jitted = jax.jit(function, donate_argnums=donated)
        with lowering(forms) as choices:
            lowered = jitted.lower(*arguments)
        plugin.add_forms(choices)
        try:
            subscription = xla_hook.subscribe(handler, module_name=f"jit_{function.__name__}")
        except UnsupportedJaxError as error:
            metrics.fallback(error.what)
            return lowered.compile(), bool(choices)
        try:
            with jax_private.private_cache_entries(optimizer.cache_text(policy)):
                return lowered.compile(), bool(choices)
        finally:
            subscription.close()


def module_of(entry: Entry) -> bytes:
    """The module that XLA receives for a graph, as the transformation hook sees it.

    Raises:
        ExecutionError: the graph cannot be compiled.
    """
    if entry.module is None:
        try:
            with _compile_lock:
                _compile(entry, None, forms=optimizer.current() is not None)
        except Exception as error:
            raise ExecutionError(
                what=f"{entry.name} cannot be compiled: {error}",
                where=entry.name,
                fix="Run it op by op; its results do not depend on the compile.",
            ) from error
    if entry.module is None:  # no hook in this jax, or not on this platform
        return b""
    return zlib.decompress(entry.module)


class _Background:
    """One thread that compiles, started when it is first needed."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = threading.Lock()
        self._ending = False

    def submit(self, entry: Entry, policy: Any, check: bool, pairing: donation.Pairing) -> None:
        """Compiles an entry some time soon."""
        entry.state = "compiling"
        entry.done.clear()
        self.call(lambda: compile_entry(entry, policy, check, pairing))

    def call(self, job: Callable[[], None]) -> None:
        """Does something that compiles, some time soon; it must not raise."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="graphopt-lazy", daemon=True)
            self._thread.start()
            atexit.register(self._end)
        self._jobs.put(job)

    def drain(self) -> None:
        """Waits until all that was submitted so far is compiled."""
        if self._thread is not None and self._thread is not threading.current_thread():
            done = threading.Event()
            self._jobs.put(done)
            while not done.wait(0.1) and not self._ending:
                pass  # at exit the thread may stop before it comes to this

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, threading.Event):
                job.set()
                continue
            with self._busy:
                if self._ending:
                    return
                job()

    def _end(self) -> None:
        self._ending = True
        self._busy.acquire(timeout=MAX_EXIT_WAIT_S)


background: Final = _Background()
