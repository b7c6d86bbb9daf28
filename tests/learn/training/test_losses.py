"""The objective's parts against loops, and what each of them must not depend on."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import MODEL, config, flip_problem

from graphopt.learn.config import StageConfig
from graphopt.learn.training.batch import imitation_weights, make_batch
from graphopt.learn.training.elites import Elite, default_elite
from graphopt.learn.training.losses import clipped_surrogate, divergence, pinball
from graphopt.learn.training.rollout import collect
from graphopt.learn.training.update import (
    gradients_of,
    new_learner,
    objective_weights,
    update_epoch,
)
from graphopt.policy.network.numpy_network import NumpyPolicy
from graphopt.policy.network.parameters import flatten

pytestmark = pytest.mark.usefixtures("plain_code")

SETTINGS = config()
FLOATS = st.floats(-5, 0)


@settings(deadline=None)  # jax compiles at the first call
@given(new=FLOATS, old=FLOATS, advantage=st.floats(-4, 4), clip=st.sampled_from([0.1, 0.2]))
def test_surrogate_against_its_definition(new, old, advantage, clip):
    ratio = math.exp(new - old)
    clipped = min(max(ratio, 1 - clip), 1 + clip)
    expected = -min(ratio * advantage, clipped * advantage)
    found = clipped_surrogate(*map(jnp.float32, (new, old, advantage, clip)))
    assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_surrogate_stops_pushing_outside_the_clipping_range():
    slope = jax.grad(clipped_surrogate)
    far = jnp.float32(math.log(1.5))
    assert slope(far, 0.0, 1.0, 0.2) == 0.0
    assert slope(far, 0.0, -1.0, 0.2) > 0.0
    assert slope(-far, 0.0, -1.0, 0.2) == 0.0
    assert slope(-far, 0.0, 1.0, 0.2) < 0.0


@settings(deadline=None)  # jax compiles at the first call
@given(new=FLOATS, old=FLOATS)
def test_divergence_is_never_negative_and_zero_for_equals(new, old):
    assert float(divergence(jnp.float32(new), jnp.float32(old))) >= -1e-6
    assert float(divergence(jnp.float32(new), jnp.float32(new))) == 0.0


def test_pinball_is_least_at_the_quantile():
    values = np.linspace(0, 1, 101)
    guesses = np.linspace(0, 1, 21)
    totals = [float(pinball(jnp.asarray(values - g), jnp.float32(0.2)).sum()) for g in guesses]
    assert guesses[int(np.argmin(totals))] == pytest.approx(0.2)


@pytest.fixture(scope="module")
def learner():
    return new_learner(MODEL, 0, 0.5)


def batch_of(learner, label=None):
    problem = flip_problem("heat_stencil")
    network = NumpyPolicy(MODEL, flatten(learner.parameters))
    rollout = collect(network, problem, "flip", np.random.default_rng(0), SETTINGS.rollout)
    return rollout, make_batch(rollout, label or default_elite(problem.graph), SETTINGS)


def test_fresh_rollouts_have_ratio_one(learner):
    _, batch = batch_of(learner)
    stage = StageConfig(policy=1.0, imitation=0.0)
    _, metrics = gradients_of(MODEL)(
        learner.parameters, batch, objective_weights(stage, SETTINGS.ppo, True)
    )
    assert float(metrics["ppo/kl"]) == pytest.approx(0.0, abs=1e-6)
    assert float(metrics["ppo/clipped"]) == 0.0
    free = np.stack([batch.drawn[name].sum(axis=1) for name in batch.drawn]).sum(axis=0)
    expected = -batch.advantages[free > 0].mean()
    assert float(metrics["loss/policy"]) == pytest.approx(expected, abs=1e-5)


def test_padding_is_not_drawn_nor_imitated(learner):
    rollout, batch = batch_of(learner)
    count = len(rollout.problem.graph)
    for name in batch.drawn:
        assert not batch.drawn[name][:, count:].any()
        assert not batch.imitate[name][:, count:].any()
        assert not batch.imitate[name][:-1].any()
    assert sum(float(v.sum()) for v in batch.imitate.values()) == pytest.approx(1.0, rel=1e-5)


def test_the_label_is_the_last_vector(learner):
    problem = flip_problem("heat_stencil")
    best = problem.graph.default.with_changes(fuse=problem.scorer("flip").best)
    rollout, batch = batch_of(learner, Elite(best, 1.0, "search", "flip"))
    count = len(problem.graph)
    assert np.array_equal(batch.actions["fuse"][-1, :count], best.fuse)
    base = rollout.base  # what the heuristic gains in this toy
    assert batch.log_speedup[-1] == pytest.approx(1.0 - base)
    assert batch.known[-1] == 1.0
    assert batch.known[0] == 0.0  # the likeliest vector of a new network is the heuristic's
    assert batch.advantages[-1] == 0.0


def test_imitation_weighs_deviations_more_and_ignores_what_means_nothing():
    problem = flip_problem("heat_stencil")
    best = problem.graph.default.with_changes(fuse=problem.scorer("flip").best)
    weights = imitation_weights(problem.features, best, 3.0)
    fields = {field.name: field for field in problem.features.fields}
    differs = best.fuse != problem.features.start.fuse
    same = fields["fuse"].free & ~differs
    assert weights["fuse"][differs].min() == pytest.approx(3 * weights["fuse"][same].max())
    assert not weights["fuse"][~fields["fuse"].free].any()
    assert not weights["unit"][best.fuse].any()
    assert not weights["join"][best.fuse].any()


def test_imitation_alone_learns_the_label(learner):
    problem = flip_problem("heat_stencil")
    best = problem.graph.default.with_changes(fuse=problem.scorer("flip").best)
    _, batch = batch_of(learner, Elite(best, 1.0, "search", "flip"))
    stage = StageConfig(policy=0.0, imitation=1.0)
    weights = objective_weights(stage, SETTINGS.ppo, True)
    losses = []
    for _ in range(120):  # the gain head swings for the first sixty
        learner, metrics, moved = update_epoch(learner, [batch], weights, 1e-2, 0.5, math.inf)
        assert moved
        losses.append(metrics["loss/imitation"])
    assert losses[-1] < 0.2 * losses[0]
    network = NumpyPolicy(MODEL, flatten(learner.parameters))
    rollout = collect(network, problem, "flip", np.random.default_rng(1), SETTINGS.rollout)
    assert rollout.rewards[0] == pytest.approx(1.0)
    assert rollout.samples.gains[0] == pytest.approx(1.0, abs=0.3)


def test_weight_decay_shrinks_matrices_only(learner):
    _, batch = batch_of(learner)
    weights = objective_weights(StageConfig(policy=0.0, imitation=1.0), SETTINGS.ppo, True)
    rate, decay = 1e-2, 0.5
    plain, _, _ = update_epoch(learner, [batch], weights, rate, 0.5, math.inf)
    decayed, _, _ = update_epoch(learner, [batch], weights, rate, 0.5, math.inf, weight_decay=decay)
    before, one, other = (flatten(state.parameters) for state in (learner, plain, decayed))
    for name, value in before.items():
        shrunk = rate * decay * value if value.ndim > 1 else 0.0
        np.testing.assert_allclose(other[name], one[name] - shrunk, rtol=1e-5, atol=1e-7)


def test_the_average_follows_the_parameters(learner):
    _, batch = batch_of(learner)
    weights = objective_weights(StageConfig(policy=0.0, imitation=1.0), SETTINGS.ppo, True)
    moved, _, _ = update_epoch(learner, [batch], weights, 1e-2, 0.5, math.inf, averaging=0.75)
    before, after, average = map(flatten, (learner.parameters, moved.parameters, moved.average))
    for name, value in before.items():
        np.testing.assert_allclose(average[name], 0.75 * value + 0.25 * after[name], atol=1e-6)
    last, _, _ = update_epoch(learner, [batch], weights, 1e-2, 0.5, math.inf)
    assert all(map(np.array_equal, *(flatten(p).values() for p in (last.average, last.parameters))))


def test_the_divergence_guard_changes_nothing(learner):
    _, batch = batch_of(learner)
    moved = batch._replace(old={name: value - 1.0 for name, value in batch.old.items()})
    weights = objective_weights(StageConfig(), SETTINGS.ppo, True)
    after, metrics, changed = update_epoch(learner, [moved], weights, 1e-2, 0.5, 0.05)
    assert not changed
    assert after is learner
    assert metrics["ppo/kl"] > 0.05
