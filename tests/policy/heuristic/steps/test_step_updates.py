"""The step 'updates': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from support.captures import capture, node, nodes, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.machine import UnitKind
from graphopt.policy.heuristic.steps import decide

NAME = "updates"


def stencil(x):
    return 0.1 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1])


def diffused(x):
    return x.at[1:-1, 1:-1].add(stencil(x))


def bounded(x):
    """What is read is an argument, which nothing overwrites: its slices need no copies."""
    return x.at[1:-1, 1:-1].set(stencil(x)).at[0].set(1.0).at[:, 0].set(x[:, 1])


def in_a_loop(x):
    return jax.lax.fori_loop(0, 5, lambda _, y: diffused(y), x)


def line(x):
    return x.at[1:-1].add(0.1 * (x[2:] - 2 * x[1:-1] + x[:-2]))


@pytest.mark.parametrize("fn", [diffused, in_a_loop, lambda x: x.at[1:-1, 1:-1].add(1.0)])
def test_an_update_that_reads_what_it_changes_is_computed_before(fn):
    edit = check_acts(NAME, fn, normal(500, 501))
    assert "fuse" in fields_of(edit)


@pytest.mark.parametrize(
    "fn",
    [
        diffused,
        in_a_loop,
        lambda x: x.at[1:-1, 1:-1].set(x[2:, 1:-1] + x[:-2, 1:-1]),
        lambda x: x.at[1:-1].set(x[2:] - x[:-2]),
    ],
    ids=["stencil", "loop", "neighbours", "whole rows"],
)
def test_neighbours_are_read_where_they_are(fn):
    x = normal(500, 501)
    edit = check_acts(NAME, fn, x)
    graph = capture(fn, x).graph
    outside = {n for n in nodes(graph, "slice") if not graph.default.fuse[n]}
    taken = {n for c in edit.changes if c.field == "fuse" for n in c.nodes}
    assert outside and outside <= taken


def test_lines_and_integers():
    check_acts(NAME, line, normal(100_001))
    check_acts(NAME, lambda x: x.at[1:].add(x[:-1] + x[1:]), jnp.arange(100_000))


def test_slices_that_nothing_overwrites_are_read_where_they_are():
    edit = check_acts(NAME, bounded, normal(500, 501))
    taken = [c for c in edit.changes if c.field == "fuse" and any(c.values)]
    graph = capture(bounded, normal(500, 501)).graph
    assert {graph.ops[n].name for change in taken for n in change.nodes} >= {"slice"}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x.at[1:-1, 1:-1].set(y[1:-1, 1:-1] * 2 + 1),
        lambda x, y: (x.at[3].add(x[4]), y),
        lambda x, y: (x.at[1:-1].multiply(x[2:]), y),
    ],
    ids=["of another array", "of one row", "of whole rows"],
)
def test_other_updates_stay(fn):
    assert edit_of(NAME, fn, normal(300, 300), normal(300, 300, seed=1)) is None


def test_native_loops_read_neighbours_where_they_are():
    def sweeps(x):
        return jax.lax.fori_loop(0, 50, lambda _, y: diffused(y), x)

    x = normal(32, 32)
    graph = capture(sweeps, x).graph
    edit = check_acts(NAME, sweeps, x, after=("native loops",))
    native = decide(graph, ("native loops",)).decisions
    assert graph.units[native.unit[node(graph, "while")]].kind is UnitKind.NATIVE
    decisions = edit.applied_to(native)
    value = graph.operand_lists[node(graph, "dynamic-update-slice")][1]
    assert not decisions.fuse[value] and decisions.fuse[nodes(graph, "slice")].all()
