"""The policy over alternatives: legal, stops in time, survives bad checkpoints, decides in the hook."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from support.advantages import ALL_KINDS, SMALL, parameters, random_network
from support.captures import MACHINE, captured

import graphopt
from graphopt.costs.model import CostModel
from graphopt.errors import ConfigError, PolicyError
from graphopt.hlo import rewrite
from graphopt.policy.advantages.checkpoint import (
    ADVANTAGES,
    AdvantageSpec,
    load_advantages,
    save_advantages,
)
from graphopt.policy.advantages.decider import AdvantagePolicy, Rule
from graphopt.policy.advantages.numpy_network import NumpyAdvantages
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.network.files import SPEC, WEIGHTS
from graphopt.policy.registry import resolve
from graphopt.policy.starts import suggestions

EAGER = Rule(deviations=-3.0, kinds=ALL_KINDS, most=4)
SHY = Rule(deviations=1e3, kinds=ALL_KINDS)
META = {"trained_on": ("loss", "pde"), "duels": 12, "metrics": {"sign": 0.75}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "policy"
    save_advantages(path, AdvantageSpec(SMALL, EAGER, **META), parameters())
    return path


@pytest.fixture
def copy(saved, tmp_path):
    """A checkpoint whose files a test may damage."""
    for name in (SPEC, WEIGHTS):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    return tmp_path


def edit(path, change):
    data = json.loads((path / SPEC).read_text())
    change(data)
    (path / SPEC).write_text(json.dumps(data))


@pytest.mark.parametrize("start", ["heuristic", "default"])
@pytest.mark.parametrize("name", ["layernorm", "cartpole_rollout", "sorting"])
def test_decisions_are_legal_and_each_follows_from_the_one_before(name, start):
    graph = captured(name).graph
    rule = Rule(start, -3.0, kinds=ALL_KINDS, most=4)
    model = CostModel(graph)
    found = AdvantagePolicy(random_network(), rule, MACHINE).decide(graph, model)
    graph.masks.check(found.decisions)
    assert 0 < len(found.taken) <= 4 and found.name == "advantages"
    first = graph.default if start == "default" else heuristic_steps(graph, STEPS, model)
    assert found.taken[0].before.same_as(first)
    assert len({id(t.alternative) for t in found.taken}) == len(found.taken)
    assert found.gain == pytest.approx(sum(t.mean for t in found.taken))
    assert (found.speedup > 0) == (start == "default")
    assert rewrite(graph, found.decisions).data


def test_it_stops_where_no_lower_bound_promises_a_gain():
    graph = captured("cartpole_rollout").graph
    model = CostModel(graph)
    found = AdvantagePolicy(random_network(), SHY, MACHINE).decide(graph, model)
    assert not found.taken and found.name == "heuristic"
    assert found.decisions.same_as(heuristic_steps(graph, STEPS, model))
    plain = Rule("default", 1e3, kinds=ALL_KINDS)
    assert AdvantagePolicy(random_network(), plain, MACHINE)(graph) is None


def test_kinds_that_were_not_trained_are_never_chosen():
    graph = captured("lstm").graph
    rule = Rule(deviations=-3.0, kinds=("value in memory",), most=3)
    found = AdvantagePolicy(random_network(), rule, MACHINE).decide(graph, CostModel(graph))
    assert {t.alternative.kind for t in found.taken} == {"value in memory"}
    none = AdvantagePolicy(random_network(), Rule(deviations=-3.0), MACHINE)
    assert not none.decide(graph, CostModel(graph)).taken


@pytest.mark.parametrize("broken", ["nan", "shape"])
def test_the_heuristic_decides_where_the_network_cannot(broken):
    graph = captured("cartpole_rollout").graph
    flat = dict(parameters())
    if broken == "nan":
        flat["head.bias"] = np.full_like(flat["head.bias"], np.nan)
    else:
        flat["head.kernel"] = flat["head.kernel"][:3]
    found = AdvantagePolicy(NumpyAdvantages(SMALL, flat), EAGER, MACHINE).choose(graph)
    assert found.decisions.same_as(heuristic_steps(graph, STEPS)) and found.steps
    assert ("because the network failed" in found.name) == (broken == "shape")


def test_a_checkpoint_comes_back(saved):
    checkpoint = load_advantages(saved)
    assert checkpoint.spec == AdvantageSpec(SMALL, EAGER, **META)
    expected = parameters()
    assert all(np.array_equal(checkpoint.parameters[n], expected[n]) for n in expected)
    graph = captured("cartpole_rollout").graph
    mine = AdvantagePolicy(random_network(), EAGER).choose(graph)
    assert checkpoint.decider().choose(graph).decisions.same_as(mine.decisions)


def test_kinds_and_operations_go_by_name(copy):
    def change(data):
        data["kinds"][3], data["kinds"][5] = data["kinds"][5], data["kinds"][3]
        data["operations"][-1] = "an operation of another version"

    edit(copy, change)
    checkpoint, expected = load_advantages(copy), parameters()
    assert np.array_equal(checkpoint.parameters["kind_embedding"][3], expected["kind_embedding"][5])
    assert np.array_equal(checkpoint.parameters["op_embedding"][-1], expected["op_embedding"][0])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("kind", lambda d: d.update(kind="decisions")),
        ("format", lambda d: d.update(format=99)),
        (r"columns.nodes\[2\]", lambda d: d["columns"]["nodes"].__setitem__(2, "other")),
        ("model.hidden", lambda d: d["model"].update(hidden=10**9)),
        ("model.extra", lambda d: d["model"].update(extra=1)),
        ("rule", lambda d: d["rule"].update(start="nowhere")),
        ("kinds", lambda d: d["kinds"].insert(0, "first")),
        ("jaxlib", lambda d: d["jaxlib"].update(min="99.0")),
        ("weights.sha256", lambda d: d["weights"].update(sha256="0")),
        ("duels", lambda d: d.pop("duels")),
    ],
)
def test_what_does_not_fit_is_refused_by_name(copy, name, change):
    edit(copy, change)
    with pytest.raises(PolicyError, match=name):
        load_advantages(copy)


def test_the_kind_in_the_checkpoint_says_what_decides(saved):
    policy = resolve(saved)
    assert policy.built_in and policy.choose is not None
    assert policy.key == f"learned-{load_advantages(saved).digest}"
    graph = captured("cartpole_rollout").graph
    assert policy.choose(graph).name == "advantages"
    names = [name for name, _ in suggestions(policy, graph)]
    assert names == ["policy"]
    assert json.loads((saved / SPEC).read_text())["kind"] == ADVANTAGES


@pytest.mark.usefixtures("clean_plugin")
def test_it_decides_in_the_hook(saved):
    found = captured("cartpole_rollout")
    graphopt.install(policy=str(saved))
    got = jax.jit(lambda *args: found.fn(*args))(*found.args)
    report = graphopt.report()
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(found.result), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert report.policy == "checkpoint policy"
    # Small modules beside it convert arguments.
    assert [record.outcome.value for record in report.records].count("rewritten") == 1


@pytest.mark.parametrize(
    "bad", [{"start": "x"}, {"most": 0}, {"sites": 0}, {"least": float("nan")}]
)
def test_rules_are_checked(bad):
    with pytest.raises(ConfigError, match="unusable rule"):
        Rule(**bad)
