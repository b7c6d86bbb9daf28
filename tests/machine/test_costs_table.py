"""The table of machine facts: its rows, its checks, and that decisions rest on it."""

import dataclasses
import importlib
import math
import typing
from pathlib import Path

import jax.numpy as jnp
import jaxlib.version
import pytest
from golden.decisions import machine
from jax import lax
from support.captures import capture, normal

from graphopt import cli
from graphopt.costs.elements import library_reduced_ns
from graphopt.costs.model import CostModel
from graphopt.errors import ConfigError
from graphopt.machine import (
    CpuCosts,
    cost_rows,
    costs_for,
    decide_with,
    own_costs,
    own_kind,
    probe,
)
from graphopt.machine.facts import facts
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import program_ns

CALLS = ("thunk_ns", "library_call_ns", "handover_ns", "loop_ns", "runtime_call_ns")


@pytest.fixture
def nothing_handed_over():
    yield
    cost_rows.hand_over({})


def test_every_fact_has_a_unit_a_meaning_and_a_source():
    rows = facts(CpuCosts())
    assert len(rows) == len(dataclasses.fields(CpuCosts))
    assert all(row.unit and row.meaning and row.measured_by for row in rows)
    assert all(not row.meaning.endswith(".") for row in rows)


@pytest.mark.parametrize("label", sorted({fact.measured_by for fact in facts(CpuCosts())}))
def test_the_commands_that_measure_exist(label, monkeypatch):
    head, *words = label.split()
    flags = [word for word in words if word.startswith("--")]
    if head == "python":
        assert words[:1] == ["-m"]
        monkeypatch.syspath_prepend(Path(__file__).parents[1])
        module = importlib.import_module(words[1])
        if hasattr(module, "__path__"):  # a package: its command is a module of it
            module = importlib.import_module(f"{words[1]}.__main__")
        assert callable(module.main)
        text = Path(str(module.__file__)).read_text()
    else:
        (command,) = (c for c in typing.get_args(cli.Commands) if c.__name__.lower() == words[0])
        assert head == "graphopt"
        text = " ".join(f'"--{f.name.replace("_", "-")}"' for f in dataclasses.fields(command))
    assert all(f'"{flag}"' in text for flag in flags)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_cost_that_is_no_cost_is_refused(value):
    with pytest.raises(ConfigError, match=r"thunk_ns is .* doctor --calibrate"):
        dataclasses.replace(CpuCosts(), thunk_ns=value)
    with pytest.raises(ConfigError, match="integer_ns"):
        dataclasses.replace(CpuCosts(), integer_ns={"divide": -2.0})


def test_known_kinds_keep_their_row_whatever_was_measured():
    for name in ("epyc", "xeon"):
        assert cost_rows.is_known(machine(name), "0.10.2")
        row = cost_rows.known_row(machine(name), "0.10.2")
        assert costs_for(machine(name), "0.10.2", {"thunk_ns": 99.0}) == row.costs


def test_other_machines_have_what_was_measured_there():
    other = dataclasses.replace(machine("epyc"), name="Another CPU")
    assert costs_for(other, "0.10.2") == cost_rows.default_costs("0.10.2")
    measured = {"thunk_ns": 99.0, "a field of another version": 1.0}
    assert costs_for(other, "0.10.2", measured).thunk_ns == 99.0
    assert not cost_rows.is_known(machine("epyc"), "0.100.0")


def test_facts_of_a_code_generator_hold_for_its_versions_only():
    older, newer = cost_rows.default_costs("0.10.2"), cost_rows.default_costs("0.11.2")
    assert newer == cost_rows.default_costs("0.100.0") == CpuCosts()
    assert older.tile_ns > newer.tile_ns
    changed = {
        f.name
        for f in dataclasses.fields(older)
        if getattr(older, f.name) != getattr(newer, f.name)
    }
    assert changed == set(cost_rows.COMPILERS["0.10"])


def test_measured_values_reach_a_machine_of_no_known_kind(monkeypatch, nothing_handed_over):
    monkeypatch.setattr(cost_rows, "CPU_COSTS", ())
    cost_rows.hand_over({"handover_ns": 7.0})
    assert own_costs().handover_ns == 7.0
    with pytest.raises(ConfigError):
        cost_rows.hand_over({"handover_ns": -7.0})
    assert own_costs().handover_ns == 7.0


def test_costs_can_be_fixed_for_a_while():
    before = own_costs()
    with decide_with(CpuCosts(call_ns=3.0)):
        assert own_costs().call_ns == 3.0
    assert own_costs() == before


def test_calls_that_take_twice_as_long_count_twice():
    def fn(x):
        return lax.fori_loop(0, 10, lambda _, a: a - jnp.max(a @ a, axis=1, keepdims=True), x)

    graph = capture(fn, normal(128, 128)).graph
    costs = CpuCosts()
    names = (*CALLS, "library_reduction_ns")
    slow = dataclasses.replace(costs, **{name: 2 * getattr(costs, name) for name in names})
    usual, slower = CostModel(graph, costs), CostModel(graph, slow)
    before, after = usual.computations[-1], slower.computations[-1]
    assert after.dispatch_ns > 1.8 * before.dispatch_ns
    assert after.library_ns > before.library_ns
    assert (after.work_ns, after.native_dot_ns) == (before.work_ns, before.native_dot_ns)
    slow, fast = (program_ns(Context(graph, m, graph.default)) for m in (slower, usual))
    assert slow > fast


def test_reductions_of_the_library_read_the_costs_they_are_given():
    graph = capture(lambda x: x.sum(axis=1), normal(64, 64)).graph
    (node,) = (n for n, op in enumerate(graph.ops) if op.name == "reduce")
    costs = CpuCosts()
    slow = dataclasses.replace(costs, library_reduction_ns=2 * costs.library_reduction_ns)
    extra = library_reduced_ns(graph, node, slow) - library_reduced_ns(graph, node, costs)
    assert extra == pytest.approx(costs.library_reduction_ns)


def test_the_kind_follows_the_jaxlib_of_the_process(monkeypatch):
    """What was asked under another version holds for that version alone."""
    kind, costs = own_kind(), own_costs()
    with monkeypatch.context() as patch:
        patch.setattr(jaxlib.version, "__version__", "0.9.9")
        assert own_kind() == dataclasses.replace(kind, jaxlib="0.9.9")
        assert own_costs() == costs_for(probe(), "0.9.9")
    assert own_kind() == kind and own_costs() == costs
