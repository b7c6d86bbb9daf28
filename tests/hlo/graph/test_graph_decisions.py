"""Decision vectors and masks: their form, what they check and what they sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import captured, changed, unit
from support.legality_texts import UNITS, graph_of, named

from graphopt.errors import DecisionError
from graphopt.hlo import Decisions

# Decisions.


def arrays(count: int = 3) -> dict[str, Any]:
    return {
        "fuse": np.zeros(count, np.bool_),
        "join": np.zeros(count, np.bool_),
        "unit": np.zeros(count, np.int16),
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fuse", np.zeros(3, np.int8)),
        ("fuse", [False, True, False]),
        ("join", np.zeros((3, 1), np.bool_)),
        ("join", np.zeros(2, np.bool_)),
        ("unit", np.zeros(3, np.int32)),
        ("unit", np.zeros(4, np.int16)),
        ("unit", None),
    ],
    ids=["dtype", "list", "rank", "short", "wide", "long", "missing"],
)
def test_decisions_of_the_wrong_form(field, value):
    Decisions(**arrays())
    with pytest.raises(DecisionError) as caught:
        Decisions(**{**arrays(), field: value})
    assert caught.value.field == field
    assert caught.value.node is None and caught.value.rule is None


def test_copies_do_not_share_and_compare_by_value():
    one = Decisions(**arrays())
    other = one.copy()
    assert one.same_as(other)
    other.unit[1] = 2
    assert not one.same_as(other)
    assert one.unit[1] == 0
    flipped = one.with_changes(fuse=~one.fuse)
    assert flipped.fuse.all() and not one.fuse.any()
    assert len(one) == 3


# Masks.


def test_check_names_field_node_and_rule():
    graph = graph_of("straight")
    total = named(graph, "total")
    with pytest.raises(DecisionError, match="read-from-memory") as caught:
        graph.masks.check(changed(graph.default, fuse={total: 1}))
    error = caught.value
    assert (error.field, error.node, error.rule) == ("fuse", total, "read-from-memory")


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [("join", "sorted", 1), ("unit", "sorted", "native"), ("unit", "smooth", "runtime")],
)
def test_check_looks_at_every_field(field, name, value):
    graph = graph_of("straight")
    index = named(graph, name)
    column = value if isinstance(value, int) else unit(graph, *UNITS[value])
    with pytest.raises(DecisionError) as caught:
        graph.masks.check(changed(graph.default, **{field: {index: column}}))
    assert (caught.value.field, caught.value.node) == (field, index)
    assert caught.value.rule == graph.masks.why_not(index, field, column)


@pytest.mark.parametrize("value", [-1, 99])
def test_check_refuses_units_that_do_not_exist(value):
    graph = graph_of("straight")
    with pytest.raises(DecisionError, match="does not exist") as caught:
        graph.masks.check(changed(graph.default, unit={2: value}))
    assert (caught.value.field, caught.value.node, caught.value.rule) == ("unit", 2, None)


@pytest.mark.parametrize("shift", [-1, 1])
def test_check_refuses_another_length(shift):
    graph = graph_of("straight")
    with pytest.raises(DecisionError, match="decisions for a graph of") as caught:
        graph.masks.check(Decisions(**arrays(len(graph) + shift)))
    assert (caught.value.field, caught.value.node) == ("decisions", None)


def test_check_refuses_other_types():
    with pytest.raises(DecisionError, match="expected Decisions"):
        graph_of("straight").masks.check(arrays())


def test_masks_are_where_no_rule_applies():
    graph = graph_of("straight")
    masks = graph.masks
    assert masks.fuse.shape == masks.join.shape == (len(graph), 2)
    assert masks.unit.shape == (len(graph), len(graph.units))
    for field in ("fuse", "join", "unit"):
        mask = getattr(masks, field)
        assert mask.any(axis=1).all(), "every node has a legal value"
        for index in range(len(graph)):
            allowed = [masks.why_not(index, field, v) is None for v in range(mask.shape[1])]
            assert allowed == mask[index].tolist()


SAMPLED = ("fibonacci", "sorting", "shared_outputs", "layernorm_bf16", "safe_newton", "conv_grad")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(SAMPLED),
    seed=st.integers(0, 2**32 - 1),
    change=st.floats(0.0, 1.0),
)
def test_samples_are_legal(name, seed, change):
    graph = captured(name).graph
    before = graph.default.copy()
    drawn = graph.masks.sample(np.random.default_rng(seed), graph.default, change)
    graph.masks.check(drawn)
    again = graph.masks.sample(np.random.default_rng(seed), graph.default, change)
    assert drawn.same_as(again)
    assert graph.default.same_as(before)


def test_samples_stay_or_reach_everything():
    graph = graph_of("straight")
    masks = graph.masks
    rng = np.random.default_rng(0)
    assert masks.sample(rng, graph.default, 0.0).same_as(graph.default)
    drawn = [masks.sample(rng, graph.default, 1.0) for _ in range(200)]
    rows = np.arange(len(graph))
    for field in ("fuse", "join", "unit"):
        reached = np.zeros_like(getattr(masks, field))
        for decisions in drawn:
            reached[rows, getattr(decisions, field).astype(np.intp)] = True
        assert (reached == getattr(masks, field)).all(), field
