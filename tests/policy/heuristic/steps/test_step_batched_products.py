"""The step 'batched products': acts, abstains, stays legal, results equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from support.captures import MACHINE, capture, node, normal
from support.stepping import check_acts, edit_of, fields_of

from graphopt.costs.model import CostModel
from graphopt.hlo import build_graph
from graphopt.machine import UnitKind, cost_rows, cpu_units, decide_with
from graphopt.policy.heuristic.batched_products import apply
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.sequences import uses_cores

NAME = "batched products"


@pytest.fixture(autouse=True)
def table_costs():
    """Decides by the table, whatever this machine is."""
    with decide_with(cost_rows.DEFAULT):
        yield


def scores(queries: jax.Array, keys: jax.Array) -> Any:
    """Attention's first product, of every head."""
    return jnp.tanh(jnp.einsum("hqd,hdk->hqk", queries, keys) * 0.25)


def test_short_batches_go_to_the_runtime():
    queries, keys = normal(16, 32, 16), normal(16, 16, 32)
    edit = check_acts(NAME, scores, queries, keys)
    assert fields_of(edit) == {"unit"} and edit.nodes == 1
    graph = capture(scores, queries, keys).graph
    unit = edit.applied_to(graph.default).unit[node(graph, "dot")]
    assert graph.units[unit].kind is UnitKind.RUNTIME


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((4, 16, 8, 16), id="so short that the library uses one thread"),
        pytest.param((16, 128, 64, 128), id="long enough for several"),
        pytest.param((128, 8, 16, 16), id="many small matrices"),
        pytest.param((16, 4, 64, 64), id="few rows"),
    ],
)
def test_other_batches_stay_with_the_library(shape):
    batch, rows, inner, columns = shape
    args = normal(batch, rows, inner), normal(batch, inner, columns)
    assert edit_of(NAME, scores, *args) is None


def test_double_precision_stays_with_the_library():
    with jax.enable_x64(True):
        args = (x.astype(jnp.float64) for x in (normal(16, 32, 16), normal(16, 16, 32)))
        assert edit_of(NAME, scores, *args) is None


def test_one_core_has_no_threads_to_wake():
    data = capture(scores, normal(16, 32, 16), normal(16, 16, 32)).data
    graph = build_graph(data, replace(MACHINE, cores=1, units=cpu_units(1)))
    assert apply(Context(graph, CostModel(graph), graph.default)) is None


@pytest.mark.parametrize(
    ("shapes", "library", "runtime"),
    [
        (((64, 64), (64, 64)), False, False),
        (((512, 128), (128, 128)), False, True),
        (((1024, 256), (256, 256)), True, True),
        (((16, 32, 16), (16, 16, 32)), True, False),
    ],
)
def test_not_every_product_uses_several_cores(shapes, library, runtime):
    graph = capture(lambda a, b: jnp.tanh(a @ b), *(normal(*shape) for shape in shapes)).graph
    dot, decisions = node(graph, "dot"), graph.default.copy()
    for kind, expected in ((UnitKind.LIBRARY, library), (UnitKind.RUNTIME, runtime)):
        decisions.unit[dot] = next(i for i, unit in enumerate(graph.units) if unit.kind is kind)
        assert uses_cores(Context(graph, CostModel(graph), decisions), dot) is expected
