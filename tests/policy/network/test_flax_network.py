"""The flax network against the numpy one, its start, and what its parts may depend on."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import MACHINE, captured
from support.networks import SMALL, parameters, random_policy

from graphopt.policy.heuristic.steps import heuristic
from graphopt.policy.network.config import ModelConfig, parameter_shapes
from graphopt.policy.network.features import extract
from graphopt.policy.network.flax_network import deviation_logits, entropies, log_probabilities
from graphopt.policy.network.learned import most_likely, sample
from graphopt.policy.network.numpy_network import NumpyPolicy
from graphopt.policy.network.padding import pad, pad_rows, padded_sizes
from graphopt.policy.network.parameters import create, flatten, network, unflatten

pytestmark = pytest.mark.usefixtures("plain_code")

ABLATIONS = {
    "all": SMALL,
    "no attention": replace(SMALL, attention=False),
    "no superposition": replace(SMALL, superposition=False),
    "independent heads": replace(SMALL, joint=False),
    "deep": replace(SMALL, depth=2, layers=0),
}


def run_flax(config, flat, features, actions):
    """Node states, value, logits and gain by the flax network, padding removed."""
    definition, like = create(config, 0)
    graph = pad(features, config.segment)
    size = len(graph.nodes["real"])
    padded = {
        n: jnp.asarray(pad_rows(a[None].astype(np.int32), size)[0]) for n, a in actions.items()
    }

    def run(values, graph, actions):
        net = network(definition, values)
        x, summary = net.trunk(graph)
        return x, net.value(summary), *net.decode(graph, x, summary, actions)

    x, value, logits, gain = jax.jit(run)(unflatten(like, flat), graph, padded)
    count = len(features)
    return x[:count], value, {n: v[:count] for n, v in logits.items()}, gain


@pytest.mark.parametrize("name", ABLATIONS)
def test_numpy_and_flax_agree(name):
    config = ABLATIONS[name]
    policy = random_policy(config)
    features = extract(captured("lstm").graph, MACHINE)
    encoded = policy.encode(features)
    free = np.ones((16, len(features)), np.bool_)
    drawn = sample(policy, encoded, np.random.default_rng(0), free)
    changed = sum((drawn.actions[f.name] != f.start).sum(axis=1) for f in features.fields)
    row = int(np.argmax(changed))
    actions = {field: values[row] for field, values in drawn.actions.items()}
    decoded = policy.decode(encoded, lambda field, logits, relevant: actions[field.name])
    x, value, logits, gain = run_flax(config, policy.parameters, features, actions)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(encoded.x, x, **close)
    np.testing.assert_allclose(policy.value(encoded), value, **close)
    np.testing.assert_allclose(decoded.gain, gain, **close)
    assert any((actions[f.name] != f.start).any() for f in features.fields)
    for field in features.fields:
        np.testing.assert_allclose(
            decoded.logits[field.name][field.mask], logits[field.name][field.mask], **close
        )
        logs = log_probabilities(logits[field.name], jnp.asarray(actions[field.name]))
        np.testing.assert_allclose(drawn.log_probs[field.name][row], logs, **close)


def test_parameters_have_the_promised_names_and_shapes():
    for config in (ModelConfig(), SMALL, ABLATIONS["deep"]):
        flat = flatten(create(config, 0)[1])
        assert {name: value.shape for name, value in flat.items()} == parameter_shapes(config)
        assert all(value.dtype == np.float32 for value in flat.values())


def test_nested_and_flat_parameters_are_the_same():
    _, nested = create(SMALL, 0)
    flat = parameters(SMALL)
    back = flatten(unflatten(nested, flat))
    assert back.keys() == flat.keys()
    assert all(np.array_equal(back[name], flat[name]) for name in flat)


def test_a_new_network_is_the_heuristic():
    config = ModelConfig()
    policy = NumpyPolicy(config, flatten(create(config, 3)[1]))
    for name in ("transformer_block", "cartpole_rollout"):
        features = extract(captured(name).graph, MACHINE)
        assert features.start.same_as(heuristic(captured(name).graph))
        encoded = policy.encode(features)
        decoded = policy.decode(encoded, most_likely)
        others = np.exp(-config.start_logit) / (1 + np.exp(-config.start_logit))
        for field in features.fields:
            assert np.array_equal(decoded.actions[field.name], field.start)
            logits = decoded.logits[field.name]
            chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            other = 1.0 - chance[np.arange(len(logits)), field.start]
            assert other[field.free] == pytest.approx(others, rel=1e-3)
        assert decoded.gain.tolist() == [0.0, 0.0]
        assert policy.value(encoded) == 0.0


def test_the_number_of_values_does_not_change_the_chance_of_the_start():
    zeros = jnp.zeros((1, 9))
    for allowed in (2, 3, 9):
        mask = jnp.arange(9)[None] < allowed
        logits = deviation_logits(zeros, mask, jnp.array([1]), jnp.float32(2.0))
        chance = jax.nn.softmax(logits)[0]
        assert chance[1] == pytest.approx(np.exp(2) / (1 + np.exp(2)), rel=1e-5)
        assert not chance[allowed:].any()


def test_entropy_of_forbidden_values_is_zero():
    logits = jnp.array([[0.0, 0.0, -1e9], [5.0, -1e9, -1e9]])
    assert entropies(logits).tolist() == pytest.approx([np.log(2), 0.0], abs=1e-6)


def test_placement_depends_on_fusion_only_if_heads_are_joint():
    features = extract(captured("transformer_block").graph, MACHINE)

    def unit_logits(config, flipped):
        policy = random_policy(config)
        encoded = policy.encode(features)

        def choose(field, logits, relevant):
            value = field.start.copy()
            if flipped and field.name == "fuse":
                node = int(np.flatnonzero(field.free)[0])
                value[node] = 1 - value[node]
            return value

        return policy.decode(encoded, choose).logits["unit"]

    joint = SMALL
    apart = replace(SMALL, joint=False)
    assert not np.allclose(unit_logits(joint, True), unit_logits(joint, False))
    assert np.array_equal(unit_logits(apart, True), unit_logits(apart, False))


@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (127, 300), (128, 128), (5000, 30000)])
def test_padding_leaves_room(nodes, edges):
    size, room = padded_sizes(nodes, edges, 64)
    assert nodes < size
    assert edges < room
    assert size % 64 == 0


def test_padding_points_to_padding():
    features = extract(captured("fibonacci").graph, MACHINE)
    graph = pad(features, 64)
    count, edges = len(features), len(features.senders)
    assert graph.nodes["real"].sum() == count == graph.n_node[0]
    assert (graph.senders[edges:] >= count).all()
    assert (graph.receivers[edges:] >= count).all()
    assert np.array_equal(graph.senders[:edges], features.senders)
    callers = graph.nodes["caller"][graph.nodes["caller"] < count]
    assert sorted(callers) == sorted(c for c in features.caller if c >= 0)
