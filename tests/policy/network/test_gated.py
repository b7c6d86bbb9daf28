"""The gate between the heuristic, XLA's default and what the network prefers; the shipped policy."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, captured, normal
from support.networks import SMALL, parameters, random_policy

from graphopt.costs.model import CostModel
from graphopt.errors import PolicyError
from graphopt.evaluate.commands.ship import ship
from graphopt.hlo import build_graph, rewrite
from graphopt.learn.training.gate import CLOSED, Trial, choose_gate, gate_metrics
from graphopt.machine import UnitKind, probe
from graphopt.policy import registry
from graphopt.policy.heuristic.steps import heuristic
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import native_code
from graphopt.policy.network import gated
from graphopt.policy.network.checkpoint import PolicySpec, load, save
from graphopt.policy.network.features import extract
from graphopt.policy.network.gated import Gate, GuardedPolicy, Judged, judge, together
from graphopt.policy.network.learned import LearnedPolicy, Proposal, most_likely, proposal
from graphopt.policy.proposals.vectors import candidates

MACHINE = probe()


@pytest.fixture(scope="module")
def graph():
    from graphopt.corpus.capture import capture_modules
    from graphopt.corpus.demo import DEMO

    fn, args = DEMO["cartpole_rollout"].build()
    return build_graph(capture_modules(fn, *args)[0])


@pytest.mark.parametrize(
    ("low", "gate", "chosen"),
    [
        ([0.0, 0.3], Gate(0.1), 1),
        ([0.0, 0.05], Gate(0.1), 0),
        ([0.0, 0.2, 0.3], Gate(0.1), 2),
        ([0.0, -0.4], Gate(0.0), 0),
        ([0.0], Gate(0.0), 0),
        ([0.0, float("nan")], Gate(0.0), 0),
        ([0.0, float("inf"), 0.2], Gate(0.1), 2),
    ],
)
def test_the_gate_leaves_the_heuristic_only_for_a_clear_gain(low, gate, chosen):
    assert gate.choose(low) == chosen


@pytest.mark.parametrize(
    ("low", "own", "gate", "chosen"),
    [
        ([0.0, 0.3, -0.05], 2, Gate(-0.1, own=True), 2),
        ([0.0, 0.3, -0.2], 2, Gate(-0.1, own=True), 0),
        ([0.0, 0.3, float("nan")], 2, Gate(-0.1, own=True), 0),
        ([0.0, 0.3], 0, Gate(-0.1, own=True), 0),
        ([0.0, 0.3, 0.2], 2, Gate(0.1), 1),
    ],
)
def test_a_gate_for_the_networks_own_proposals(low, own, gate, chosen):
    assert gate.choose(low, own) == chosen


def test_a_gate_that_trusts_the_network_opens_where_its_proposals_are_good():
    low = np.array([0.0, 0.4, -0.15])
    trials = [Trial("a", low, np.array([0.0, -0.8, 0.3]), own=2)]
    assert choose_gate(trials).own
    assert gate_metrics(trials, choose_gate(trials))["validation/guarded"] == pytest.approx(
        np.exp(0.3)
    )


def test_a_closed_gate_is_the_heuristic(graph):
    policy = GuardedPolicy(LearnedPolicy(random_policy(noise=0.4), 0.0, MACHINE), CLOSED)
    assert policy(graph).same_as(heuristic(graph))
    assert policy.choose(graph).name == "heuristic"


def test_the_gain_of_given_decisions_is_that_of_decoding_them(graph):
    network = random_policy(noise=0.4)
    encoded = network.encode(extract(graph, MACHINE))
    own = proposal(graph, encoded, network.decode(encoded, most_likely))
    gain, low = network.gain(encoded, own.decisions).tolist()
    assert own.changes
    np.testing.assert_allclose([gain, low], [own.gain, own.low_gain], rtol=1e-4, atol=1e-6)
    assert network.gain(encoded, heuristic(graph)).tolist() == [0.0, 0.0]


def test_candidates_are_legal_distinct_and_judged(graph):
    found = candidates(graph)
    assert found[0][0] == "heuristic"
    for index, (_, decisions) in enumerate(found):
        rewrite(graph, decisions)
        assert not decisions.same_as(graph.default)
        assert not any(decisions.same_as(other) for _, other in found[:index])
    network = random_policy(noise=0.4)
    encoded = network.encode(extract(graph, MACHINE))
    judged = judge(network, graph, encoded)
    names = [j.name for j in judged]
    assert names[: len(found) + 1] == ["heuristic", "default", *(name for name, _ in found[1:])]
    default = judged[1]
    assert default.decisions.same_as(graph.default) and default.gain == pytest.approx(0.0, abs=1e-6)
    assert judged[0].low_gain == 0.0
    assert judged[0].gain == pytest.approx(-float(network.gain(encoded, graph.default)[0]))


def test_where_the_heuristic_changes_nothing_the_default_is_what_the_policy_starts_from():
    graph = captured("fibonacci").graph
    assert heuristic(graph) is None
    network = random_policy(noise=0.4)
    first, *others = judge(network, graph, network.encode(extract(graph, MACHINE)))
    assert first.name == "default" and first.decisions.same_as(graph.default)
    assert "default" not in [j.name for j in others]
    assert GuardedPolicy(LearnedPolicy(network, 0.0, MACHINE), CLOSED)(graph) is None


@pytest.mark.parametrize("start", ["default", "heuristic"])
@pytest.mark.parametrize(("gain", "leaves"), [(-0.05, False), (0.01, False), (0.05, True)])
def test_the_network_must_expect_something_of_leaving_what_it_starts_from(
    monkeypatch, start, gain, leaves
):
    graph = capture(lambda x: jnp.tanh(x @ x) @ x, normal(256, 256)).graph
    assert heuristic(graph) is None
    other = graph.default.copy()
    other.fuse[0] = not other.fuse[0]
    above = {"default": 0.0, "heuristic": 0.4}[start]
    found = [
        Judged(start, graph.default, above, 0.0),
        Judged("network", other, above + gain, gain, own=True),
    ]
    monkeypatch.setattr(gated, "judge", lambda *_, **__: found)
    learned = LearnedPolicy(random_policy(noise=0.4), 0.0, MACHINE)
    chosen = GuardedPolicy(learned, Gate(-0.1, own=True)).choose(graph)
    assert chosen is None or chosen.name == "network"
    assert (chosen is not None) is leaves


@pytest.mark.parametrize(("elements", "native"), [(1 << 19, False), (1 << 10, True)])
def test_a_network_does_not_take_long_kernels_off_other_cores(monkeypatch, elements, native):
    graph = capture(lambda x: jnp.tan(x) + 1.0, normal(elements)).graph
    network = random_policy(noise=0.0)
    encoded = network.encode(extract(graph, MACHINE))
    unit = graph.default.unit.copy()
    unit[~graph.default.fuse & graph.masks.unit[:, native_unit(graph)]] = native_unit(graph)
    own = Proposal(graph.default.with_changes(unit=unit), 0.3, 0.2, changes=1)
    monkeypatch.setattr(gated, "proposal", lambda *_: own)
    assert any(j.own for j in judge(network, graph, encoded)) is native


def native_unit(graph):
    return Context(graph, CostModel(graph), graph.default).native


def test_a_network_that_fails_leaves_the_heuristic(graph):
    network = random_policy(noise=0.4)
    network.parameters = {}
    chosen = GuardedPolicy(LearnedPolicy(network, 0.0, MACHINE), Gate(0.0)).choose(graph)
    assert chosen.decisions.same_as(heuristic(graph))
    assert "failed" in chosen.name and chosen.speedup == 0.0


def test_a_gate_opens_only_where_it_brings_something():
    good = Trial("a", np.array([0.0, 0.5]), np.array([0.0, 0.6]))
    bad = Trial("b", np.array([0.0, 0.5]), np.array([0.2, -1.0]))
    assert choose_gate([good, bad]) == CLOSED
    opened = choose_gate([good, good])
    assert opened.switch < 0.5
    assert gate_metrics([good], opened)["validation/guarded"] == pytest.approx(np.exp(0.6))
    assert gate_metrics([good], opened)["validation/heuristic"] == pytest.approx(1.0)


def test_the_gate_is_part_of_the_checkpoint(tmp_path):
    save(tmp_path / "p", PolicySpec(SMALL, 0.1, gate=Gate(0.2, own=True)), parameters(SMALL))
    checkpoint = load(tmp_path / "p")
    assert checkpoint.spec.gate == Gate(0.2, own=True)
    assert isinstance(checkpoint.decider(), GuardedPolicy)
    named = registry.resolve(tmp_path / "p")
    assert named.choose is not None


def test_the_shipped_policy_is_loaded_and_a_bad_one_stands_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "none")
    assert registry.resolve("shipped").name == "heuristic"
    save(tmp_path / "cpu", PolicySpec(SMALL, 0.1, gate=Gate(0.2)), parameters(SMALL))
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "cpu")
    assert registry.resolve("shipped").name == "checkpoint cpu"
    (tmp_path / "cpu" / "weights.npz").write_bytes(b"damaged")
    found = registry.resolve("shipped")
    assert found.decide is heuristic and "weights" in found.note
    with pytest.raises(PolicyError):
        registry.resolve(tmp_path / "cpu")


def test_shipping_copies_the_policy_and_writes_a_card_of_its_records(tmp_path):
    run, place = tmp_path / "run", tmp_path / "package" / "cpu"
    spec = PolicySpec(SMALL, 0.1, steps=7, gate=Gate(0.2), metrics={"validation/worth": 0.25})
    save(run / "policy", spec, parameters(SMALL))
    row = {
        "name": "p", "family": "f", "status": "ok", "speedup_policy": 2.0, "policy_low": 1.9,
        "policy_high": 2.1, "speedup_rival": 0.5, "rival_low": 0.4, "rival_high": 0.6,
        "policy_chosen": "network", "policy_expected": 1.5,
    }  # fmt: skip
    report = {
        "machine": {"name": "M", "cores": 2},
        "versions": {"jaxlib": "0"},
        "date": "2000-01-01",
        "settings": {
            "workloads": "held-out",
            "policy": "/somewhere/run",
            "rival": "heuristic",
            "policy_key": f"learned-{load(run / 'policy').digest}",
        },
        "workloads": [row, {**row, "name": "q", "status": "failed: x"}],
    }
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.json").write_text(json.dumps(report))
    card = ship(run, tmp_path / "report", place).read_text()
    assert load(place).digest == load(run / "policy").digest
    assert load(place).digest in card and "0.25" in card
    assert "policy: this one; rival: heuristic" in card and "/somewhere" not in card
    assert "2.00x" in card and "not measured: q" in card and "below 0.95x: none" in card
    assert "Not measured." in ship(run, None, place).read_text()
    with pytest.raises(PolicyError, match="cannot be read"):
        ship(run, tmp_path / "nowhere", place)
    report["settings"]["policy_key"] = "learned-of-another"
    (tmp_path / "report" / "report.json").write_text(json.dumps(report))
    with pytest.raises(PolicyError, match="another policy, learned-of-another"):
        ship(run, tmp_path / "report", place)


def test_a_network_that_makes_too_much_native_is_no_candidate(graph, monkeypatch):
    network = random_policy(noise=0.4)
    encoded = network.encode(extract(graph, MACHINE))
    assert "network" in [j.name for j in judge(network, graph, encoded)]
    sizes = iter([10.0, 9999.0])  # of the heuristic's code, and of the network's
    monkeypatch.setattr("graphopt.policy.network.gated.native_code", lambda *_: next(sizes))
    assert "network" not in [j.name for j in judge(network, graph, encoded)]


def test_native_code_counts_loops_with_all_inside(graph):
    model = CostModel(graph)
    whole = heuristic(graph)
    nowhere = graph.default.with_changes(unit=0 * whole.unit)
    assert native_code(Context(graph, model, nowhere)) == 0
    loops = [n for n in model.callees if graph.units[whole.unit[n]].kind is UnitKind.NATIVE]
    size = native_code(Context(graph, model, whole))
    assert loops and size >= max(model.control(n).code for n in loops)


def test_promising_changes_are_combined_the_most_promising_last(graph):
    start = heuristic(graph)
    free = np.flatnonzero(graph.masks.fuse.all(axis=1))[:3].tolist()

    def flipped(*nodes):
        out = start.copy()
        for node in nodes:
            out.fuse[node] = not out.fuse[node]
        return out

    def judged(low, decisions):
        return Judged("candidate", decisions, low, low)

    a, b, c = free
    promising = [judged(0.3, flipped(a)), judged(0.1, flipped(b)), judged(0.001, flipped(c))]
    both = together(start, [judged(0.0, start), *promising])
    assert both is not None and both.same_as(flipped(a, b))
    assert together(start, [judged(0.0, start), promising[0]]) is None
    assert together(start, [judged(0.0, start), judged(np.nan, flipped(a)), promising[1]]) is None
    known = [judged(0.0, start), *promising, judged(-1.0, flipped(a, b))]
    assert together(start, known) is None
