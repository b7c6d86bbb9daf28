"""Reward sources that compile and measure, and agents that use them through the environment."""

from __future__ import annotations

import json
import textwrap

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support.forks import run_forked

from benchmarks.agents import (
    AGENTS,
    EnvironmentScorer,
    agents_table,
    graphs_of,
    measure,
    play,
)
from graphopt.corpus import Program
from graphopt.env import IDS, FusionPlacementEnv
from graphopt.errors import ConfigError, MeasureError
from graphopt.hlo import DecisionBatch
from graphopt.measure.measured import MeasuredScorer


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    """A store of the test's own, empty."""
    monkeypatch.setenv("GRAPHOPT_STORE", str(tmp_path / "store.sqlite"))


def test_every_action_of_the_space_compiles_and_computes_the_same():
    """Actions over several programs, in a child: XLA aborts on an illegal module."""
    done = run_forked(
        textwrap.dedent("""
            import json
            import gymnasium, graphopt.env
            found = []
            programs = ["layernorm", "heat_stencil", "cartpole_rollout", "collatz", "gather_scatter"]
            env = gymnasium.make("graphopt/FusionPlacement-v0", graphs=programs).unwrapped
            env.action_space.seed(0)
            for index, item in enumerate(env.items):
                for _ in range(2):
                    env.reset(seed=0, options={"graph": index})
                    env.step(env.action_space.sample())
                    result = env.validate()
                    found.append([item.name, bool(result.equal), float(result.relative)])
            print(json.dumps(found))
        """),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 10
    assert all(equal for _, equal, _ in found), found


@pytest.mark.parametrize("source", ["bank", "model"])
@pytest.mark.parametrize("env_id", IDS)
def test_banks_are_sources_as_gymnasium_wants_them(env_id, source):
    env = gymnasium.make(env_id, reward=source).unwrapped
    check_env(env, skip_render_check=True)
    env.close()


def test_bank_steps_and_batches_agree():
    env = FusionPlacementEnv(graphs="adam_step", reward="bank")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    drawn = [env.graph.masks.sample(rng, env.graph.default, 0.1) for _ in range(5)]
    rewards = env.score_batch(DecisionBatch.stack([env.graph.default, *drawn]))
    assert rewards[0] == 0.0
    for decisions, reward in zip(drawn, rewards[1:], strict=True):
        env.reset(seed=0)
        assert env.step(decisions)[1] == pytest.approx(reward, rel=1e-9, abs=1e-12)


def test_whole_modules_are_measured_once_and_checked():
    env = FusionPlacementEnv(graphs="layernorm", reward="measured", horizon=3)
    try:
        env.reset(seed=0)
        first = env.step(env.graph.default)
        assert first[1] == 0.0 and first[4]["seconds"] > 0.0
        action = env.action_space.sample()
        second, third = env.step(action), env.step(action)
        assert second[4]["failure"] == "" and np.isfinite(second[4]["seconds"])
        assert third[1] == 0.0, "equal decisions are not measured again"
        assert (env.statistics.measured, env.statistics.known) == (2, 1)
    finally:
        env.close()


def unrelated():
    return (lambda x: x * 2.0 + 1.0), (np.ones(8, np.float32),)


def test_a_program_of_another_graph_is_refused():
    graph = FusionPlacementEnv(graphs="layernorm").items[0].graph
    fn, args = unrelated()
    with pytest.raises(MeasureError, match="no longer compiles to this graph"):
        MeasuredScorer.of_program(graph, fn, args)
    env = FusionPlacementEnv(graphs=Program("unrelated", "test", unrelated, "x * 2 + 1"))
    env.reset()
    from graphopt.env import GraphItem
    from graphopt.env.validation import validate

    with pytest.raises(ConfigError, match="no longer compiles"):
        validate(GraphItem("wrong", graph, env.items[0].program), graph.default)


def test_agents_play_through_the_environment():
    (item,) = graphs_of("heat_stencil")
    row = play(item, source="analytic", evaluations=40, seed=1)
    assert set(row.played) == set(AGENTS)
    for name, played in row.played.items():
        assert played.reward >= 0.0 or name == "heuristic"
        assert 0 <= played.found_at <= played.evaluations <= 40
        env = FusionPlacementEnv(graphs=[item], reward="analytic")
        env.reset()
        assert env.step(played.best)[1] == pytest.approx(played.reward)
    assert row.played["annealing"].reward > 0.0
    assert play(item, source="analytic", evaluations=40, seed=1) == row


def test_what_agents_reach_is_measured():
    (item,) = graphs_of("heat_stencil")
    row = measure(item, play(item, source="analytic", evaluations=4, seed=1))
    assert all(np.isfinite(played.measured) for played in row.played.values())
    assert agents_table([row]).row_count == len(AGENTS)


def test_searches_see_the_environments_seconds():
    env = FusionPlacementEnv(graphs="heat_stencil")
    env.reset()
    scorer = EnvironmentScorer(env)
    rng = np.random.default_rng(0)
    batch = DecisionBatch.stack(
        [env.graph.masks.sample(rng, env.graph.default, 0.2) for _ in range(4)]
    )
    np.testing.assert_allclose(scorer.score(batch).seconds, env.scorer.score(batch).seconds)
    assert scorer.default_s == env.scorer.default_s


def test_explanations_use_measured_kernels(tmp_path):
    from graphopt.corpus.fuzzing import FUZZ
    from graphopt.evaluate.commands.explain import explain
    from graphopt.measure.bank.scorer import BankScorer
    from graphopt.measure.children.runner import Runner
    from graphopt.policy.heuristic.steps import heuristic
    from graphopt.store import Store

    fn, args = FUZZ["recurrent_products"].build()
    store = Store(tmp_path / "bank.sqlite")
    assert explain(fn, *args, store=store).modules[0].clock == "analytic model"
    graph = explain(fn, *args, store=store).modules[0].graph
    data = graph.source.module.proto.SerializeToString()
    chosen = heuristic(graph)
    with Runner(data, None, store) as runner:
        for decisions in (graph.default, chosen):
            assert BankScorer(graph, store).profile(runner, decisions) > 0
    (module,) = explain(fn, *args, store=store).modules
    assert module.clock.startswith("kernel bank (")
    assert all(part.seconds >= 0.0 for part in (*module.default.parts, *module.chosen.parts))
    assert module.speedup > 1.0, "the heuristic's native loop gains several times over here"
    before = sum(move.before_s for move in module.moves)
    after = sum(move.after_s for move in module.moves)
    assert module.default.seconds - module.chosen.seconds == pytest.approx(before - after)
