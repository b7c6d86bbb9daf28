"""What the tests of single steps share: a step acts, abstains, stays legal, and results stay equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from graphopt.costs.model import CostModel
from graphopt.hlo import Graph, rewrite
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import STEPS, TABLE, decide
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from support.captures import Captured, capture
from support.loops import kernel_by_kernel

Function = Callable[..., Any]


def edit_of(name: str, fn: Function, *args: Any, after: tuple[str, ...] = ()) -> Edit | None:
    """What a step wants in a program whose loops XLA runs kernel by kernel, after some other steps."""
    return edit_in(kernel_by_kernel(capture(fn, *args)).graph, name, after)


def edit_in(graph: Graph, name: str, after: tuple[str, ...] = ()) -> Edit | None:
    """What a step wants in a graph, after some other steps; its context stays as it was."""
    model = CostModel(graph)
    context = Context(graph, model, decide(graph, after, model).decisions)
    before = context.decisions.copy()
    step = TABLE[STEPS.index(name)]
    edit = step.apply(context)
    assert context.decisions.same_as(before), "a step changed its context"
    if edit is not None and not edit.saved_ns > step.least_ns(context.program_ns):
        return None
    return edit


def check_acts(name: str, fn: Function, *args: Any, after: tuple[str, ...] = ()) -> Edit:
    """`check_acts_on` for a program whose loops XLA runs kernel by kernel."""
    return check_acts_on(kernel_by_kernel(capture(fn, *args)), name, after)


def check_acts_on(program: Captured, name: str, after: tuple[str, ...] = ()) -> Edit:
    """The step has an edit; with it the decisions are legal, the record names it, results are equal."""
    edit = edit_in(program.graph, name, after)
    assert edit is not None and edit.changes and edit.reason
    assert all(len(change.nodes) == len(change.values) > 0 for change in edit.changes)
    decided = decide(program.graph, (*after, name))
    record = next(record for record in decided.steps if record.step == name)
    assert record.edit.nodes == edit.nodes and record.edit.saved_ns == edit.saved_ns
    program.graph.masks.check(decided.decisions)
    result = program.compile(rewrite(program.graph, decided.decisions).data)()
    assert compare_outputs(program.result, result).equal
    return edit


def fields_of(edit: Edit) -> set[str]:
    """Names of the fields that an edit changes."""
    names = {change.field for change in edit.changes}
    assert names <= set(FIELDS)
    return names


def loop(x: jax.Array, steps: int = 200) -> jax.Array:
    """A loop of small kernels on f32[n]."""

    def step(_: Any, carry: jax.Array) -> jax.Array:
        return jnp.tanh(carry * 0.9) - 0.1 * carry[::-1]

    return jax.lax.fori_loop(0, steps, step, x)
