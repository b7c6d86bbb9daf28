"""Tuning one item of the queue: a bare module, on inputs made up in the ranges that were recorded."""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.errors import GraphOptError, MeasureError
from graphopt.hlo import Graph
from graphopt.learn.background.refusals import graph_of
from graphopt.learn.tune.api import MAX_CONFIRMED, search_module
from graphopt.learn.tune.result import ModuleResult
from graphopt.measure.children.runner import Measurement, Runner
from graphopt.measure.compiling.stub import signature
from graphopt.measure.inputs import load_inputs, made_up_inputs
from graphopt.policy.registry import DEFAULT, resolve
from graphopt.policy.starts import suggestions
from graphopt.store import Store, Winner, decode_decisions
from graphopt.store.leases import Result
from graphopt.store.queue import load
from graphopt.store.queue_items import MAX_RECORDED_BYTES, InputRange, Item, State
from graphopt.store.winners import KEPT

Array = np.ndarray[Any, Any]

Tell = Callable[[str], None]
"""Told of progress; what it raises ends the tuning."""

CONFIRM_SHARE: Final = 0.2
"""Part of the budget for the last measurements."""

CONFIRM_S: Final = (1.0, 4.0)
"""Least and most seconds of one of them."""

LOOKS: Final = 2
"""Last measurements that must each say that the winner is faster: of a look that stops when it is clear, one
in many is wrong."""

MAX_VALUES: Final = 4 * MAX_RECORDED_BYTES
"""Most bytes that recorded values are unpacked to."""


def inputs_of(data: bytes, item: Item, values: bytes | None, seed: int) -> list[Array]:
    """Inputs to tune a module on: recorded values where there are any, else made up in the recorded ranges.

    Raises:
        MeasureError: the module has inputs that cannot be made, or the values are damaged.
    """
    parameters = signature(data).parameters
    if values is not None and seed == 0:
        return _unpacked(values)
    ranges: list[tuple[float, float] | None] = []
    if _fit(item.inputs, parameters):
        ranges = [None if i.low is None or i.high is None else (i.low, i.high) for i in item.inputs]
    return made_up_inputs(parameters, seed, ranges)


def _fit(inputs: Sequence[InputRange], parameters: Sequence[Any]) -> bool:
    return [(i.shape, i.dtype) for i in inputs] == [
        (tuple(p.shape), p.dtype.name) for p in parameters
    ]


def _unpacked(values: bytes) -> list[Array]:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(values, MAX_VALUES)
    except zlib.error as error:
        raise _bad_values(str(error)) from error
    if not unpacker.eof:
        raise _bad_values(f"more than {MAX_VALUES:,} bytes, or cut off")
    with tempfile.TemporaryDirectory(prefix="graphopt-queue-") as folder:
        path = Path(folder, "inputs.npz")
        path.write_bytes(plain)
        return load_inputs(path)


def _bad_values(why: str) -> MeasureError:
    return MeasureError(
        what=f"recorded inputs cannot be unpacked: {why}",
        where="queue of modules",
        fix="Forget the item, and record it again.",
    )


def tune_item(item: Item, store: Store, budget_s: float, tell: Tell, seed: int = 0) -> Result:
    """Searches and confirms; writes nothing but what was measured of candidates.

    The last measurements are made in a worker of their own, on inputs that the search has not seen.

    Args:
        item: of the queue.
        store: with the queue.
        budget_s: seconds to spend.
        tell: told of progress.
        seed: of the search.

    Raises:
        KeyboardInterrupt: the search was interrupted; what was measured is kept and not measured again.
        StoreError: the store cannot be read or written.
    """
    begin = time.perf_counter()
    data, values = load(store, item.id)
    graph = graph_of(data, store)
    if isinstance(graph, str):
        return Result(State.FAILED, graph)
    try:
        found = _search(data, inputs_of(data, item, values, 0), store, budget_s, tell, seed)
        fresh = inputs_of(data, item, values, seed + 1)
        with Runner(data, fresh, store, timeout_s=max(20.0, budget_s)) as runner:
            result = _confirm(runner, graph, found, budget_s, tell)
    except MeasureError as error:
        spent = time.perf_counter() - begin
        return Result(State.FAILED, f"cannot-run-alone: {error.what}", spent)
    return Result(
        result.state, result.reason, time.perf_counter() - begin, result.winner, result.call_s
    )


def _search(
    data: bytes, inputs: list[Array], store: Store, budget_s: float, tell: Tell, seed: int
) -> list[ModuleResult]:
    """The best few decisions, best first."""

    def told(stage: str, message: str, count: int = 0, best: float = 1.0) -> None:
        tell(f"{count} candidates, best {best:.2f}x  {message[:60]}" if count else message[:80])

    tell("looking for starting points")
    suggest = partial(suggestions, resolve(DEFAULT), seed=seed)
    share_s = (1.0 - CONFIRM_SHARE) * budget_s
    found, interrupted = search_module(data, inputs, store, seed, share_s, None, told, suggest)
    if interrupted:
        raise KeyboardInterrupt
    if found[0].note:
        raise MeasureError(
            what=found[0].note, where=found[0].name, fix="Tune it inside its program."
        )
    return found


def _confirm(
    runner: Runner, graph: Graph, found: list[ModuleResult], budget_s: float, tell: Tell
) -> Result:
    """Measures the best decisions anew, then the next best while they do not hold up."""
    least, most = CONFIRM_S
    seconds = min(most, max(least, CONFIRM_SHARE * budget_s / LOOKS))
    for result in found[:MAX_CONFIRMED]:
        if result.decisions == KEPT:
            continue
        tell(f"confirming {result.winner}, {result.ratio:.2f}x in the search")
        try:
            decisions = decode_decisions(graph, result.decisions)
        except GraphOptError:
            continue
        looks = [
            runner.measure(decisions, budget_s=seconds, method="background") for _ in range(LOOKS)
        ]
        if all(look.ok and look.low > 1.0 for look in looks):
            winner = _winner(graph, result, looks)
            reason = f"{winner.speedup:.2f}x ({winner.low:.2f}-{winner.high:.2f}): {result.why()}"
            return Result(State.DONE, reason, winner=winner, call_s=winner.default_s)
    default = runner.measure(graph.default, budget_s=0.3, method="background")
    if not default.ok:
        raise MeasureError(
            what=f"XLA's default: {default.status} {default.detail}"[:300],
            where=graph.name,
            fix="Tune it inside its program.",
        )
    evaluations = sum(result.evaluations for result in found[:1])
    kept = _kept(graph, default.rival_s, evaluations)
    reason = f"XLA's default is the fastest of {evaluations} candidates"
    return Result(State.DONE, reason, winner=kept, call_s=default.rival_s)


def _winner(graph: Graph, result: ModuleResult, looks: Sequence[Measurement]) -> Winner:
    speedup = exp(sum(log(look.ratio) for look in looks) / len(looks))
    return Winner(
        fingerprint=graph.fingerprint,
        decisions=result.decisions,
        program=graph.name,
        nodes=len(graph),
        default_s=looks[-1].rival_s,
        tuned_s=looks[-1].seconds,
        speedup=speedup,
        low=min(look.low for look in looks),
        high=max(look.high for look in looks),
        evaluations=result.evaluations,
        verified=True,
        origin="tuned here",
        seen=time.time(),
    )


def _kept(graph: Graph, default_s: float, evaluations: int) -> Winner:
    return Winner(
        fingerprint=graph.fingerprint,
        decisions=KEPT,
        program=graph.name,
        nodes=len(graph),
        default_s=default_s,
        tuned_s=default_s,
        speedup=1.0,
        low=1.0,
        high=1.0,
        evaluations=evaluations,
        verified=True,
        origin="tuned here",
        seen=time.time(),
    )
