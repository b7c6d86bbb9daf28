"""Alternatives are legal by mask, change what they say, and are offered only where they do something."""

from __future__ import annotations

import numpy as np
import pytest
from support.captures import captured

from graphopt.costs.model import CostModel
from graphopt.errors import ConfigError
from graphopt.hlo import RESTRUCTURES
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.alternatives.alternative import (
    FIRST_ROW,
    KIND,
    KIND_CODE,
    KINDS,
    STOP,
    Alternative,
    When,
    apply,
    difference,
)
from graphopt.policy.alternatives.sites import PROGRAM_ROWS
from graphopt.policy.alternatives.table import AlternativeTable, alternatives
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps

NAMES = [
    "adam_step",
    "cartpole_rollout",
    "hodgkin_huxley",
    "layernorm",
    "scan_grad",
    "sorting",
    "lstm",
]


def heuristic_of(graph):
    return heuristic_steps(graph, STEPS, CostModel(graph))


@pytest.mark.parametrize("name", NAMES)
def test_every_alternative_is_legal_alone_and_after_others(name):
    graph = captured(name).graph
    table = alternatives(graph)
    assert len(table) > 10 and table.rows[0] is STOP
    rng = np.random.default_rng(0)
    for start in (graph.default, heuristic_of(graph)):
        for row in table.rows:
            graph.masks.check(apply(start, [row]))
        flat = table.flat(start)
        for _ in range(40):
            table.choose(flat, int(rng.choice(np.flatnonzero(table.available(flat)))))
            graph.masks.check(table.decisions(flat))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_available_changes_something_and_takes_effect_where_it_stands(name):
    graph = captured(name).graph
    table = alternatives(graph)
    start = heuristic_of(graph)
    offered = table.available(table.flat(start))
    native = unit_index(graph.units, UnitKind.NATIVE)
    inside = set()
    for index in range(len(graph.computations) - 1, -1, -1):
        caller = graph.computations[index].caller
        if caller is not None and (
            start.unit[caller] == native or int(graph.computation[caller]) in inside
        ):
            inside.add(index)
    assert offered[0]
    for row, available in list(zip(table.rows, offered, strict=True))[1:]:
        when = KIND[row.kind].when
        wanted = bool(row.changes(start))
        if when in (When.WRITTEN, When.KERNEL):
            wanted &= not start.fuse[row.node]
        if when in (When.OUTSIDE, When.KERNEL):
            wanted &= int(graph.computation[row.node]) not in inside
        assert available == wanted, row.name
        after = apply(start, [row])
        assert set(difference(start, after)) == set(row.changes(start))


def test_flat_arrays_and_decisions_say_the_same():
    graph = captured("scan_grad").graph
    table = alternatives(graph)
    start = heuristic_of(graph)
    for index in range(0, len(table), 7):
        flat = table.flat(start)
        table.choose(flat, index)
        assert table.decisions(flat).same_as(apply(start, [table.rows[index]]))
        assert not table.available(flat)[index] or index == 0


def test_a_native_loop_brings_along_what_it_entails_and_back():
    graph = captured("scan_grad").graph
    rows = alternatives(graph).rows
    native = next(r for r in rows if r.kind == "loop native")
    back = next(r for r in rows if r.kind == "loop not native" and r.node == native.node)
    inside = apply(graph.default, [native])
    assert inside.unit[native.node] == unit_index(graph.units, UnitKind.NATIVE)
    after = apply(inside, [back])
    changed = {edit for edit in difference(graph.default, after) if edit[1] != back.node}
    assert not changed


def test_all_forms_of_an_operation_are_offered():
    graph = captured("sorting").graph
    rows = alternatives(graph, least_share=0.0).rows
    legal = graph.masks.restructure
    offered = {edit[1:] for row in rows for edit in row.edits if edit[0] == "restructure"}
    for node, code in np.argwhere(legal[:, 1:]).tolist():
        if RESTRUCTURES[code + 1].name != "pack":
            assert (node, code + 1) in offered


def test_parts_of_programs_have_no_alternatives_of_the_whole():
    graph = captured("cartpole_rollout").graph
    whole = {row.kind for row in alternatives(graph, least_share=0.0).rows}
    part = alternatives(graph, least_share=0.0, program=False).rows
    assert PROGRAM_ROWS & whole and not PROGRAM_ROWS & {row.kind for row in part}
    assert all(row.node >= 0 for row in part[1:])


def test_the_heaviest_are_kept():
    graph = captured("adam_step").graph
    model = CostModel(graph)
    whole, few = alternatives(graph, model), alternatives(graph, model, limit=9)
    assert few.rows == whole.rows[:10]
    assert list(whole.weight[1:]) == sorted(whole.weight[1:], reverse=True)
    assert len({row.edits for row in whole.rows}) == len(whole)


def test_what_does_not_fit_is_refused():
    graph = captured("layernorm").graph
    with pytest.raises(ConfigError, match="without edits"):
        AlternativeTable(graph, [STOP])
    with pytest.raises(ConfigError, match="node 999 of"):
        apply(graph.default, [Alternative("join", 999, (("join", 999, 1),))])


def test_a_graph_without_choices_has_stop_only():
    table = AlternativeTable(captured("layernorm").graph, [])
    assert table.available(table.flat(table.graph.default)).tolist() == [True]


def test_codes_of_kinds_stay_when_kinds_and_rows_are_added():
    assert KIND_CODE["stop"] == 0 and KIND_CODE["as it is"] == 15
    assert len(set(KIND_CODE.values())) == len(KINDS)
    for code, row in enumerate(RESTRUCTURES[1:], start=1):
        assert KIND_CODE[row.name] == FIRST_ROW + code
    own = [kind for kind in KINDS if KIND_CODE[kind.name] < FIRST_ROW]
    assert [KIND_CODE[kind.name] for kind in own] == list(range(len(own)))
