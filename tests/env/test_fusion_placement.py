"""The environments: Gymnasium's contract, observations, actions."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from support.environments import GRAPHS, NATURAL, PADDED, first_forbidden, make, same, table

import graphopt.env
from graphopt.corpus.demo import DEMO
from graphopt.env import (
    IDS,
    FusionPlacementPaddedEnv,
    encode,
)
from graphopt.env.arguments import edge_count
from graphopt.errors import ConfigError, DecisionError
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.plan.interactions import SETTLED

# Gymnasium's contract.


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_checks_every_id(env_id, horizon):
    check_env(gymnasium.make(env_id, horizon=horizon).unwrapped)


def test_gymnasium_checks_several_graphs_when_forbidden_values_are_taken():
    check_env(gymnasium.make(NATURAL, graphs=GRAPHS, strict=False).unwrapped)
    check_env(gymnasium.make(PADDED, graphs=GRAPHS).unwrapped)


def test_one_line_makes_an_environment():
    env = gymnasium.make(f"graphopt.env:{NATURAL}", graphs="layernorm")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert np.isfinite(reward) and terminated != truncated
    env.close()
    env.close()


def test_registering_twice_changes_nothing():
    before = gymnasium.registry[NATURAL]
    graphopt.env.register()
    assert gymnasium.registry[NATURAL] is before


@pytest.mark.parametrize("env_id", IDS)
def test_equal_seeds_give_equal_rollouts(env_id):
    def rollout() -> list:
        env = make(env_id, graphs=GRAPHS, horizon=3)
        env.action_space.seed(5)
        seen = [env.reset(seed=7)]
        for _ in range(2):
            seen += [env.step(env.action_space.sample()) for _ in range(3)]
            seen.append(env.reset())
        return seen

    assert all(same(a, b) for a, b in zip(rollout(), rollout(), strict=True))


def test_seeds_pick_graphs_and_options_override_them():
    env = make(graphs=GRAPHS)
    picked = {env.reset(seed=seed)[1]["graph"] for seed in range(30)}
    assert picked == set(GRAPHS)
    assert env.reset(options={"graph": 2})[1]["graph"] == "heat_stencil"
    assert env.reset(seed=3, options={"graph": "layernorm"})[1]["graph"] == "layernorm"
    for missing in ("nonsense", 3, -1, 1.5):
        with pytest.raises(ConfigError, match="there is no graph"):
            env.reset(options={"graph": missing})


def test_the_last_step_terminates():
    env = make(graphs="layernorm")
    env.reset(seed=0)
    assert env.step(env.graph.default)[2:4] == (True, False)
    with pytest.raises(ConfigError, match="the episode is over"):
        env.step(env.graph.default)
    env = make(graphs="layernorm", horizon=3)
    env.reset(seed=0)
    ends = [env.step(env.graph.default)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (True, False)]


def test_nothing_works_before_a_reset():
    env = make(graphs="layernorm")
    with pytest.raises(ConfigError, match="Call reset"):
        env.step(DEMO)
    with pytest.raises(ConfigError, match="Call reset"):
        _ = env.state


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("env_id", IDS)
def test_vector_environments(env_id, mode):
    kwargs = {} if mode == "sync" else {"context": "spawn", "shared_memory": env_id == PADDED}
    envs = gymnasium.make_vec(
        env_id,
        num_envs=2,
        vectorization_mode=mode,
        vector_kwargs=kwargs,
        graphs=GRAPHS,
        strict=False,
    )
    try:
        envs.action_space.seed(1)
        for seed in range(6):  # among them, graphs of two sizes side by side
            envs.reset(seed=seed)
        _, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        assert np.isfinite(rewards).all()
        assert terminated.all() and not truncated.any()
        assert (infos["replaced"] > 0).all()
    finally:
        envs.close()


@pytest.mark.parametrize("env_id", IDS)
def test_information_has_the_same_keys_and_shapes_at_every_time(env_id):
    env = make(env_id, graphs=GRAPHS, horizon=2)
    infos = []
    for graph in GRAPHS:
        infos.append(env.reset(seed=1, options={"graph": graph})[1])
        infos.append(env.step(env.graph.default)[4])
    kinds = [{k: (type(v), np.shape(v)) for k, v in info.items()} for info in infos]
    assert all(kind == kinds[0] for kind in kinds)
    assert all(info["overrides"].keys() == SETTLED.keys() for info in infos)
    first = infos[0]
    assert (first["score"], first["speedup"], first["changed"], first["failure"]) == (
        0.0,
        1.0,
        0,
        "",
    )


def test_actions_are_drawn_by_the_mask_in_the_information():
    env = make(graphs=GRAPHS)
    _, info = env.reset(seed=1, options={"graph": "adam_step"})
    _, other = env.reset(options={"graph": "layernorm"})
    for mask in (info["action_mask"], info["action_mask"].astype(np.int8)):
        action = env.action_space.sample(mask)
        assert np.take_along_axis(info["action_mask"], action[:, :, None], axis=2).all()
    assert env.action_space.contains(env.action_space.sample())
    assert other["action_mask"].shape == info["action_mask"].shape


def test_rows_for_edges_are_those_of_the_graphs_that_stay():
    env = make(PADDED, graphs=GRAPHS)
    sizes = {name: env.reset(options={"graph": name})[1]["nodes"] for name in GRAPHS}
    edges = {name: edge_count(item.graph) for name, item in zip(GRAPHS, env.items, strict=True)}
    least = min(GRAPHS, key=edges.__getitem__)
    small = make(PADDED, graphs=GRAPHS, max_edges=edges[least])
    assert [item.name for item in small.items] == [least] and small.rows == sizes[least]


def test_environments_survive_pickling():
    env = make(graphs=GRAPHS, horizon=2)
    env.reset(seed=1)
    action = env.action_space.sample()
    env.step(action)
    copy = pickle.loads(pickle.dumps(env))
    assert copy.state == env.state
    assert same(copy.step(action), env.step(action))
    assert same(copy.reset(), env.reset())


# Observations.


def test_observations_show_the_graph():
    env = make(graphs="heat_stencil")
    (nodes, edges, links), info = env.reset(seed=0)
    graph, names = env.graph, env.node_features
    assert nodes.shape == (len(graph), len(names))
    calls = len(graph.computations) - 1
    assert edges.shape == (
        len(graph.operands) + len(graph.control) + calls,
        len(env.edge_features),
    )
    assert {tuple(link) for link in links[: len(graph.operands)].tolist()} == {
        (operand, node) for node, row in enumerate(graph.operand_lists) for operand in row
    }
    for field in FIELDS:
        mask, default = getattr(graph.masks, field), getattr(graph.default, field)
        for value in range(mask.shape[1]):
            np.testing.assert_array_equal(
                nodes[:, names.index(f"legal_{field}_{value}")], mask[:, value]
            )
            for group in ("default", "chosen"):
                column = nodes[:, names.index(f"{group}_{field}_{value}")]
                np.testing.assert_array_equal(column, default.astype(int) == value)
    np.testing.assert_array_equal(info["action_mask"], env.action_masks())
    assert not any(info["overrides"].values())


def test_refinement_shows_the_previous_outcome():
    env = make(graphs="cartpole_rollout", horizon=4)
    first, _ = env.reset(seed=0)
    action = env.action_space.sample()
    (nodes, _, _), reward, _, _, info = env.step(action)
    names = env.node_features
    assert any(info["overrides"].values()), (
        "interactions settle something in a random vector of this program"
    )
    assert nodes[:, names.index("overridden")].any()
    np.testing.assert_allclose(nodes[:, names.index("progress")], 0.25)
    np.testing.assert_allclose(
        nodes[:, names.index("score")], (np.clip(reward, -4, 4) + 4) / 8, rtol=1e-6
    )
    chosen = nodes[:, names.index("chosen_fuse_0") : names.index("overridden")]
    for column, field in enumerate(FIELDS):
        values = table(env, action)[:, column]
        start = names.index(f"chosen_{field}_0") - names.index("chosen_fuse_0")
        assert chosen[np.arange(len(values)), start + values].all()
    static = names.index("chosen_fuse_0")
    np.testing.assert_array_equal(nodes[:, :static], first.nodes[:, :static])


def test_padding_is_empty_and_ignored():
    env = make(PADDED, graphs=GRAPHS)
    assert isinstance(env, FusionPlacementPaddedEnv)
    obs, info = env.reset(options={"graph": "layernorm"})
    nodes = info["nodes"]
    assert obs["node_mask"].sum() == nodes < len(obs["node_mask"])
    assert not obs["nodes"][nodes:].any()
    assert obs["edge_mask"].sum() < len(obs["edge_mask"])
    width = sum(env.sizes)
    padding = obs["action_mask"].reshape(-1, width)[nodes:]
    assert (padding.sum(axis=1) == len(FIELDS)).all()
    rewards = []
    for filler in (0, 1):
        env.reset(options={"graph": "layernorm"})
        action = np.full((env.rows, len(FIELDS)), filler)
        action[:nodes] = encode(env.graph.default)
        rewards.append(env.step(action.reshape(-1))[1])
    assert rewards == [0.0, 0.0]


def test_flat_masks_follow_the_flat_action():
    env = make(PADDED, graphs=GRAPHS)
    env.reset(options={"graph": "adam_step"})
    mask = env.action_masks()
    assert mask.shape == (env.action_space.nvec.sum(),)
    parts = np.split(mask, np.cumsum(env.action_space.nvec)[:-1])
    for node in range(len(env.graph)):
        for column, field in enumerate(FIELDS):
            part = parts[node * len(FIELDS) + column]
            legal = getattr(env.graph.masks, field)[node]
            np.testing.assert_array_equal(part[: len(legal)], legal)
    assert all(part.any() for part in parts)
    drawn = env.action_space.sample(mask=tuple(part.astype(np.int8) for part in parts))
    _, _, _, _, info = env.step(drawn)
    assert info["replaced"] == 0


def test_larger_graphs_are_left_out():
    env = make(PADDED, graphs=GRAPHS, max_nodes=60, max_edges=90)
    assert [item.name for item in env.items] == ["layernorm", "heat_stencil"]
    assert env.observation_space["nodes"].shape[0] == 60
    assert env.observation_space["edges"].shape[0] == 90
    with pytest.raises(ConfigError, match="at most 3 nodes"):
        make(graphs=GRAPHS, max_nodes=3)
    with pytest.raises(ConfigError, match="at most 3 edges"):
        make(PADDED, graphs=GRAPHS, max_edges=3)


# Actions.


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: a[:-1],
        lambda a: a[:, :-1],
        lambda a: np.concatenate([a, a, a]),
        lambda a: a.astype(np.float64),
        lambda a: np.where(a == 0, np.nan, a),
        lambda a: a.astype(object),
        lambda a: a.astype(str),
        lambda a: np.where(a == 0, -1, a),
        lambda a: np.where(a == 0, 99, a),
        lambda a: np.where(a == 0, 1 << 16, a),
        lambda a: None,
        lambda a: 3,
    ],
)
def test_bad_actions_are_refused_before_anything_is_scored(env_id, spoil):
    env = make(env_id, graphs="adam_step")
    env.reset(seed=0)
    state, scored = env.state, env.statistics.scored
    with pytest.raises(DecisionError):
        env.step(spoil(encode(env.graph.default)))
    assert env.state == state
    assert env.statistics.scored == scored
    env.step(env.graph.default)


def test_decisions_of_another_graph_are_refused():
    env = make(graphs=GRAPHS)
    env.reset(options={"graph": 0})
    with pytest.raises(DecisionError):
        env.step(env.items[1].graph.default)


def test_forbidden_values_are_refused_by_rule_or_become_xlas():
    strict, lenient = make(graphs="adam_step"), make(graphs="adam_step", strict=False)
    for env in (strict, lenient):
        env.reset(seed=0)
    node, column, value = first_forbidden(strict)
    action = encode(strict.graph.default)
    action[node, column] = value
    with pytest.raises(DecisionError, match="is forbidden by rule") as caught:
        strict.step(action)
    assert (caught.value.node, caught.value.field) == (node, FIELDS[column])
    assert caught.value.rule in strict.graph.masks.rules
    _, reward, _, _, info = lenient.step(action)
    assert (reward, info["replaced"], info["changed"]) == (0.0, 1, 0)
    assert lenient.decisions.same_as(lenient.graph.default)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), graph=st.integers(0, len(GRAPHS) - 1))
def test_the_action_space_draws_exactly_what_the_masks_allow(seed, graph):
    env = make(graphs=GRAPHS)
    env.reset(options={"graph": graph})
    env.action_space.seed(seed)
    action = env.action_space.sample()
    assert action in env.action_space
    decisions, replaced = env.codec.decode(action, env.rows, strict=True)
    assert replaced == 0
    env.graph.masks.check(decisions)
    np.testing.assert_array_equal(encode(decisions), table(env, action))
    node, column, value = first_forbidden(env)
    action[node, column] = value
    assert action not in env.action_space


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_action_of_the_padded_space_is_taken(data):
    env = make(PADDED, graphs=GRAPHS)
    env.reset(seed=data.draw(st.integers(0, 99)))
    env.action_space.seed(data.draw(st.integers(0, 2**32 - 1)))
    action = env.action_space.sample()
    _, reward, _, _, info = env.step(action)
    assert np.isfinite(reward)
    env.graph.masks.check(env.decisions)
    differs = encode(env.decisions) != table(env, action)
    assert info["replaced"] == differs.sum()
