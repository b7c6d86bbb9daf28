"""The environments: Gymnasium's contract, actions, rewards, forks and replays."""

from __future__ import annotations

import pickle
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import graphopt.env
from graphopt.corpus.demo import DEMO
from graphopt.env import (
    IDS,
    EnvState,
    FusionPlacementEnv,
    FusionPlacementPaddedEnv,
    RewardSource,
    encode,
)
from graphopt.env.actions import ActionCodec
from graphopt.env.rewards import SOURCES, register_source
from graphopt.errors import ConfigError, DecisionError
from graphopt.hlo import DecisionBatch, Decisions
from graphopt.hlo.decisions import FIELDS
from graphopt.measure.analytic import AnalyticScorer
from graphopt.measure.scoring import Scores

GRAPHS = ("layernorm", "adam_step", "heat_stencil")
NATURAL, PADDED = IDS


def make(env_id: str = NATURAL, **arguments) -> FusionPlacementEnv:
    """A bare environment."""
    env = gymnasium.make(env_id, **arguments).unwrapped
    assert isinstance(env, FusionPlacementEnv)
    return env


def table(env: FusionPlacementEnv, action) -> np.ndarray:
    """An action as rows of nodes."""
    return np.asarray(action).reshape(-1, len(FIELDS))[: len(env.graph)]


def same(a, b) -> bool:
    """Equal observations or information, arrays included."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


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
    env.reset(seed=0)
    env.step(env.action_space.sample())
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


def test_one_shot_episodes_terminate_and_refinement_is_truncated():
    env = make(graphs="layernorm")
    env.reset(seed=0)
    assert env.step(env.graph.default)[2:4] == (True, False)
    with pytest.raises(ConfigError, match="the episode is over"):
        env.step(env.graph.default)
    env = make(graphs="layernorm", horizon=3)
    env.reset(seed=0)
    ends = [env.step(env.graph.default)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


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
        envs.reset(seed=3)
        _, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        assert np.isfinite(rewards).all()
        assert terminated.all() and not truncated.any()
        assert (infos["replaced"] > 0).all()
    finally:
        envs.close()


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


def test_refinement_shows_the_previous_outcome():
    env = make(graphs="cartpole_rollout", horizon=4)
    first, _ = env.reset(seed=0)
    action = env.action_space.sample()
    (nodes, _, _), reward, _, _, info = env.step(action)
    names = env.node_features
    assert info["overrides"], "interactions settle something in a random vector of this program"
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
    with pytest.raises(ConfigError, match="more than 3 nodes"):
        make(graphs=GRAPHS, max_nodes=3)
    with pytest.raises(ConfigError, match="more than 3 edges"):
        make(PADDED, graphs=GRAPHS, max_edges=3)


# Actions.


def first_forbidden(env: FusionPlacementEnv) -> tuple[int, int, int]:
    """Node, column and value of a decision that a rule forbids."""
    codec = env.codec
    for column, size in enumerate(codec.sizes):
        bad = np.argwhere(~codec.legal[:, column, :size])
        if len(bad):
            return int(bad[0, 0]), column, int(bad[0, 1])
    raise AssertionError("nothing is forbidden")


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


# Rewards.


@pytest.mark.parametrize("env_id", IDS)
def test_xlas_own_decisions_earn_nothing(env_id):
    env = make(env_id, graphs=GRAPHS)
    for index in range(len(GRAPHS)):
        env.reset(options={"graph": index})
        _, reward, _, _, info = env.step(env.graph.default)
        assert reward == 0.0
        assert (info["speedup"], info["changed"], info["seconds"]) == (1.0, 0, info["default_s"])


@pytest.mark.parametrize("scale", ["log_ratio", "saved_share"])
def test_rewards_of_refinement_add_up_to_the_last_score(scale):
    env = make(graphs="heat_stencil", horizon=5, scale=scale)
    env.reset(seed=0)
    total = 0.0
    for _ in range(5):
        _, reward, _, _, info = env.step(env.action_space.sample())
        total += reward
    ratio = info["seconds"] / info["default_s"]
    expected = -np.log(ratio) if scale == "log_ratio" else 1.0 - ratio
    assert info["score"] == pytest.approx(expected)
    assert total == pytest.approx(expected)


def test_batches_score_as_steps_do():
    env = make(graphs="cartpole_rollout")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    graph = env.graph
    drawn = [graph.masks.sample(rng, graph.default, 0.1) for _ in range(6)]
    rewards = env.score_batch(DecisionBatch.stack(drawn))
    assert env.state.history == ()
    for decisions, reward in zip(drawn, rewards, strict=True):
        env.reset(seed=0)
        assert env.step(decisions)[1] == reward
    assert env.statistics.scored == 12


def test_batches_are_checked():
    strict, lenient = make(graphs="adam_step"), make(graphs="adam_step", strict=False)
    for env in (strict, lenient):
        env.reset(seed=0)
    node, column, value = first_forbidden(strict)
    default = strict.graph.default
    wrong = default.copy()
    getattr(wrong, FIELDS[column])[node] = value
    batch = DecisionBatch.stack([default, wrong])
    with pytest.raises(DecisionError, match="vector 1 has a forbidden value"):
        strict.score_batch(batch)
    assert lenient.score_batch(batch).tolist() == [0.0, 0.0]
    other = FusionPlacementEnv(graphs="layernorm")
    other.reset()
    with pytest.raises(DecisionError, match="for a graph of"):
        other.score_batch(batch)
    units = np.full((2, len(default)), 77, np.int16)
    with pytest.raises(DecisionError, match="does not exist"):
        lenient.score_batch(DecisionBatch(batch.fields | {"unit": units}))
    with pytest.raises(DecisionError, match="must be int16"):
        lenient.score_batch(DecisionBatch(batch.fields | {"unit": units.astype(np.int64)}))


class FailingScorer(AnalyticScorer):
    """Has no time for anything but XLA's own decisions."""

    name = "failing"

    def score(self, batch: DecisionBatch) -> Scores:
        known = [batch[i].same_as(self.graph.default) for i in range(len(batch))]
        seconds = np.where(known, self.default_s, np.nan)
        return Scores(seconds, tuple(None if k else "it broke" for k in known))


def failing(graph, program):
    """A scorer factory."""
    return FailingScorer(graph)


def test_failures_have_the_sources_value_and_a_reason():
    source = RewardSource("failing", failing, True, "nothing", failure=-3.0)
    env = make(graphs="adam_step", reward=source, horizon=2)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward == info["score"] == -3.0
    assert info["failure"] == "it broke"
    assert (info["seconds"], info["speedup"]) == (np.inf, 0.0)
    assert env.statistics.failed == 1
    assert env.step(env.graph.default)[1] == 3.0


def test_reward_sources_by_name(monkeypatch):
    for name in ("failing", "missing", "hungry"):
        monkeypatch.setitem(SOURCES, name, SOURCES["analytic"])
    register_source(RewardSource("failing", f"{__name__}:failing", True, "nothing"))
    env = make(graphs="layernorm", reward="failing")
    env.reset()
    assert env.scorer.name == "failing"
    register_source(RewardSource("missing", "no.such:module", True, "nothing"))
    with pytest.raises(ConfigError, match="is not installed"):
        make(graphs="layernorm", reward="missing").reset()
    register_source(RewardSource("hungry", failing, True, "nothing", needs_program=True))
    graph = env.graph
    with pytest.raises(ConfigError, match="only a graph"):
        make(graphs=graph, reward="hungry").reset()
    make(graphs=DEMO["layernorm"], reward="hungry").reset()


@pytest.mark.parametrize(
    "arguments",
    [
        {"horizon": 0},
        {"reward": "nonsense"},
        {"scale": "nonsense"},
        {"graphs": []},
        {"graphs": 3},
        {"graphs": [3]},
        {"graphs": "nonsense"},
        {"render_mode": "nonsense"},
    ],
)
def test_bad_arguments(arguments):
    with pytest.raises(ConfigError):
        FusionPlacementEnv(**arguments)


def test_graphs_and_programs_of_one_name_are_told_apart():
    graph = FusionPlacementEnv(graphs="layernorm").items[0].graph
    env = FusionPlacementEnv(graphs=[graph, graph, DEMO["layernorm"]])
    names = [item.name for item in env.items]
    assert len(set(names)) == 3
    assert [item.program is None for item in env.items] == [True, True, False]


def test_entries_of_a_corpus_are_sources():
    class Entry:
        program = DEMO["layernorm"]
        graphs: ClassVar = [FusionPlacementEnv(graphs="layernorm").items[0].graph] * 2

    items = FusionPlacementEnv(graphs=[Entry()]).items
    assert [item.name for item in items] == ["layernorm-0", "layernorm-1"]
    assert all(item.program is DEMO["layernorm"] for item in items)


# Forks, states, validation.


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 999),
    before=st.integers(0, 3),
    after=st.integers(1, 3),
    env_id=st.sampled_from(IDS),
)
def test_forks_and_replays_go_the_same_way(seed, before, after, env_id):
    env = make(env_id, graphs=GRAPHS, horizon=6)
    env.action_space.seed(seed)
    env.reset(seed=seed)
    last = None
    for _ in range(before):
        last = env.step(env.action_space.sample())
    fork = env.fork()
    replayed = make(env_id, graphs=GRAPHS, horizon=6)
    again = replayed.apply(EnvState.from_json(env.state.to_json()))
    assert replayed.state == env.state == fork.state
    assert (last is None) == (again is None)
    if last is not None:
        last[4]["replaced"] = 0  # a replay starts from the decisions, which are legal
        assert same(last, again)
    for _ in range(after):
        action = env.action_space.sample()
        step = env.step(action)
        np.testing.assert_array_equal(fork.action_space.sample(), action)
        assert same(fork.step(action), step)
        assert same(replayed.step(action), step)
    assert same(fork.reset(), env.reset())


def test_a_fork_is_independent():
    env = make(graphs=GRAPHS, horizon=3)
    env.reset(options={"graph": 0})
    fork = env.fork()
    fork.step(fork.action_space.sample())
    fork.reset(options={"graph": 1})
    assert env.state.history == ()
    assert env.state.graph == "layernorm"
    assert env.action_space.sample() in env.action_space


def test_states_are_checked():
    env = make(graphs=GRAPHS, horizon=2)
    env.reset(seed=0)
    env.step(env.graph.default)
    state = env.state
    assert state == EnvState.from_json(state.to_json())
    assert hash(state) == hash(EnvState.from_json(state.to_json()))
    assert state != EnvState(state.graph, state.fingerprint, ())
    with pytest.raises(ConfigError, match="another version"):
        env.apply(EnvState(state.graph, "0" * 64, state.history))
    with pytest.raises(ConfigError, match="do not fit a horizon"):
        env.apply(EnvState(state.graph, state.fingerprint, state.history * 3))
    for text in ("", "[]", "{}", '{"graph": 1}'):
        with pytest.raises(ConfigError, match="not an environment state"):
            EnvState.from_json(text)


def test_validation_runs_the_program():
    env = make(graphs="layernorm")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    found = env.validate()
    assert found.equal and found.rewritten == 1
    bare = FusionPlacementEnv(graphs=env.graph)
    bare.reset()
    with pytest.raises(ConfigError, match="only a graph"):
        bare.validate()


def test_codecs_read_back_what_they_wrote():
    env = make(graphs="cartpole_rollout")
    env.reset(seed=0)
    codec: ActionCodec = env.codec
    rng = np.random.default_rng(0)
    for _ in range(5):
        decisions = env.graph.masks.sample(rng, env.graph.default, 0.5)
        for action in (
            encode(decisions),
            encode(decisions).reshape(-1),
            encode(decisions).tolist(),
        ):
            back, replaced = codec.decode(action, len(env.graph), strict=True)
            assert isinstance(back, Decisions)
            assert replaced == 0 and back.same_as(decisions)
