"""Masks for decisions that are carried over: those of the graph, without what nobody asks there."""

import numpy as np
import pytest
from support.captures import MACHINE, captured

from graphopt.hlo import RESTRUCTURES, build_graph
from graphopt.hlo.legal.rules import settled_masks


@pytest.mark.parametrize("name", ["cartpole_rollout", "gather_scatter", "cholesky_solve"])
def test_settled_masks_differ_in_further_replacements_only(name):
    settled = settled_masks(build_graph(captured(name).data, MACHINE))
    whole = captured(name).graph.masks
    for field in ("fuse", "join", "unit"):
        assert np.array_equal(getattr(settled, field), getattr(whole, field))
    for code, row in enumerate(RESTRUCTURES):
        judged = row.opens or not row.replaces or code == 0
        expected = whole.restructure[:, code] if judged else False
        assert np.all(settled.restructure[:, code] == expected), row.name


def test_masks_that_are_known_are_used():
    graph = build_graph(captured("cartpole_rollout").data, MACHINE)
    whole = graph.masks
    assert settled_masks(graph) is whole
