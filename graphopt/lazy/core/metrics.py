"""Counters and times of the lazy runtime, and the record of its cuts and compiles."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

from graphopt.lazy.core import source_lines

MAX_EVENTS: Final = 200
"""Cuts and recompiles that are remembered one by one; counts go on beyond that."""


@dataclass(frozen=True)
class Cut:
    """One cut: pending operations became a graph that was run.

    Attributes:
        cause: ``sync``, ``eval``, ``step``, ``round`` (of a loop), ``trace limit``, or the observation
            (``float``, ``bool`` ...).
        line: the user's source line.
        nodes: operations in the graph.
        graph: name of the graph.
        how: ``op by op``, ``compiled`` or ``traced``.
        seconds: host time until the results were dispatched.
    """

    cause: str
    line: str
    nodes: int
    graph: str
    how: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.line}: {self.cause}: {self.nodes} operations, {self.graph}, {self.how}, "
            f"{self.seconds * 1e3:.2f} ms"
        )


@dataclass
class _State:
    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    lines: dict[Any, list[Any]] = field(default_factory=dict)
    fallbacks: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    cuts: deque[Any] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    recompiles: deque[Any] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    new: deque[Any] = field(default_factory=deque)  # cuts that are not counted yet


_state: Final = _State()


def count(name: str, by: int = 1) -> None:
    """Adds to a counter."""
    _state.counts[name] += by


def spent(name: str, seconds: float) -> None:
    """Adds to a time."""
    with _state.lock:
        _state.seconds[name] += seconds  # type: ignore[assignment]  # Counter holds floats too


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Adds the time of the block."""
    start = perf_counter()
    try:
        yield
    finally:
        spent(name, perf_counter() - start)


def cut(
    cause: str,
    source: source_lines.Source | None,
    nodes: int,
    graph: str,
    how: str,
    seconds: float,
    followed: bool = False,
) -> None:
    """Records a cut; see `Cut`. It is counted, and its source turned into a line, when somebody looks."""
    _state.new.append((cause, source, nodes, graph, how, seconds, followed))
    if len(_state.new) >= MAX_NEW:
        with _state.lock:
            _count_cuts()


MAX_NEW: Final = 1_000
"""Cuts that wait to be counted."""


def _count_cuts() -> None:
    """Counts what happened since the last time; the lock is held."""
    new = _state.new
    while new:
        _count_cut(*new.popleft())


def _count_cut(
    cause: str, source: Any, nodes: int, graph: str, how: str, seconds: float, followed: bool
) -> None:
    counts = _state.counts
    counts["graphs"] += 1
    counts["nodes"] += nodes
    counts[_RUNS.get(how, "traced_runs")] += 1
    if followed:
        counts["cache_hits"] += 1
        counts["followed"] += 1
    _state.seconds["cut"] += seconds  # type: ignore[assignment]
    _state.causes[cause] += 1
    place = None if source is None else (id(source[0]), source[1])  # hashing code takes long
    line = _state.lines.get(place)
    if line is not None:
        line[1] += 1
    elif len(_state.lines) < 10_000:
        _state.lines[place] = [source, 1]
    _state.cuts.append((cause, source, nodes, graph, how, seconds))


_RUNS: Final = {"op by op": "op_by_op", "compiled": "compiled_runs"}


def as_cut(event: Any) -> Cut:
    """A remembered cut with its line."""
    cause, source, *rest = event
    return Cut(cause, source_lines.line_of(source), *rest)


def _lines() -> dict[str, int]:
    found: Counter[str] = Counter()
    for source, times in _state.lines.values():
        found[source_lines.line_of(source)] += times
    return dict(found)


def fallback(name: str) -> None:
    """Records that something fell back to a slower or default way."""
    with _state.lock:
        _state.fallbacks[name] += 1


def outcome(name: str) -> None:
    """Records what the optimizer did with a graph."""
    with _state.lock:
        _state.outcomes[name] += 1


def recompiled(report: Any) -> None:
    """Records the difference of a new graph to its nearest cached one."""
    _state.recompiles.append(report)


@dataclass(frozen=True)
class Metrics:
    """A snapshot of the counters; ``str()`` gives a readable table.

    Attributes:
        graphs: graphs run (cuts that had work).
        distinct_graphs: different structures seen.
        cache_hits: graphs that were in the cache.
        compiles: graphs compiled.
        op_by_op: graphs run operation by operation.
        compiled_runs: graphs run as a compiled program.
        traced_runs: graphs that became part of a jax transformation.
        nodes: operations in all graphs run.
        evictions: executables dropped from the cache.
        followed: cuts whose graph was known by the trace that was followed, without a look-up.
        donated: compiled runs that were given the buffers of some inputs to write results to.
        together: steps that ran in a loop over several.
        cut_causes: cause -> cuts.
        cut_lines: ``file:line`` -> cuts.
        fallbacks: what fell back -> times.
        optimizer: outcome -> compiled graphs.
        seconds: times: ``cut`` (host time in cuts), ``compile``, ``op by op``.
        cuts: the last cuts.
    """

    graphs: int
    distinct_graphs: int
    cache_hits: int
    compiles: int
    op_by_op: int
    compiled_runs: int
    traced_runs: int
    nodes: int
    evictions: int
    followed: int
    donated: int
    together: int
    cut_causes: dict[str, int]
    cut_lines: dict[str, int]
    fallbacks: dict[str, int]
    optimizer: dict[str, int]
    seconds: dict[str, float]
    cuts: tuple[Cut, ...]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __str__(self) -> str:
        hit = self.cache_hits / self.graphs if self.graphs else 0.0
        lines = [
            f"{self.graphs} graphs, {self.nodes} operations, {self.distinct_graphs} distinct; "
            f"cache hits {hit:.0%}, followed {self.followed}",
            f"runs: {self.compiled_runs} compiled, {self.op_by_op} op by op, "
            f"{self.traced_runs} traced; {self.compiles} compiles, {self.evictions} evictions, "
            f"{self.donated} donated, {self.together} steps together",
            "cut causes: " + _table(self.cut_causes),
            "optimizer: " + _table(self.optimizer),
            "fallbacks: " + _table(self.fallbacks),
            "seconds: " + ", ".join(f"{k} {v:.3f}" for k, v in sorted(self.seconds.items())),
            "cuts by line: " + _table(dict(Counter(self.cut_lines).most_common(5))),
        ]
        return "\n".join(lines)


def _table(counts: dict[str, int]) -> str:
    return ", ".join(f"{k} {v}" for k, v in counts.items()) or "none"


_COUNTERS: Final = (
    "graphs", "distinct_graphs", "cache_hits", "compiles", "op_by_op", "compiled_runs",
    "traced_runs", "nodes", "evictions", "followed", "donated", "together",
)  # fmt: skip


def metrics() -> Metrics:
    """What happened since the start or `reset_metrics`."""
    with _state.lock:
        _count_cuts()
        return Metrics(
            **{name: _state.counts[name] for name in _COUNTERS},
            cut_causes=dict(_state.causes),
            cut_lines=_lines(),
            fallbacks=dict(_state.fallbacks),
            optimizer=dict(_state.outcomes),
            seconds=dict(_state.seconds),
            cuts=tuple(map(as_cut, _state.cuts)),
        )


def reset_metrics() -> None:
    """Sets all counters to zero and forgets cuts and recompiles."""
    with _state.lock:
        _count_cuts()
        for counter in (
            _state.counts, _state.causes, _state.lines, _state.fallbacks, _state.outcomes,
            _state.seconds,
        ):  # fmt: skip
            counter.clear()
        _state.cuts.clear()
        _state.recompiles.clear()


def recompile_report() -> tuple[Any, ...]:
    """Why graphs were compiled: one entry per compile, oldest first, as text by ``str()``.

    Each names the nearest graph that was in the cache and what differs from it.
    """
    return tuple(_state.recompiles)
