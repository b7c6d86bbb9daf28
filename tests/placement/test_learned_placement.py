"""The policy that places, and its training: imitation, PPO, search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.placements import cluster, random_tasks, traced_program

from graphopt.errors import PolicyError
from graphopt.learn.placement.train import PlacementTraining, Trainer, search, train
from graphopt.placement import Simulator
from graphopt.placement.baselines import BASELINES, Problem
from graphopt.policy.placement import PlacementPolicy, block_graph, load_policy, network


def _model_problem(devices: int = 3) -> Problem:
    return Problem(Simulator(random_tasks(3), cluster(devices, latency_s=1e-9, bytes_per_s=1e14)))


def test_the_policy_takes_any_number_of_devices_and_stays_inside_masks():
    policy = PlacementPolicy(network.init(), samples=8)
    for devices in (1, 4):
        problem = _model_problem(devices)
        placement = policy(problem)
        problem.masks.check(placement)
        graph = block_graph(problem, 16)
        drawn = policy.propose(graph, 6)
        assert drawn.shape == (6, 16) and drawn.max() < devices
        np.testing.assert_array_equal(drawn, policy.propose(graph, 6))


def test_log_probabilities_belong_to_what_is_sampled():
    graph = network.arrays(block_graph(_model_problem(2), 16))
    params = network.init(1)
    noise = np.random.default_rng(0).gumbel(size=(4000, 16, 2)).astype(np.float32)
    drawn = np.asarray(network.sample(params, graph, noise, np.ones(4000, np.float32)))
    log, entropy = network.log_probabilities(params, graph, jnp.asarray(drawn[:64]))
    first = np.exp(np.asarray(log)[:, 0][drawn[:64, 0] == 1]).mean()
    assert drawn[:, 0].mean() == pytest.approx(first, abs=0.04)
    assert (np.asarray(entropy) <= np.log(2) + 1e-5).all()


def test_ppo_learns_to_balance_independent_work():
    """Independent equal tasks on two devices: the best is half of them on each."""

    def fn(x):
        return [jnp.tanh(x @ x) for _ in range(12)]

    tasks = traced_program(fn, (np.ones((256, 256), np.float32),)).tasks
    problem = Problem(Simulator(tasks, cluster(2, latency_s=0.0, bytes_per_s=1e18)))
    graph = block_graph(problem, 16)
    start = {**network.init(), "linear": jnp.zeros(network.STATE_FEATURES)}
    trainer = Trainer(start, PlacementTraining(blocks=16, learning_rate=0.03))
    means = []
    for step in range(25):
        drawn = PlacementPolicy(trainer.params).propose(graph, 32, seed=step)
        seconds = problem.simulator.score(graph.placement(problem, drawn)).seconds
        trainer.reinforce(network.arrays(graph), drawn, seconds)
        means.append(seconds.mean())
    half = problem.simulator.times.alone.sum() / 2
    assert np.mean(means[:3]) > 1.12 * half
    assert np.mean(means[-5:]) < 1.06 * half


def test_imitation_reaches_the_placement_shown():
    problem = _model_problem(2)
    graph = block_graph(problem, 16)
    target = np.random.default_rng(0).integers(0, 2, (1, 16)).astype(np.int32)
    trainer = Trainer(network.init(), PlacementTraining(blocks=16, learning_rate=0.03))
    losses = [trainer.imitate(network.arrays(graph), target) for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]


def test_training_tells_its_steps_and_hands_over_each_rounds_policy():
    config = PlacementTraining(
        blocks=8, samples=4, imitation_steps=2, rounds=2, teacher_evaluations=20
    )
    told, kept = [], []
    policy = train([_model_problem(2)], config, lambda text, done: told.append(done), kept.append)
    assert told == [1, 2, 3, 4] and config.steps == 4
    assert len(kept) == 2
    weights = [jax.tree.leaves(p.params) for p in (*kept, policy)]
    assert all(map(np.array_equal, weights[1], weights[2]))
    assert not all(map(np.array_equal, weights[0], weights[1]))


def test_the_policy_search_keeps_to_its_evaluations_and_does_not_lose_to_its_starts():
    problem = _model_problem(2)
    before = problem.simulator.evaluations
    found = search(problem, PlacementPolicy(network.init()), 250,
                   config=PlacementTraining(blocks=16, samples=16))  # fmt: skip
    assert found.evaluations <= 250
    assert problem.simulator.evaluations - before == found.evaluations
    starts = np.stack([b(problem) for b in BASELINES.values()])
    assert found.seconds <= np.nanmin(problem.simulator.score(starts).seconds)
    problem.masks.check(found.placement)


def test_policies_are_saved_and_loaded(tmp_path):
    policy = PlacementPolicy(network.init(3))
    policy.save(tmp_path / "policy.npz")
    graph = block_graph(_model_problem(), 16)
    loaded = load_policy(tmp_path / "policy.npz")
    np.testing.assert_array_equal(policy.propose(graph, 4), loaded.propose(graph, 4))
    load_policy()  # the shipped one fits this version's network
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    for path in (tmp_path / "other.npz", tmp_path / "missing.npz"):
        with pytest.raises(PolicyError):
            load_policy(path)
