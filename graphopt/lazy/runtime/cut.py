"""Cuts: pending operations become a graph, the graph is run, tensors receive their values."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Final

import jax
import numpy as np

from graphopt.lazy.core import metrics, source_lines
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import CutForbiddenError, ExecutionError, LazyError
from graphopt.lazy.record import recorder
from graphopt.lazy.record.rounds import find_rounds
from graphopt.lazy.record.settings import settings
from graphopt.lazy.record.threads import Recorder
from graphopt.lazy.runtime import donation, known, optimizer, tiers
from graphopt.lazy.runtime.cache import Cache, Entry
from graphopt.lazy.runtime.recompiles import explain_new
from graphopt.lazy.runtime.results import checks_of, deliver
from graphopt.lazy.runtime.steps import queue
from graphopt.lazy.runtime.trace import Trace

LOCK: Final = threading.RLock()
"""Held while a graph is cut, looked up and dispatched; recording does not need it."""

cache: Final = Cache()
observers: Final[list[Any]] = []
"""Called with (entry, leaf values, scalars) of each graph that is run: `lt.capture`, `lt.tune`."""

REPEATED: Final = frozenset(("step", "round"))
"""Causes of cuts that come again and again, at which the next step is alike."""

LENT: Final = frozenset(("dlpack", "to_jax"))
"""Causes of observations that hand out the array itself."""

_logger: Final = logging.getLogger("graphopt.lazy")
_warned_lines: Final[set[str]] = set()


def sharing(requested: list[Node], live: list[Node]) -> list[Node]:
    """`requested`, followed by the live nodes that share pending work with it.

    Computing these in the same graph avoids doing the shared part once now and once more later.
    """
    roots = list(dict.fromkeys([*requested, *live]))
    if len(roots) == len(requested):
        return roots
    parent = list(range(len(roots)))

    def find(k: int) -> int:
        while parent[k] != k:
            parent[k] = k = parent[parent[k]]
        return k

    label: dict[Node, int] = {}
    for k, root in enumerate(roots):
        todo = [root]
        while todo:
            node = todo.pop()
            known = label.get(node)
            if known is not None:
                if known != k:
                    parent[find(known)] = find(k)
                continue
            label[node] = k
            todo.extend([n for n in node.inputs if n.data is None])
    wanted = {find(k) for k in range(len(requested))}
    return [root for k, root in enumerate(roots) if k < len(requested) or find(k) in wanted]


def run(requested: list[Node], extra: list[Node], cause: str, key: Any = None) -> None:
    """Computes nodes.

    Args:
        requested: must be computed.
        extra: computed along; a failure in one of them does not raise here.
        cause: for the metrics.
        key: what the cut is known by in the trace (`known.key_of`), if it is to be remembered.

    Raises:
        LazyError: a requested node cannot be computed.
    """
    local = recorder.state.now
    with LOCK:
        queue.run_all()
        requested = [node for node in dict.fromkeys(requested) if node.data is None]
        extra = [node for node in dict.fromkeys(extra) if node.data is None]
        failures: dict[Node, LazyError] = {}
        roots = list(dict.fromkeys([*requested, *extra]))
        devices = dict.fromkeys(node.aval.device for node in roots)
        for device in devices:
            group = [node for node in roots if node.aval.device is device]
            failures.update(_run_graph(group, cause, key if len(devices) == 1 else None))
        local.leave(failures)
        _raise_first(requested, failures)


def _raise_first(requested: list[Node], failures: dict[Node, LazyError]) -> None:
    for node in requested:
        if node in failures:
            raise failures[node]


def run_known(key: Any, cause: str) -> bool:
    """Runs the graph of the trace that was followed, if this cut of it is known.

    Args:
        key: of the cut; see `known.key_of`.
        cause: for the metrics.

    Raises:
        LazyError: a requested node cannot be computed.
    """
    start = perf_counter()
    local = recorder.state.now
    with LOCK:
        found = known.find(local, key, optimizer.context())
        if found is None:
            return False
        cut, entry = found
        if cause in REPEATED and not observers and queue.put_off(local, cut, entry):
            entry.waiting.count(cause)
            cache.use(entry)
            _book(
                cause, len(entry.plan.steps), entry.name, "compiled", perf_counter() - start, True
            )
            return True
        queue.run_all()
        unused = donation.USED
        if cut.complete and not observers:
            unused = cut.places.unused(local)
        leaves, arrays, scalars, roots = cut.values(local.recording)
        if tiers.traced(arrays):
            return False
        cache.use(entry)
        failures = _run(entry, leaves, arrays, scalars, roots, cause, start, unused, True)
        if cut.complete and not failures:
            if unused is not donation.USED:
                donation.release(local)
            local.restart()
        else:
            local.leave(failures)
        _raise_first(roots[: cut.requested], failures)
    return True


def _run_graph(roots: list[Node], cause: str, key: Any) -> dict[Node, LazyError]:
    start = perf_counter()
    trace = Trace(roots)
    arrays = [leaf.data for leaf in trace.leaves]
    scalars = [node.data for node in trace.scalars]
    if tiers.traced(arrays):
        values, flags = tiers.run_traced(trace, arrays, scalars)
        failures = deliver(roots, values, flags, checks_of(trace.leaves), None, False)
        _book(cause, len(trace.nodes), "traced", "traced", perf_counter() - start)
        return failures
    entry = cache.get(trace, optimizer.context())
    if entry.sightings == 0:
        explain_new(entry, cache.entries())
    leaves, unused = trace.leaves, donation.USED
    local = recorder.state.now
    cut = None if key is None else known.remember(local, key, trace, entry)
    if cut is not None and cut.complete and not observers:
        del trace, leaves, arrays  # they would count as references
        unused = cut.places.unused(local)
        leaves, arrays, scalars, roots = cut.values(local.recording)
    failures = _run(entry, leaves, arrays, scalars, roots, cause, start, unused)
    if unused is not donation.USED and not failures:
        donation.release(local)
    return failures


def _run(
    entry: Entry,
    leaves: list[Node],
    arrays: list[Any],
    scalars: list[Any],
    roots: list[Node],
    cause: str,
    start: float,
    unused: donation.Unused,
    followed: bool = False,
) -> dict[Node, LazyError]:
    entry.waiting.count(cause)
    values, flags, how = tiers.run_entry(entry, leaves, arrays, scalars, unused)
    if how == "compiled" and entry.sightings % 64 == 0:
        cache.limit_executables()
    for observer in tuple(observers):
        observer(entry, arrays, scalars)
    failures = deliver(roots, values, flags, checks_of(leaves), entry, how == "compiled")
    _book(cause, len(entry.plan.steps), entry.name, how, perf_counter() - start, followed)
    return failures


def _book(
    cause: str, nodes: int, graph: str, how: str, seconds: float, followed: bool = False
) -> None:
    source = source_lines.here(5)
    metrics.cut(cause, source, nodes, graph, how, seconds, followed)
    if settings.log:
        event = metrics.as_cut((cause, source, nodes, graph, how, seconds))
        _logger.info("%s", event)


def observe(node: Node, cause: str) -> Any:
    """The value of a node, to be handed out: computed now if it is pending.

    Returns:
        A jax array, a NumPy array, or a tracer.

    Raises:
        LazyError: it cannot be computed, or an index on the way to it was out of range.
    """
    value = _settled(node, cause)
    if node.own is not None:
        node.own = None if cause in LENT else False
    return value


def _settled(node: Node, cause: str) -> Any:
    """The value of a node, which stays with the runtime; see `observe`."""
    if node.data is None:
        if settings.on_cut != "silent":
            _object(cause)
        local = recorder.state.now
        with LOCK:
            queue.run_all()
            key = known.key_of(local, "live" if settings.sync_live else "ancestors", [node])
            if node.data is None and not (key is not None and run_known(key, cause)):
                extra = sharing([node], local.live())[1:] if settings.sync_live else ancestors(node)
                run([node], extra, cause, key)
    check = node.check
    if check is not None and check.settled(wait=True):
        if check.error is not None:
            raise check.error
        node.check = None
    return node.data


def ancestors(node: Node) -> list[Node]:
    """Live pending nodes that `node` is computed from."""
    seen = {node}
    todo = [node]
    while todo:
        for each in todo.pop().inputs:
            if each.data is None and each not in seen:
                seen.add(each)
                todo.append(each)
    return [n for n in recorder.state.now.live() if n in seen and n is not node]


def _object(cause: str) -> None:
    line = source_lines.line_of(source_lines.here(3))
    if settings.on_cut == "raise":
        raise CutForbiddenError(
            what=f"{cause} would run a graph here",
            where=line,
            fix='Observe values outside of the block, or use lt.config(on_cut="warn").',
        )
    if line not in _warned_lines:
        _warned_lines.add(line)
        warnings.warn(f"{cause} runs a graph at {line}", stacklevel=4)


def host(node: Node, cause: str) -> np.ndarray[Any, Any]:
    """The value of a node in host memory, read-only where it shares memory.

    Raises:
        LazyError: see `observe`.
        ExecutionError: the device failed.
    """
    value = observe(node, cause)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, jax.core.Tracer):
        raise ExecutionError(
            what=f"{cause} of a value that a jax transformation is tracing",
            where=source_lines.line_of(source_lines.here()),
            fix="Keep Python control flow on values out of functions given to jax.jit or jax.grad.",
        )
    try:
        return np.asarray(value)
    except Exception as error:
        raise ExecutionError(
            what=f"{cause} failed on the device: {error}",
            where=source_lines.line_of(source_lines.here()),
            fix="Move the tensors to a device that works and compute them again.",
        ) from error


def sync(*, wait: bool = False) -> None:
    """Computes all pending tensors of this thread.

    Args:
        wait: return only when the devices are done; index errors and device failures show here then.

    Raises:
        LazyError: some tensor cannot be computed; the others are.
    """
    sync_all("sync", wait)


def sync_all(cause: str, wait: bool = False) -> None:
    """Computes all pending tensors of this thread; see `sync`."""
    local = recorder.state.now
    if cause not in REPEATED:
        run_waiting()
    key = None if wait else known.key_of(local, "all", ())
    if key is not None and run_known(key, cause):
        return
    nodes = local.live()
    if nodes:
        run(nodes, [], cause, key)
    else:
        local.restart()
    if wait:
        _wait(nodes)


def eval_nodes(nodes: Iterable[Node], wait: bool) -> None:
    """Computes nodes and what shares work with them; see `lt.eval`."""
    nodes = list(nodes)
    run_waiting()
    requested = [node for node in nodes if node.data is None]
    if requested:
        local = recorder.state.now
        key = known.key_of(local, "live", requested)
        if key is None or not run_known(key, "eval"):
            run(requested, sharing(requested, local.live())[len(requested) :], "eval", key)
    if wait:
        _wait(nodes)


def run_waiting() -> None:
    """Runs the steps that are put off."""
    with LOCK:
        queue.run_all()


def _wait(nodes: Iterable[Node]) -> None:
    for node in nodes:
        value = _settled(node, "wait")
        if not isinstance(value, (np.ndarray, jax.core.Tracer)):
            value.block_until_ready()


def _limit_reached(local: Recorder) -> None:
    """Too much is recorded: forgets what is dead, and cuts if that was not the reason."""
    live = local.live()
    pending = sum(_weight(node) for node in recorder.behind(live) if node.data is None)
    if 2 * pending > local.limit:
        found = None
        if local.root is not None and local.step is None:
            found = find_rounds(local.next.parent)
        in_tree = local.next is not local.end
        run([], live, "trace limit")
        if found is not None:
            if in_tree:
                recorder.end_round(found.first, found.whole)
            local.expect(found.rest or found.whole, found.whole)
    else:
        local.leave()


def _weight(node: Node) -> int:
    instr = node.instr
    return 1 if instr is None or instr.op.recipe is None else len(instr.op.recipe(instr).steps)


def _round_ended(local: Recorder, following: Any) -> None:
    """Cuts between two rounds of a loop, as after a step."""
    if local.tapes or local.step is not None:
        return
    local.step = following
    try:
        sync_all("round")
    finally:
        local.step = None
    local.expect(following, following)


recorder.hooks.limit_reached = _limit_reached
recorder.hooks.round_ended = _round_ended
