"""The learned policy as a policy: legality, gain margin, sampling, the hook."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import MACHINE, captured
from support.networks import SMALL, random_policy

import graphopt
from graphopt.hlo import rewrite
from graphopt.policy.heuristic.steps import heuristic
from graphopt.policy.network.checkpoint import PolicySpec, save
from graphopt.policy.network.features import extract
from graphopt.policy.network.learned import LearnedPolicy, sample
from graphopt.policy.network.numpy_network import NumpyPolicy


def with_gain(policy: NumpyPolicy, scale: float) -> NumpyPolicy:
    """The same decisions with a gain head that promises much or little."""
    head = np.full_like(policy.parameters["gain_out.kernel"], scale)
    return NumpyPolicy(policy.config, {**policy.parameters, "gain_out.kernel": head})


@pytest.mark.parametrize("name", ["transformer_block", "cartpole_rollout", "stack_machine"])
def test_decisions_are_legal_and_give_a_module(name):
    found = captured(name)
    graph = found.graph
    proposal = LearnedPolicy(random_policy(noise=1.0), 0.0, MACHINE).propose(graph)
    graph.masks.check(proposal.decisions)
    assert proposal.changes > 0
    assert rewrite(graph, proposal.decisions).data != rewrite(graph, graph.default).data


def test_the_heuristic_stands_unless_the_gain_is_clear():
    graph = captured("cartpole_rollout").graph
    hand = heuristic(graph)
    eager = with_gain(random_policy(noise=0.4), 1.0)
    low = LearnedPolicy(eager, 0.0, MACHINE).propose(graph).low_gain
    assert low > 0
    assert not LearnedPolicy(eager, low * 0.9, MACHINE)(graph).same_as(hand)
    assert LearnedPolicy(eager, low * 1.1, MACHINE)(graph).same_as(hand)
    assert LearnedPolicy(with_gain(eager, -1.0), 0.0, MACHINE)(graph).same_as(hand)
    broken = with_gain(eager, float("nan"))
    assert LearnedPolicy(broken, 0.0, MACHINE)(graph).same_as(hand)


def test_overflow_in_a_broken_network_keeps_the_heuristic():
    graph = captured("cartpole_rollout").graph
    policy = random_policy()
    huge = {name: value * np.float32(1e30) for name, value in policy.parameters.items()}
    chosen = LearnedPolicy(NumpyPolicy(SMALL, huge), 0.0, MACHINE)(graph)
    assert chosen.same_as(heuristic(graph))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), temperature=st.sampled_from([0.5, 1.0, 3.0]))
def test_samples_are_legal_and_explore_only_free_nodes(seed, temperature):
    graph = captured("lstm").graph
    policy = random_policy()
    rng = np.random.default_rng(seed)
    encoded = policy.encode(extract(graph, MACHINE))
    free = rng.random((3, len(graph))) < 0.5
    free[0] = False
    drawn = sample(policy, encoded, rng, free, temperature)
    batch = drawn.decisions(graph)
    likeliest = LearnedPolicy(policy, 0.0, MACHINE).propose(graph).decisions
    assert batch[0].same_as(likeliest)
    for row in range(3):
        graph.masks.check(batch[row])
        for field in encoded.fields:
            where = drawn.drawn[field.name][row]
            assert not (where & ~free[row]).any()
            assert not (where & ~field.free).any()
            if field.roots_only:  # fused nodes have no unit and join nothing
                assert not (where & batch[row].fuse).any()
                fused = batch[row].fuse
                assert np.array_equal(drawn.actions[field.name][row][fused], field.start[fused])
    assert all((values <= 0).all() for values in drawn.log_probs.values())


def test_suggestions_are_legal_and_different():
    graph = captured("lstm").graph
    policy = LearnedPolicy(random_policy(), 0.0, MACHINE)
    found = policy.suggestions(graph, 6)
    assert 1 < len(found) <= 6
    assert found[0].same_as(policy.propose(graph).decisions)
    for index, decisions in enumerate(found):
        graph.masks.check(decisions)
        assert not any(decisions.same_as(other) for other in found[:index])
    again = policy.suggestions(graph, 6)
    assert all(one.same_as(two) for one, two in zip(found, again, strict=True))


def test_draws_follow_the_probabilities():
    graph = captured("layernorm").graph
    policy = random_policy()
    encoded = policy.encode(extract(graph, MACHINE))
    free = np.ones((600, len(graph)), np.bool_)
    drawn = sample(policy, encoded, np.random.default_rng(0), free)
    name = encoded.fields[0].name  # the first field depends on no other
    node = int(np.flatnonzero(encoded.fields[0].free)[0])
    actions, logs = drawn.actions[name][:, node], drawn.log_probs[name][:, node]
    chance = float(np.exp(logs[actions == 1][0]))
    assert actions.mean() == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / 600))


def test_it_decides_inside_the_hook(tmp_path):
    eager = with_gain(random_policy(noise=0.4), 1.0)
    save(tmp_path / "eager", PolicySpec(SMALL, 0.0), eager.parameters)
    program = captured("cartpole_rollout")
    graphopt.install(str(tmp_path / "eager"), store=False)
    try:
        graphopt.plugin.reset_report()
        result = jax.jit(lambda *args: program.fn(*args))(*program.args)
        outcome = graphopt.report()
    finally:
        graphopt.uninstall()
    assert "rewritten" in str(outcome)
    expected, found = jax.tree.leaves(program.result), jax.tree.leaves(result)
    for one, two in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-3)
