"""Features: ranges, scale, edges, and the description of decision values."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.captures import MACHINE, PROGRAMS, captured

from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.module.opcodes import OPS
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE, REPLACES
from graphopt.machine import UnitKind, cpu_units
from graphopt.policy.heuristic.steps import heuristic
from graphopt.policy.network import decision_space
from graphopt.policy.network.decision_space import (
    ALL_ROWS,
    DECODED,
    MAX_PLAIN_VALUES,
    VALUE_FEATURES,
    KnownRows,
    field_inputs,
    unit_values,
)
from graphopt.policy.network.estimates import estimate
from graphopt.policy.network.features import DTYPE_NAMES, NUMERIC, OP_NAMES, extract, numeric_names


def column(graph, name):
    return extract(graph, MACHINE).numeric[:, numeric_names().index(name)]


@pytest.mark.parametrize("name", [program.name for program in PROGRAMS[::4]])
def test_all_columns_are_finite_and_of_one_scale(name):
    graph = captured(name).graph
    features = extract(graph, MACHINE)
    assert features.numeric.shape == (len(graph), len(numeric_names()))
    assert np.isfinite(features.numeric).all()
    assert np.abs(features.numeric).max() <= 4.0
    assert features.share.sum() == pytest.approx(1.0, abs=1e-3)
    assert (features.share >= 0).all()


def test_names_are_unique_and_described():
    assert len(set(numeric_names())) == len(numeric_names())
    assert all(row.meaning for row in NUMERIC)


def test_opcodes_and_types_have_rows_of_their_own():
    graph = captured("cartpole_rollout").graph
    features = extract(graph, MACHINE)
    assert [OP_NAMES[row] for row in features.opcode] == [op.name for op in graph.ops]
    assert OP_NAMES[0] == "unknown"
    assert len(OP_NAMES) == len(OPS) + 1
    assert {DTYPE_NAMES[row] for row in features.dtype} == {DType(d).name for d in graph.dtype}


def test_edges_are_operands_and_control_edges():
    graph = captured("ring_buffer").graph
    features = extract(graph, MACHINE)
    expected = [(o, n) for n, operands in enumerate(graph.operand_lists) for o in operands]
    expected += [tuple(edge) for edge in graph.control.tolist()]
    found = list(zip(features.senders.tolist(), features.receivers.tolist(), strict=True))
    assert sorted(found) == sorted(expected)
    assert (np.diff(features.receivers) >= 0).all()


def test_copies_count_the_paths_through_fused_users():
    graph = captured("heat_stencil").graph
    fused = graph.default.fuse

    def paths(node):
        if not fused[node]:
            return 1
        return sum(paths(u) * graph.operand_lists[u].count(node) for u in graph.user_lists[node])

    expected = [np.log2(1 + paths(n)) / 4 for n in range(len(graph))]
    assert column(graph, "copies") == pytest.approx(np.clip(expected, 0, 4), rel=1e-5)


def test_a_loop_costs_what_its_body_costs_times_its_trips():
    graph = captured("cartpole_rollout").graph
    times = estimate(graph)
    outer = [c for c in graph.computations if c.trip_count and c.trip_count > 1]
    assert outer
    for computation in outer:
        body = times.default[computation.first : computation.end].sum()
        assert times.default[computation.caller] >= body * computation.trip_count


def test_large_caches_change_cache_columns_only():
    graph = captured("layernorm").graph
    small = extract(graph, MACHINE).numeric
    large = extract(graph, replace(MACHINE, l2_bytes=MACHINE.l2_bytes * 16)).numeric
    changed = {numeric_names()[c] for c in np.flatnonzero((small != large).any(axis=0))}
    assert changed == {"bytes_per_l2"}


def test_decision_fields_carry_masks_and_the_start():
    graph = captured("transformer_block").graph
    features = extract(graph, MACHINE)
    assert features.start.same_as(heuristic(graph))
    assert extract(graph, MACHINE, graph.default).start.same_as(graph.default)
    fields = {field.name: field for field in features.fields}
    assert set(fields) == set(FIELDS)
    assert tuple(fields) == DECODED
    for name, field in fields.items():
        legal = getattr(graph.masks, name)
        if name == "restructure":  # nor how kernels are written, nor rows that it has no column for
            legal = legal & ALL_ROWS.choosable()
        assert np.array_equal(field.mask, legal)
        assert np.array_equal(field.start, getattr(features.start, name))
        assert field.values.shape == (field.mask.shape[1], len(VALUE_FEATURES))
    dot = next(i for i, op in enumerate(graph.ops) if op.name == "dot")
    free = fields["unit"].mask[dot].sum() > 1
    assert bool(fields["unit"].free[dot]) == bool(free)


def test_unit_values_describe_kind_and_threads_on_any_machine():
    for cores in (1, 2, 16):
        values = unit_values(cpu_units(cores))
        assert values.shape == (cores + 3, len(VALUE_FEATURES))
        assert len(np.unique(values, axis=0)) == cores + 3
    native = cpu_units(16)[-1]
    assert native.kind is UnitKind.NATIVE
    # One thread of sixteen cores is the same unit as one of two, up to the share of the machine.
    two, sixteen = unit_values(cpu_units(2))[0], unit_values(cpu_units(16))[0]
    differs = {VALUE_FEATURES[i] for i in np.flatnonzero(two != sixteen)}
    assert differs == {"threads_per_core"}


def restructures(graph, start, rows=ALL_ROWS):
    """The field `restructure` as a network sees it that knows these rows."""
    return next(f for f in field_inputs(graph, start, rows) if f.name == "restructure")


def test_more_rows_than_columns_are_masked_for_the_network(monkeypatch):
    """A network still decides when `restructure` has more rows than it has columns."""
    graph = captured("cartpole_rollout").graph
    rows = max(MAX_PLAIN_VALUES, len(CODE)) + 4
    more = np.zeros((len(graph), rows), np.bool_)
    more[:, : len(REPLACES)] = graph.masks.restructure
    more[:, len(REPLACES) :] = True
    start = heuristic(graph).copy()
    start.restructure[0] = rows - 1
    names = [*CODE, *(f"row {index}" for index in range(len(CODE), rows))]
    replaces = np.append(REPLACES, [True] * (rows - len(REPLACES)))
    monkeypatch.setattr(decision_space, "REPLACES", replaces)
    monkeypatch.setattr(decision_space, "CODE", {name: i for i, name in enumerate(names)})
    fields = {name: getattr(graph.masks, name) for name in FIELDS} | {"restructure": more}
    monkeypatch.setitem(graph.derived, "masks", SimpleNamespace(**fields))
    field = restructures(graph, start)
    assert field.mask[0].nonzero()[0].tolist() == [rows - 1]
    assert not field.mask[1:, len(CODE) :].any() and field.mask.any(axis=1).all()
    assert field.values.shape == (rows, len(VALUE_FEATURES))
    assert not field.values[len(CODE) :].any()


def test_rows_are_told_by_name():
    """A network whose columns are ordered otherwise, and that lacks some rows, sees the same rows."""
    graph = captured("cartpole_rollout").graph
    start = graph.default
    known = KnownRows(("keep", "pack", "gone", "unroll"), ("keep", "gone", "unroll"))
    field = restructures(graph, start, known)
    columns = {name: field.values[code].nonzero()[0].tolist() for name, code in CODE.items()}
    assert (columns["keep"], columns["pack"], columns["unroll"]) == ([0], [1], [3])
    assert columns["hoist"] == columns["scatter-loop"] == []
    untrained = restructures(graph, start, KnownRows(known.columns, ("keep", "pack")))
    assert field.mask[:, CODE["unroll"]].any()
    assert np.array_equal(untrained.values, field.values)
    assert not untrained.mask[:, 1:].any()


def test_a_loop_knows_how_much_it_stands_for():
    graph = captured("fibonacci").graph
    inside = column(graph, "inside")
    loops = [n for n, op in enumerate(graph.ops) if op.name == "while"]
    others = np.delete(inside, [c.caller for c in graph.computations if c.caller is not None])
    assert inside[loops].min() > others.max()
