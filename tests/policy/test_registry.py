"""Policies by name."""

from __future__ import annotations

import pytest
from support.captures import captured

from graphopt import policy as policies
from graphopt.errors import PolicyError
from graphopt.policy.heuristic.steps import heuristic
from graphopt.policy.registry import xla_default


def test_names_and_aliases():
    assert policies.names() == ["heuristic", "no-recompute", "shipped", "xla-default"]
    for name in policies.names():
        found = policies.resolve(name)
        assert found.built_in
        assert (found.key == found.name) == (name != "shipped")
    assert policies.resolve("no-recompute").name == "heuristic"
    assert policies.resolve("heuristic").decide is heuristic


def test_functions_are_policies_of_their_own():
    def mine(graph):
        return None

    first, second = policies.resolve(mine), policies.resolve(mine)
    assert first.decide is mine
    assert not first.built_in
    assert "mine" in first.name
    # Nothing says that the function decides alike tomorrow: it never shares cached programs.
    assert first.key != second.key
    assert {first.key, second.key}.isdisjoint(policies.names())


def test_objects_that_can_be_called_are_policies():
    class Stubborn:
        def __call__(self, graph):
            return graph.default

    assert policies.resolve(Stubborn()).name.endswith("Stubborn")


@pytest.mark.parametrize("name", ["", "Heuristic", "heuristic ", "nonsense"])
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(PolicyError, match="heuristic, no-recompute, shipped, xla-default"):
        policies.resolve(name)


@pytest.mark.parametrize("value", [3, None, {"heuristic": 1}])
def test_other_things_are_no_policies(value):
    with pytest.raises(PolicyError, match="a name or a function"):
        policies.resolve(value)


def test_xla_default_decides_as_xla():
    graph = captured("knapsack").graph
    assert xla_default(graph).same_as(graph.default)
