"""The environments: rewards, forks, replays and validation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.environments import GRAPHS, first_forbidden, make, same

from graphopt.corpus.demo import DEMO
from graphopt.env import (
    IDS,
    EnvState,
    FusionPlacementEnv,
    RewardSource,
    encode,
)
from graphopt.env.actions import ActionCodec
from graphopt.env.rewards import SOURCES, register_source
from graphopt.errors import ConfigError, DecisionError
from graphopt.hlo import DecisionBatch, Decisions
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.measure.analytic import AnalyticScorer
from graphopt.measure.scoring import Scores

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
