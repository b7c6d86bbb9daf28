"""`graphopt.tune`: a faster program within a time budget, with proof."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from graphopt.errors import DecisionError, GraphOptError, MeasureError, WorkloadError
from graphopt.hlo import Decisions, Graph, build_graph, rewrite
from graphopt.hlo.emit.release import release
from graphopt.learn.tune.attribution import attribute
from graphopt.learn.tune.by_tasks import task_starts
from graphopt.learn.tune.confirm import Confirmation, confirm
from graphopt.learn.tune.options import tune_options
from graphopt.learn.tune.program import Subject
from graphopt.learn.tune.progress import Event, Listener, ignore
from graphopt.learn.tune.ranking import BankRanker
from graphopt.learn.tune.result import ModuleResult, TuneResult
from graphopt.learn.tune.search import Known, ModuleSearch
from graphopt.learn.tune.subject import make_subject
from graphopt.measure import Comparison
from graphopt.measure.calibrating.once import calibrate_once
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.measure.children.runner import Runner
from graphopt.policy.registry import DEFAULT, resolve
from graphopt.policy.starts import suggestions
from graphopt.store import Store, Winner, decode_decisions
from graphopt.store.winners import KEPT, get_winner, put_quarantine, put_winner

MIN_NODES: Final = 4
"""Smaller modules hold nothing to decide."""

MAX_CONFIRMED: Final = 3
"""Decisions of one program that are measured on the real inputs."""

HOLDS_UP: Final = 0.93
"""Part of the search's speed-up that the real inputs must show; else the next best gets its chance."""

CONFIRM_SHARE: Final = 0.15
"""Part of the budget kept for the last, decisive measurement."""

TASKS_SHARE: Final = 0.5
"""Part of a large module's time in which its tasks are searched one by one."""

ATTRIBUTION_SHARE: Final = 0.07
"""Part of a module's time in which its finalists are taken apart, to say what makes them faster."""


def tune(
    fn: Callable[..., Any],
    *args: Any,
    budget_s: float = 60.0,
    store: Store | str | os.PathLike[str] | None = None,
    seed: int = 0,
    evaluations: int | None = None,
    static_argnums: Sequence[int] = (),
    name: str | None = None,
    listener: Listener = ignore,
    policy: str | os.PathLike[str] | None = DEFAULT,
) -> TuneResult:
    """Searches for decisions that make a program faster, and stores the winner.

    Candidates are compiled, checked against the default's results and timed in a child process. A winner
    is adopted only if a last measurement in this process, on these arguments and in turn with XLA's
    default, says with 95 % confidence that it is faster. `graphopt.install` uses it from then on.

    The first tuning on a machine of no known kind measures that machine, some five seconds beside the
    budget; GRAPHOPT_CALIBRATE=0 in the environment leaves that out.

    Args:
        fn: a jittable or jitted function.
        *args: its concrete arguments.
        budget_s: seconds to spend, compiles included; it ends earlier when no gain is expected.
        store: store or path of it, where winners live; the user's store by default.
        seed: of the search.
        evaluations: most candidates per module; no limit by default.
        static_argnums: positions of static arguments of a function that is not jitted.
        name: of the program, for reports.
        listener: told of progress.
        policy: name or checkpoint of a policy whose proposals are among the starting points; None for none.

    Raises:
        PolicyError: there is no such policy, or it does not fit.
        WorkloadError: the function cannot be compiled with these arguments.
        ConfigError, StoreError: a setting or the store cannot be used.
    """
    store = Store.of(store)
    suggest = partial(suggestions, None if policy is None else resolve(policy), seed=seed)
    calibrate_once(store, lambda line: listener(Event("calibrate", line, 0.0, budget_s)))
    begin = time.perf_counter()
    end = begin + budget_s
    subject = make_subject(fn, args, static_argnums=static_argnums, name=name)

    def tell(stage: str, message: str, count: int = 0, best: float = 1.0) -> None:
        now = time.perf_counter()
        listener(Event(stage, message, now - begin, max(0.0, end - now), count, best))

    tell("plan", describe_plan(subject, budget_s))
    results: list[list[ModuleResult]] = []
    search_end = end - CONFIRM_SHARE * budget_s
    sizes = [_searchable_nodes(data) for data, _ in subject.modules]
    for number, (data, inputs) in enumerate(subject.modules):
        left = search_end - time.perf_counter()
        share = left * sizes[number] / max(1, sum(sizes[number:]))
        found, interrupted = search_module(
            data, inputs, store, seed, share, evaluations, tell, suggest
        )
        results.append(found)
        if interrupted:
            end = time.perf_counter()
            break
    tell("confirm", "measuring the winner against XLA's default on the real inputs")
    return _finish(subject, results, store, begin, end, tell)


def describe_plan(subject: Subject, budget_s: float) -> str:
    """What will be done, in one line."""
    sizes = []
    for data, _ in subject.modules:
        try:
            sizes.append(f"{len(build_graph(data, allow_donation=True))} nodes")
        except GraphOptError as error:
            sizes.append(f"left alone: {error.what}")
    loses = subject.donates and not own_capabilities().donation
    lost = "; it donates inputs, and its winner is measured without" if loses else ""
    return (
        f"{subject.name}: {len(subject.modules)} module(s) of {', '.join(sizes)}; XLA compiles in "
        f"{subject.default.compile_s:.2f} s; up to {budget_s:.0f} s of search in a child process{lost}"
    )


def _searchable_nodes(data: bytes) -> int:
    """Nodes of a module, by which the budget is divided; 0 where there is nothing to search."""
    try:
        nodes = len(build_graph(data, allow_donation=True))
    except GraphOptError:
        return 0
    return nodes if nodes >= MIN_NODES else 0


def search_module(
    data: bytes,
    inputs: Any,
    store: Store,
    seed: int,
    share_s: float,
    evaluations: int | None,
    tell: Callable[..., None],
    suggest: Callable[[Graph], list[tuple[str, Decisions]]],
) -> tuple[list[ModuleResult], bool]:
    """The best few decisions of one module, best first, and whether the search was interrupted."""
    try:
        graph = build_graph(data, allow_donation=True)
    except GraphOptError as error:
        return [ModuleResult("module", "", 0, note=f"left alone: {error.what}")], False
    alone = partial(ModuleResult, graph.name, graph.fingerprint, len(graph))
    if len(graph) < MIN_NODES:
        return [alone(note="too small to matter")], False
    stop = time.perf_counter() + (1.0 - ATTRIBUTION_SHARE) * share_s
    interrupted = False
    with Runner(data, inputs, store, timeout_s=max(20.0, share_s)) as runner:
        ranker = BankRanker(runner, store)
        search = ModuleSearch(runner, store, seed, ranker, suggest(graph))
        try:
            if (
                evaluations is None
            ):  # their number is about whole programs, and a run with it repeatable
                say = partial(tell, "tasks")
                search.extra[:0] = task_starts(graph, inputs, store, TASKS_SHARE * share_s, say)
            runner.start()
            for tried in search.steps():
                best = search.best.ratio
                tell("search", tried, search.evaluations, best)
                if time.perf_counter() > stop or (
                    evaluations is not None and search.evaluations >= evaluations
                ):
                    break
        except MeasureError as error:
            if not search.evaluations:
                return [alone(note=f"left alone: {error.what}")], False
            tell("search", f"ended: {error.what}", search.evaluations, search.best.ratio)
            return [search.result(search.best)], False
        except KeyboardInterrupt:
            interrupted = True
            message = "interrupted; the best so far is confirmed"
            tell("search", message, search.evaluations, search.best.ratio)
        chosen = _choose(runner, search, store)
        found = [search.result(k) for k in chosen]
        if runner.measured and not interrupted:
            # Any of those that will be confirmed may be adopted.
            for number, known in enumerate(chosen[:MAX_CONFIRMED]):
                limit_s = ATTRIBUTION_SHARE * share_s / MAX_CONFIRMED
                shares = attribute(runner, known.decisions, limit_s)
                found[number] = replace(found[number], shares=shares)
        return found, interrupted


def _choose(runner: Runner, search: ModuleSearch, store: Store) -> list[Known]:
    """The winners of a search, best first; XLA's default where there is none.

    Where the store answered every question there is no new evidence: what won before wins again, so that
    a run can be repeated.
    """
    known = get_winner(store, search.graph.fingerprint) if not runner.measured else None
    if known is not None and known.origin == "tuned here":
        if not known.changes:
            return [Known(search.graph.default, 1.0, "default")]
        with contextlib.suppress(DecisionError):
            decisions = decode_decisions(search.graph, known.decisions)
            return [Known(decisions, known.speedup, "stored winner")]
    try:
        return _duel(runner, search)
    except MeasureError:  # the worker cannot be started again
        return [search.best]


def _duel(runner: Runner, search: ModuleSearch) -> list[Known]:
    """The best few once more, longer: the first of many noisy looks is too often luck."""
    default = Known(search.graph.default, 1.0, "default")
    measured = []
    for known in search.finals():
        again = runner.measure(known.decisions, budget_s=1.0, method=known.origin)
        if again.ok and again.ratio > 1.0:
            measured.append(Known(known.decisions, again.ratio, known.origin))
    return sorted(measured, key=lambda k: -k.ratio) or [default]


def transform_of(results: Sequence[ModuleResult]) -> Callable[[bytes], bytes | None]:
    """Applies the winners of several modules."""
    winners = {m.fingerprint: m.decisions for m in results if m.decisions != KEPT}

    def transform(data: bytes) -> bytes | None:
        graph = build_graph(data, allow_donation=True)
        encoded = winners.get(graph.fingerprint)
        if encoded is None:
            return None
        written = rewrite(graph, decode_decisions(graph, encoded)).data
        return written if own_capabilities().donation else release(written).data

    return transform


def _confirm_best(
    subject: Subject, found: list[list[ModuleResult]], store: Store, budget_s: float
) -> tuple[list[ModuleResult], Confirmation, bool]:
    """Measures the best decisions on the real inputs, then the next best while they do not hold up.

    Returns:
        the modules' results, the measurement they stand on, and whether they are adopted.
    """
    best: tuple[list[ModuleResult], Confirmation, bool] | None = None
    rounds = min(MAX_CONFIRMED, max(len(choices) for choices in found))
    for number in range(rounds):
        results = [choices[min(number, len(choices) - 1)] for choices in found]
        changed = any(m.decisions != KEPT for m in results)
        outcome = confirm(subject, transform_of(results) if changed else None, budget_s)
        if not outcome.equal:
            _quarantine(store, results, outcome.judgement.problem())
        adopted = changed and outcome.equal and min(outcome.gain.low, outcome.times.low) > 1.0
        better = best is None or (adopted and (not best[2] or outcome.gain.low > best[1].gain.low))
        if better:
            best = (results, outcome, adopted)
        expected = max(m.ratio for m in results)
        if adopted and outcome.gain.speedup > HOLDS_UP * expected:
            break
    assert best is not None  # there is at least one round
    return best


def _quarantine(store: Store, results: list[ModuleResult], problem: str) -> None:
    for module in results:
        if module.decisions != KEPT:
            reason = f"on the real arguments: {problem}"
            put_quarantine(store, module.fingerprint, module.decisions, reason)


def _finish(
    subject: Subject,
    found: list[list[ModuleResult]],
    store: Store,
    begin: float,
    end: float,
    tell: Callable[..., None],
) -> TuneResult:
    budget_s = min(6.0, max(2.0, end - time.perf_counter()))
    results, outcome, adopted = _confirm_best(subject, found, store, budget_s)
    for module in results:
        if module.fingerprint and (adopted or module.note == ""):
            put_winner(store, _winner(subject.name, module, outcome.gain, adopted))
    if not adopted:
        results = [_kept(m) for m in results]
        if subject.forms and outcome.beside_forms is not None:
            outcome = confirm(subject, None, budget_s)
    options, options_times = tune_options(subject, transform_of(results), store, end)
    result = TuneResult(
        subject.name,
        tuple(results),
        outcome.times,
        adopted,
        outcome.equal,
        outcome.relative,
        time.perf_counter() - begin,
        options,
        options_times,
        subject.forms,
        outcome.judgement.problem(),
        outcome.judgement.chaotic,
    )
    tell("done", str(result).splitlines()[0], result.evaluations, result.speedup)
    return result


def _kept(module: ModuleResult) -> ModuleResult:
    if module.decisions == KEPT:
        return module
    note = f"{module.winner} was not faster with confidence"
    return replace(
        module, decisions=KEPT, winner="default", changes={}, shares=(), steps=(), note=note
    )


def _winner(program: str, module: ModuleResult, times: Comparison, adopted: bool) -> Winner:
    used = adopted and module.decisions != KEPT
    return Winner(
        fingerprint=module.fingerprint,
        decisions=module.decisions if used else KEPT,
        program=program,
        nodes=module.nodes,
        default_s=times.baseline_s,
        tuned_s=times.candidate_s if used else times.baseline_s,
        speedup=times.speedup if used else 1.0,
        low=times.low if used else 1.0,
        high=times.high if used else 1.0,
        evaluations=module.evaluations,
        verified=True,
        origin="tuned here",
        seen=time.time(),
    )


def replay(
    fn: Callable[..., Any],
    *args: Any,
    budget_s: float = 10.0,
    store: Store | str | os.PathLike[str] | None = None,
    static_argnums: Sequence[int] = (),
    name: str | None = None,
) -> TuneResult:
    """Applies the stored winners of a program and measures them again; changes nothing.

    Raises:
        WorkloadError: the function cannot be compiled, or the store has no winner for it.
    """
    store = Store.of(store)
    begin = time.perf_counter()
    subject = make_subject(fn, args, static_argnums=static_argnums, name=name)
    results = []
    for data, _ in subject.modules:
        try:
            graph = build_graph(data, allow_donation=True)
        except GraphOptError:  # left alone when it was tuned, too
            continue
        found = get_winner(store, graph.fingerprint)
        if found is not None:
            results.append(
                ModuleResult(
                    graph.name,
                    graph.fingerprint,
                    len(graph),
                    decisions=found.decisions,
                    winner="stored winner" if found.changes else "default",
                    ratio=found.speedup,
                )
            )
    if not results:
        raise WorkloadError(
            what="has no stored winner", where=subject.name, fix="Tune it first: graphopt tune."
        )
    changed = any(m.decisions != KEPT for m in results)
    outcome = confirm(subject, transform_of(results) if changed else None, budget_s)
    return TuneResult(
        subject.name,
        tuple(results),
        outcome.times,
        changed and outcome.equal,
        outcome.equal,
        outcome.relative,
        time.perf_counter() - begin,
        forms=subject.forms,
        problem=outcome.judgement.problem(),
        chaotic=outcome.judgement.chaotic,
    )
