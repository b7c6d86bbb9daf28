"""Names of kernels, given to many decision vectors at once: equal where kernels are equal, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import captured

from graphopt.hlo import DecisionBatch, Graph, apply_restructures
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.restructure import REPLACES
from graphopt.machine import UnitKind
from graphopt.measure.bank.scorer import BankScorer
from graphopt.measure.bank.signatures import Namer

NAMES = ("adam_step", "heat_stencil", "cartpole_rollout", "lstm", "transformer_block")
MANY = 24
"""More vectors than are named one by one."""

vectors = st.tuples(st.sampled_from(NAMES), st.integers(0, 2**32 - 1), st.floats(0.01, 1.0))


def draw(graph: Graph, seed: int, rate: float, count: int = MANY) -> DecisionBatch:
    rng = np.random.default_rng(seed)
    return DecisionBatch.stack([graph.masks.sample(rng, graph.default, rate) for _ in range(count)])


def rows(batch: DecisionBatch, index: slice) -> DecisionBatch:
    return DecisionBatch({name: values[index] for name, values in batch.fields.items()})


@settings(max_examples=25, deadline=None)
@given(vectors)
def test_one_vector_gets_the_names_it_gets_among_many(drawn):
    name, seed, rate = drawn
    graph = captured(name).graph
    namer, batch = Namer(graph), draw(graph, seed, rate)
    together = namer.name(batch)
    for row in range(0, MANY, 5):
        alone = namer.name(rows(batch, slice(row, row + 1)))
        for field in ("key", "native", "partner"):
            np.testing.assert_array_equal(getattr(alone, field)[0], getattr(together, field)[row])
        # Regions are numbered with gaps, which depend on the other vectors; their order does not.
        np.testing.assert_array_equal(
            np.unique(alone.region[0], return_inverse=True)[1],
            np.unique(together.region[row], return_inverse=True)[1],
        )
        named = together.region_key[row]
        np.testing.assert_array_equal(
            alone.region_key[0][alone.region_key[0] != 0], named[named != 0]
        )


def computed(graph: Graph, fuse: np.ndarray, root: int) -> frozenset[int]:
    """The root and the fused values above it, by following operands."""
    found, stack = {root}, [root]
    while stack:
        for operand in graph.operand_lists[stack.pop()]:
            if fuse[operand] and operand not in found:
                found.add(operand)
                stack.append(operand)
    return frozenset(found)


@settings(max_examples=25, deadline=None)
@given(vectors)
def test_kernels_share_a_name_exactly_where_they_compute_the_same(drawn):
    name, seed, rate = drawn
    graph = captured(name).graph
    native = [unit.kind is UnitKind.NATIVE for unit in graph.units]
    batch = draw(graph, seed, rate, 8)
    signatures = Namer(graph).name(batch)
    marks = ~REPLACES[batch.fields["restructure"]]
    bodies: dict[int, tuple[int, frozenset[int], int, bool]] = {}
    keys: dict[tuple[int, frozenset[int], int, bool], int] = {}
    for row, node in np.argwhere(signatures.key != 0).tolist():
        unit = int(batch.fields["unit"][row, node])
        alone = signatures.partner[row, node] < 0 and not (signatures.partner[row] == node).any()
        if not alone or native[unit] or signatures.native[row, node]:
            continue  # joined and native kernels are named together with others
        what = (
            node,
            computed(graph, batch.fields["fuse"][row], node),
            unit,
            bool(marks[row, node]),
        )
        key = int(signatures.key[row, node])
        assert bodies.setdefault(key, what) == what
        assert keys.setdefault(what, key) == key
    assert bodies


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.5))
def test_vectors_with_replacements_are_scored_as_if_alone(seed, rate):
    graph = captured("cartpole_rollout").graph
    scorer = BankScorer(graph)
    batch = draw(graph, seed, rate, 6)
    together = scorer.score(batch)
    alone = [float(scorer.score(rows(batch, slice(i, i + 1))).seconds[0]) for i in range(6)]
    np.testing.assert_allclose(together.seconds, alone, rtol=1e-12)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_decisions_are_carried_to_a_restructured_graph_row_by_row(rate):
    graph = captured("cartpole_rollout").graph
    codes = np.zeros(len(graph), np.int8)
    node, code = np.argwhere((graph.masks.restructure & REPLACES)[:, 1:])[0]
    codes[node] = code + 1
    after = apply_restructures(graph, codes)
    batch = draw(graph, 1, rate)
    together = after.carry_batch(batch)
    for row in range(MANY):
        alone = after.carry(batch[row])
        after.graph.masks.check(alone)
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(alone, field), together.fields[field][row])
