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
from graphopt.lazy.record.settings import settings
from graphopt.lazy.runtime import executors, optimizer, tiers
from graphopt.lazy.runtime.cache import Cache, Entry
from graphopt.lazy.runtime.executors import Failure
from graphopt.lazy.runtime.index_checks import Check, dependencies
from graphopt.lazy.runtime.recompiles import explain_new
from graphopt.lazy.runtime.trace import Trace

LOCK: Final = threading.RLock()
"""Held while a graph is cut, looked up and dispatched; recording does not need it."""

cache: Final = Cache()
observers: Final[list[Any]] = []
"""Called with (entry, leaf values, scalars) of each graph that is run: `lt.capture`, `lt.tune`."""

_logger: Final = logging.getLogger("graphopt.lazy")
_warned_lines: Final[set[str]] = set()


def pending_live(local: recorder.Recorder) -> list[Node]:
    """Nodes of this thread's live tensors that are not computed yet, each once."""
    nodes: dict[Node, None] = {}
    still = []
    for reference in list(local.live):
        tensor = reference()
        if tensor is not None and tensor._node.data is None:
            still.append(reference)
            nodes[tensor._node] = None
    local.live = still
    return list(nodes)


def forget_computed(local: recorder.Recorder) -> None:
    """Drops what is computed or dead from a thread's tables."""
    pending_live(local)
    local.weight = 0
    local.cons = {
        key: reference
        for key, reference in local.cons.items()
        if (node := reference()) is not None and node.data is None
    }


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


def run(requested: list[Node], extra: list[Node], cause: str, *, everything: bool = False) -> None:
    """Computes nodes.

    Args:
        requested: must be computed.
        extra: computed along; a failure in one of them does not raise here.
        cause: for the metrics.
        everything: these are all live pending tensors of this thread.

    Raises:
        LazyError: a requested node cannot be computed.
    """
    with LOCK:
        requested = [node for node in dict.fromkeys(requested) if node.data is None]
        extra = [node for node in dict.fromkeys(extra) if node.data is None]
        failures: dict[Node, LazyError] = {}
        roots = list(dict.fromkeys([*requested, *extra]))
        devices = dict.fromkeys(node.aval.device for node in roots)
        for device in devices:
            group = [node for node in roots if node.aval.device is device]
            failures.update(_run_graph(group, cause))
        if everything and not failures:
            recorder.state.now.cons, recorder.state.now.live = {}, []
            recorder.state.now.weight = 0
        else:
            forget_computed(recorder.state.now)
        if failures:
            recorder.state.now.live = [
                r for r in recorder.state.now.live if (t := r()) is None or t._node not in failures
            ]
            for node in requested:
                if node in failures:
                    raise failures[node]


def _run_graph(roots: list[Node], cause: str) -> dict[Node, LazyError]:
    start = perf_counter()
    trace = Trace(roots)
    arrays = [leaf.data for leaf in trace.leaves]
    scalars = [node.data for node in trace.scalars]
    nodes = len(trace.nodes)
    if tiers.traced(arrays):
        values, flags = tiers.run_traced(trace, arrays, scalars)
        how, name, entry = "traced", "traced", None
    else:
        context = (optimizer.version(), optimizer.checked_mode())
        entry = cache.get(trace, context)
        if entry.sightings == 0:
            explain_new(entry, cache.entries())
        values, flags, how = tiers.run_entry(entry, trace, arrays, scalars)
        name, nodes = entry.name, len(entry.plan.steps)
        if how == "compiled" and entry.sightings % 64 == 0:
            cache.limit_executables()
        for observer in tuple(observers):
            observer(entry, arrays, scalars)
    failures = _deliver(trace, values, flags, entry)
    _book(metrics.Cut(
        cause, source_lines.line_of(source_lines.here(3)), nodes, name, how, perf_counter() - start
    ))  # fmt: skip
    return failures


def _deliver(trace: Trace, values: Any, flags: Any, entry: Entry | None) -> dict[Node, LazyError]:
    failures: dict[Node, LazyError] = {}
    checks = _checks(trace, flags, entry)
    for node, value, check in zip(trace.roots, values, checks, strict=True):
        if type(value) is Failure:
            failures[node] = value.error
            continue
        node.check = check
        node.data = value
        node.inputs = ()
        node.instr = None
    return failures


def _checks(trace: Trace, flags: Any, entry: Entry | None) -> list[Check | None]:
    """The index checks that each root depends on; None where there are none."""
    inherited: dict[int, Check] = {}
    for k, leaf in enumerate(trace.leaves):
        check = leaf.check
        if check is not None:
            if check.settled(wait=False) and check.error is None:
                leaf.check = None
            else:
                inherited[k] = check
    if entry is None or (flags is None and not inherited):
        return [None] * len(trace.roots)
    if entry.dependencies is None:
        entry.dependencies = dependencies(entry.plan)
        entry.places = executors.checked_places(entry.plan)
    shared: dict[Any, Check | None] = {}  # roots that depend on the same share their check
    found: list[Check | None] = []
    for chosen, leaves in entry.dependencies:
        before: tuple[Check, ...] = ()
        if inherited:
            before = tuple(dict.fromkeys(c for k, c in inherited.items() if k in leaves))
        own = flags if chosen else None
        key = (chosen, before)
        if key not in shared:
            if own is None and not before:
                shared[key] = None
            else:
                shared[key] = check = Check(own, entry.places, chosen)
                check.inherited = before
        found.append(shared[key])
    return found


def _book(event: metrics.Cut) -> None:
    metrics.count("graphs")
    metrics.count("nodes", event.nodes)
    metrics.count(
        {"op by op": "op_by_op", "compiled": "compiled_runs"}.get(event.how, "traced_runs")
    )
    metrics.spent("cut", event.seconds)
    metrics.cut(event)
    if settings.log:
        _logger.info("%s", event)


def observe(node: Node, cause: str) -> Any:
    """The value of a node: computed now if it is pending.

    Returns:
        A jax array, a NumPy array, or a tracer.

    Raises:
        LazyError: it cannot be computed, or an index on the way to it was out of range.
    """
    if node.data is None:
        if settings.on_cut != "silent":
            _object(cause)
        extra = pending_live(recorder.state.now) if settings.sync_live else ancestors(node)
        with LOCK:
            if node.data is None:
                roots = sharing([node], extra) if settings.sync_live else [node, *extra]
                run([node], roots[1:], cause)
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
    return [n for n in pending_live(recorder.state.now) if n in seen and n is not node]


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
    nodes = pending_live(recorder.state.now)
    if nodes:
        run(nodes, [], cause, everything=True)
    else:
        recorder.state.now.cons = {}
    if wait:
        _wait(nodes)


def eval_nodes(nodes: Iterable[Node], wait: bool) -> None:
    """Computes nodes and what shares work with them; see `lt.eval`."""
    requested = [node for node in nodes if node.data is None]
    if requested:
        run(
            requested,
            sharing(requested, pending_live(recorder.state.now))[len(requested) :],
            "eval",
        )
    if wait:
        _wait(nodes)


def _wait(nodes: Iterable[Node]) -> None:
    for node in nodes:
        value = observe(node, "wait")
        if not isinstance(value, (np.ndarray, jax.core.Tracer)):
            value.block_until_ready()


def _limit_reached(local: recorder.Recorder) -> None:
    """Too much is recorded: forgets what is dead, and cuts if that was not the reason."""
    weight = local.weight
    forget_computed(local)
    if len(local.cons) + weight > local.limit // 2:
        run([], pending_live(local), "trace limit")


recorder.hooks.limit_reached = _limit_reached
