"""``graphopt.explain``: what a policy changes in a program, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphopt.policy.registry import DEFAULT

if TYPE_CHECKING:
    from graphopt.hlo import Decisions, Graph
    from graphopt.measure.adoption import Adopted, StoredWinners
    from graphopt.policy import NamedPolicy, Policy
    from graphopt.progress import Show
    from graphopt.render import Explanation, ModuleExplanation
    from graphopt.render.measured import Measured
    from graphopt.store import Store

MEASURE_S = 2.0
"""Seconds of timing; compiling and profiling are not counted."""


def explain(
    fn: Callable[..., Any],
    *args: Any,
    policy: str | Policy | None = DEFAULT,
    store: Store | None = None,
    measure_s: float = MEASURE_S,
) -> Explanation:
    """Explains and measures what `graphopt.install` makes of one call of a jittable function.

    The function is compiled by XLA's default and as `graphopt.install` has it; both run in turn on the
    arguments, whole and, once each, profiled by line of source. Where that is impossible, times are
    estimates, and the text says why.

    >>> print(graphopt.explain(fn, *args))
    >>> graphopt.explain(fn, *args).save_html("why.html")

    Args:
        fn: jittable.
        args: concrete arguments, or anything ``jax.jit(fn).lower`` takes, which cannot be run.
        policy: name of a policy or a function Graph -> Decisions | None; None shows XLA's own
            decisions.
        store: tuned winners, and measured kernels for the times of clusters; the user's store by default.
            Where it knows none of the program's kernels, times of clusters come from a formula.
        measure_s: seconds of timing; 0 runs nothing.

    Raises:
        UnsupportedModuleError: a module that graphopt leaves alone.
        PolicyError: there is no such policy.
        DecisionError: the policy decided what its graph's masks forbid.
    """
    return _explain(fn, args, policy, store, measure_s, lambda doing, done: None)


STEPS: Final = ("compiling", "explaining", "measuring")
"""What is done one after the other."""


def _explain(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policy: str | Policy | None,
    store: Store | None,
    measure_s: float,
    show: Show,
) -> Explanation:
    """See `explain`; `show` is told which of `STEPS` is done."""
    from graphopt.hlo import build_graph
    from graphopt.measure import compile_with
    from graphopt.measure.adoption import StoredWinners
    from graphopt.policy import resolve
    from graphopt.render.explanation import join_explanations
    from graphopt.store import Store

    found = None if policy is None else resolve(policy)
    winners = StoredWinners(store or Store())
    show(STEPS[0], 0)
    compiled = compile_with(fn, args, forms=policy is not None)
    title = str(getattr(fn, "__name__", "") or type(fn).__name__)
    several = len(compiled.modules) > 1
    modules = []
    show(STEPS[1], 1)
    for number, data in enumerate(compiled.modules):
        graph, label = build_graph(data), f"{title} {number}" if several else title
        winner = winners.find(graph, data) if found and winners.any() else None
        modules.append(_module(graph, found, winner, store, label, compiled.forms))
    show(STEPS[2], 2)
    measured, why = _measured(fn, args, found, winners, measure_s)
    return join_explanations(title, found.name if found else "XLA", modules, measured, why)


def _measured(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policy: NamedPolicy | None,
    winners: StoredWinners,
    budget_s: float,
) -> tuple[Measured | None, str]:
    """What was measured, or None and why nothing was."""
    import jax

    if policy is None:
        return None, ""
    if budget_s <= 0:
        return None, "no time was given for it"
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(args)):
        return None, "the arguments are shapes, not arrays"
    from graphopt.evaluate.commands.measuring import measure_program

    try:
        return measure_program(fn, args, policy, winners, budget_s), ""
    except Exception as error:  # the user's own program, or memory for a second copy of its results
        return None, f"it could not be run: {type(error).__name__}: {str(error)[:300]}"


def _module(
    graph: Graph,
    policy: NamedPolicy | None,
    winner: Adopted | None,
    store: Store | None,
    label: str,
    forms: tuple[str, ...],
) -> ModuleExplanation:
    from graphopt.render.clocks import best_times
    from graphopt.render.modules import explain_module

    decisions, remark = _decided(graph, policy)
    if winner is not None:
        decisions, remark = winner.decisions, winner.reason
    if forms:
        remark = "\n  ".join(filter(None, [remark, f"forms of operations: {', '.join(forms)}"]))
    times, clock = best_times(graph, store)
    return explain_module(
        graph,
        graph.default if decisions is None else decisions,
        times=times,
        clock=clock,
        remark=remark,
        label=label,
    )


def _decided(graph: Graph, policy: NamedPolicy | None) -> tuple[Decisions | None, str]:
    """What a policy decides, None for XLA's default, and what it says of it."""
    if policy is None:
        return None, ""
    no_gain = f"{policy.name} expects no gain: the module is left to XLA"
    if policy.choose is None:
        decisions = policy.decide(graph)
        return decisions, no_gain if decisions is None else ""
    choice = policy.choose(graph)
    if choice is None:
        return None, no_gain
    return choice.decisions, "\n  ".join([f"decided by {choice.name}", *map(str, choice.steps)])


def explain_workload(
    workload: str,
    policy: str | None,
    html: Path | None,
    as_json: bool = False,
    measure_s: float = MEASURE_S,
) -> str:
    """Explains ``pkg.module:builder`` or a built-in program; writes the page if `html` names a
    file.

    Raises:
        WorkloadError: there is no such program.
    """
    from rich.console import Console

    from graphopt.corpus.workloads import build_program, find_program
    from graphopt.progress import steps

    program = find_program(workload)
    fn, args = build_program(program, workload)
    with steps(Console(stderr=True), len(STEPS), "steps done") as show:
        explanation = _explain(fn, args, policy, None, measure_s, show)
    text = json.dumps(explanation.to_dict(), indent=1) if as_json else explanation.text()
    if html is None:
        return text
    written = explanation.save_html(html)
    return text if as_json else f"{text}\n\nwritten: {written}"
