"""``graphopt.explain``: what a policy changes in a program, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.policy.registry import DEFAULT

if TYPE_CHECKING:
    from graphopt.hlo import Decisions, Graph
    from graphopt.policy import NamedPolicy, Policy
    from graphopt.render import Explanation, ModuleExplanation
    from graphopt.store import Store


def explain(
    fn: Callable[..., Any],
    *args: Any,
    policy: str | Policy | None = DEFAULT,
    store: Store | None = None,
) -> Explanation:
    """Explains what a policy decides for one call of a jittable function.

    The function is compiled by XLA's default, operations in the forms that `graphopt.install` gives them
    (their names are in the text), and not run.

    >>> print(graphopt.explain(fn, *args))
    >>> graphopt.explain(fn, *args).save_html("why.html")

    Args:
        fn: jittable.
        args: concrete arguments, or anything ``jax.jit(fn).lower`` takes.
        policy: name of a policy or a function Graph -> Decisions | None; None shows XLA's own
        decisions.
        store: measured kernels for the times of clusters; the user's store by default. Where it
            knows none of the program's, times come from a formula.

    Raises:
        UnsupportedModuleError: a module that graphopt leaves alone.
        PolicyError: there is no such policy.
        DecisionError: the policy decided what its graph's masks forbid.
    """
    from graphopt.hlo import build_graph
    from graphopt.measure import compile_with
    from graphopt.policy import resolve
    from graphopt.render.explanation import join_explanations

    found = None if policy is None else resolve(policy)
    compiled = compile_with(fn, args, forms=policy is not None)
    graphs = [build_graph(data) for data in compiled.modules]
    title = str(getattr(fn, "__name__", "") or type(fn).__name__)
    names = [title] if len(graphs) == 1 else [f"{title} {i}" for i in range(len(graphs))]
    modules = [
        _module(graph, found, store, name, compiled.forms)
        for graph, name in zip(graphs, names, strict=True)
    ]
    return join_explanations(title, found.name if found else "XLA", modules)


def _module(
    graph: Graph,
    policy: NamedPolicy | None,
    store: Store | None,
    label: str,
    forms: tuple[str, ...],
) -> ModuleExplanation:
    from graphopt.render.clocks import best_times
    from graphopt.render.modules import explain_module

    decisions, remark = _decided(graph, policy)
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


def explain_workload(workload: str, policy: str | None, html: Path | None) -> str:
    """Explains ``pkg.module:builder`` or a built-in program; writes the page if `html` names a
    file.

    Raises:
        WorkloadError: there is no such program.
    """
    from graphopt.corpus.workloads import build_program, find_program

    program = find_program(workload)
    fn, args = build_program(program, workload)
    explanation = explain(fn, *args, policy=policy)
    if html is None:
        return explanation.text()
    return f"{explanation.text()}\n\nwritten: {explanation.save_html(html)}"
