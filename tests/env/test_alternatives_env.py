"""The environment on alternatives: Gymnasium's contract, masks, rewards, tasks, and stock libraries."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support.environments import same

from graphopt.env import ALTERNATIVES_ID, AlternativesEnv, RewardSource
from graphopt.env.alternatives_view import ALTERNATIVE_FEATURES, NODE_FEATURES, STATE_FEATURES
from graphopt.errors import ConfigError
from graphopt.hlo import RESTRUCTURES, rewrite
from graphopt.measure.analytic import AnalyticScorer
from graphopt.policy.alternatives.alternative import KIND_CODE

GRAPHS = ("layernorm", "scan_grad")


def make(**arguments) -> AlternativesEnv:
    env = gymnasium.make(ALTERNATIVES_ID, **{"graphs": GRAPHS, **arguments}).unwrapped
    assert isinstance(env, AlternativesEnv)
    return env


def allowed(info) -> np.ndarray:
    return np.flatnonzero(info["action_mask"])


def play(env, rng, steps=100):
    """A random legal episode; everything it returned."""
    seen = [env.reset(seed=int(rng.integers(100)))]
    info = seen[0][1]
    for _ in range(steps):
        choices = allowed(info)
        action = int(rng.choice(choices[1:])) if len(choices) > 1 else 0
        seen.append(env.step(action))
        info = seen[-1][4]
        if seen[-1][2] or seen[-1][3]:
            break
    return seen


@pytest.mark.parametrize(
    "arguments",
    [{}, {"tasks": True, "start": "heuristic", "dense": True}, {"horizon": 1, "alternatives": 2}],
)
def test_gymnasium_checks_it(arguments):
    check_env(make(**arguments))


def test_observations_are_fixed_arrays_of_few_types():
    env = make()
    for name in GRAPHS:
        observation, _ = env.reset(options={"graph": name})
        assert env.observation_space.contains(observation)
        assert {v.dtype for v in observation.values()} == {np.dtype("f4"), np.dtype("i4")}
        assert observation["node_mask"].sum() == len(env.graph)
        assert (observation["action_mask"] == env.action_masks()).all()
        assert observation["alternatives"].shape[1] == len(ALTERNATIVE_FEATURES)


def test_columns_leave_room_for_new_rows():
    assert (
        sum(name.startswith("kind_") for name in ALTERNATIVE_FEATURES)
        == 64
        > max(KIND_CODE.values())
    )
    assert sum(n.startswith("restructure_") for n in STATE_FEATURES) == 32 >= len(RESTRUCTURES)


def test_what_is_observed_follows_the_decisions():
    env, fresh = make(graphs="scan_grad"), make(graphs="scan_grad")
    rng = np.random.default_rng(3)
    _, info = env.reset()
    for _ in range(20):
        observation, *_, info = env.step(int(rng.choice(allowed(info)[1:])))
        fresh.reset()
        view = fresh._view
        view.begin(env._view.flat)
        assert same(view.observe()["nodes"], observation["nodes"])
        assert (view.mask == env._view.mask).all()
    column = NODE_FEATURES.index("fused")
    assert (observation["nodes"][: len(env.graph), column] == env.decisions.fuse).all()


def test_every_sequence_is_legal():
    env = make(horizon=60)
    for seed in range(4):
        play(env, np.random.default_rng(seed))
        env.graph.masks.check(env.decisions)
        rewrite(env.graph, env.decisions)


def test_equal_seeds_give_equal_episodes():
    first, second = (play(make(), np.random.default_rng(7)) for _ in range(2))
    assert all(same(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("start", ["default", "heuristic"])
def test_the_return_is_what_the_last_decisions_gained(start):
    sparse = make(graphs="scan_grad", start=start, horizon=8)
    dense = make(graphs="scan_grad", start=start, horizon=8, dense=True)
    scorer = AnalyticScorer(sparse.items[0].graph)
    for env in (sparse, dense):
        env.reset()
        before = env.decisions
        rewards = [step[1] for step in play(env, np.random.default_rng(2))[1:]]
        times = [scorer._seconds(d)[0] for d in (before, env.decisions)]
        assert np.isclose(sum(rewards), np.log(times[0] / times[1]))
        assert (env is dense) == (np.count_nonzero(rewards) > 1)


def test_stop_and_the_horizon_terminate():
    env = make()
    env.reset()
    *_, terminated, truncated, info = env.step(0)
    assert terminated and not truncated and info["chosen"] == "stop" and info["score"] == 0.0
    with pytest.raises(ConfigError, match="over"):
        env.step(0)
    last = play(make(graphs="scan_grad", horizon=3), np.random.default_rng(0))[-1]
    assert last[2] and not last[3]  # else libraries add the value of a state that has none


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("start", ["default", "heuristic"])
def test_information_has_the_same_keys_and_types_at_every_step(start, dense):
    seen = play(make(graphs="scan_grad", start=start, dense=dense), np.random.default_rng(1))
    infos = [seen[0][1], *(step[4] for step in seen[1:])]
    kinds = [{key: type(value) for key, value in info.items()} for info in infos]
    assert all(kind == kinds[0] for kind in kinds)
    assert infos[-1]["scored"] and np.isfinite(infos[-1]["seconds"])
    assert [i["scored"] for i in infos[1:-1]] == [int(dense)] * (len(infos) - 2)
    assert (infos[0]["scored"], infos[0]["chosen"]) == (int(start == "heuristic"), "")


def test_alternatives_without_a_row_are_counted():
    few, all_of_them = (
        make(graphs="scan_grad", alternatives=8),
        make(graphs="scan_grad", alternatives=4096),
    )
    _, info = few.reset()
    _, whole = all_of_them.reset()
    assert (info["alternatives"], whole["left_out"]) == (8, 0)
    assert info["alternatives"] + info["left_out"] == whole["alternatives"]


def test_nothing_works_before_a_reset():
    env = make(graphs="layernorm")
    for use in (env.action_masks, lambda: env.step(0), lambda: env.decisions, lambda: env.graph):
        with pytest.raises(ConfigError, match="reset first"):
            use()


def test_masked_actions_change_nothing_or_raise():
    env = make(graphs="layernorm")
    _, info = env.reset()
    masked = int(np.flatnonzero(~info["action_mask"])[0])
    before = env.decisions
    *_, info = env.step(masked)
    assert info["ignored"] == 1 and env.decisions.same_as(before)
    strict = make(graphs="layernorm", strict=True)
    strict.reset()
    with pytest.raises(ConfigError, match="masked"):
        strict.step(masked)
    for wrong in (-1, 256, 0.5, [1, 2]):
        with pytest.raises(ConfigError, match="no number"):
            env.step(wrong)


def test_tasks_are_graphs_of_their_own():
    whole, parts = make(graphs="keys_in_loops"), make(graphs="keys_in_loops", tasks=True)
    assert len(parts.items) > 1
    assert max(len(i.graph) for i in parts.items) < len(whole.items[0].graph)
    fingerprints = [item.graph.fingerprint for item in parts.items]
    assert len(set(fingerprints)) == len(fingerprints)


def test_forks_go_their_own_way_and_environments_are_pickled():
    env = make()
    _, info = env.reset(seed=1)
    other = env.fork()
    action = int(allowed(info)[1])
    one = env.step(action)
    assert not other.decisions.same_as(env.decisions)
    assert same(one, other.step(action))
    again = pickle.loads(pickle.dumps(env))
    assert again.decisions.same_as(env.decisions)
    assert same(again.reset(seed=2), env.reset(seed=2))


def test_vector_environments_take_it():
    many = gymnasium.make_vec(ALTERNATIVES_ID, 2, vectorization_mode="sync", graphs=GRAPHS)
    observation, info = many.reset(seed=0)
    assert observation["action_mask"].shape == (2, 256) and info["action_mask"].shape == (2, 256)
    observation, rewards, *_ = many.step(np.zeros(2, np.int64))
    assert rewards.tolist() == [0.0, 0.0]
    many.close()


def test_failures_have_the_source_s_value():
    class Failing(AnalyticScorer):
        def score(self, batch):
            from graphopt.measure.scoring import Scores

            return Scores(np.full(len(batch), np.nan), ("broken",) * len(batch))

    source = RewardSource(
        "failing", lambda graph, _: Failing(graph), deterministic=True, cost="none", failure=-3.0
    )
    env = make(reward=source)
    env.reset()
    _, reward, _, _, info = env.step(0)
    assert reward == -3.0 and info["failure"] == "broken" and info["seconds"] == np.inf


def test_it_is_measured_in_a_child_process():
    env = make(graphs="layernorm", reward="measured")
    _, info = env.reset()
    env.step(int(allowed(info)[1]))
    *_, info = env.step(0)
    env.close()
    assert info["failure"] == "" and 0.0 < info["seconds"] < 10.0


@pytest.mark.parametrize(
    "arguments",
    [{"horizon": 0}, {"alternatives": 1}, {"start": "x"}, {"render_mode": "x"}, {"max_nodes": 1}],
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ConfigError):
        AlternativesEnv(**{"graphs": "layernorm", **arguments})


def test_it_is_drawn():
    env = make(graphs="layernorm", render_mode="ansi")
    _, info = env.reset()
    env.step(int(allowed(info)[1]))
    assert "layernorm" in env.render()


@pytest.mark.parametrize("library", ["stable_baselines3", "sb3_contrib"])
def test_stock_libraries_train_on_it(library):
    module = pytest.importorskip(library)
    env = gymnasium.make(ALTERNATIVES_ID, graphs="layernorm", alternatives=32, horizon=4)
    learner = module.PPO if library == "stable_baselines3" else module.MaskablePPO
    model = learner("MultiInputPolicy", env, n_steps=32, batch_size=16, n_epochs=1, seed=0)
    model.learn(64)
    assert model.num_timesteps == 64
