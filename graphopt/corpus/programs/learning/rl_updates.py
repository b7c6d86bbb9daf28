"""Update rules of reinforcement learning."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, mlp

RL_UPDATE = Family("rl-update")
FAMILIES = (RL_UPDATE,)


@RL_UPDATE.program(
    "ppo_update_grad",
    "reverse-scan advantages, clipped loss and gradient, f32[64,8]",
    gradient=True,
    loops=True,
)
def _ppo_update_grad() -> Built:
    draws = Draws(9)
    params = {"policy": draws.layers(6, 32, 4), "value": draws.layers(6, 32, 1)}

    def loss(params: Tree, seen: Array, actions: Array, rewards: Array, old: Array) -> Tree:
        values = mlp(params["value"], seen, jnp.tanh)[..., 0]
        held = lax.stop_gradient(values)

        def back(carry: Tree, now: Tree) -> tuple[Tree, Array]:
            gain, after = carry
            reward, value = now
            gain = reward + 0.99 * after - value + 0.99 * 0.95 * gain
            return (gain, value), gain

        start = (jnp.zeros(8), held[-1])
        gains = lax.scan(back, start, (rewards, held), reverse=True)[1]
        target = gains + held
        gains = (gains - jnp.mean(gains)) / (jnp.std(gains) + 1e-6)
        logs = jax.nn.log_softmax(mlp(params["policy"], seen, jnp.tanh))
        picked = jnp.take_along_axis(logs, actions[..., None], axis=-1)[..., 0]
        ratio = jnp.exp(picked - old)
        surrogate = jnp.minimum(ratio * gains, jnp.clip(ratio, 0.8, 1.2) * gains)
        entropy = -jnp.sum(jnp.exp(logs) * logs, axis=-1)
        return jnp.mean(-surrogate + 0.5 * (values - target) ** 2 - 0.01 * entropy)

    args = (draws.normal(64, 8, 6), draws.integers(4, 64, 8), draws.normal(64, 8))
    return jax.value_and_grad(loss), (params, *args, draws.normal(64, 8, scale=0.1) - 1.4)


@RL_UPDATE.program(
    "dqn_double_grad",
    "double Q-learning loss with target network and priorities: gradient",
    gradient=True,
)
def _dqn_double_grad() -> Built:
    draws = Draws(10)

    def loss(online: Tree, target: Tree, seen: Array, after: Array, taken: Tree) -> Tree:
        actions, rewards, ended, weights = taken
        best = jnp.argmax(mlp(online, after), axis=-1)
        value = jnp.take_along_axis(mlp(target, after), best[:, None], axis=1)[:, 0]
        goal = lax.stop_gradient(rewards + 0.99 * (1.0 - ended) * value)
        gap = jnp.take_along_axis(mlp(online, seen), actions[:, None], axis=1)[:, 0] - goal
        huber = jnp.where(jnp.abs(gap) < 1.0, 0.5 * gap**2, jnp.abs(gap) - 0.5)
        return jnp.mean(weights * huber), jnp.abs(gap)

    taken = (
        draws.integers(4, 128),
        draws.normal(128),
        draws.uniform(128).round(),
        draws.uniform(128),
    )
    networks = (draws.layers(8, 64, 64, 4), draws.layers(8, 64, 64, 4))
    args = (*networks, draws.normal(128, 8), draws.normal(128, 8), taken)
    return jax.value_and_grad(loss, has_aux=True), args


@RL_UPDATE.program(
    "soft_actor_critic_step",
    "actor, twin critics and temperature losses with gradients, batch 64",
    gradient=True,
)
def _soft_actor_critic_step() -> Built:
    draws = Draws(11)
    params = {
        "actor": draws.layers(6, 32, 4),
        "critics": [draws.layers(8, 32, 1), draws.layers(8, 32, 1)],
        "heat": np.float32(-1.0),
    }

    def loss(params: Tree, seen: Array, actions: Array, goals: Array, noise: Array) -> Array:
        mean, log_scale = jnp.split(mlp(params["actor"], seen), 2, axis=-1)
        log_scale = jnp.clip(log_scale, -4.0, 1.0)
        raw = mean + jnp.exp(log_scale) * noise
        fresh = jnp.tanh(raw)
        log_prob = jnp.sum(-0.5 * noise**2 - log_scale - jnp.log1p(-(fresh**2) + 1e-4), axis=-1)
        frozen = lax.stop_gradient(params["critics"])
        guess = [mlp(c, jnp.concatenate([seen, fresh], -1))[:, 0] for c in frozen]
        heat = jnp.exp(params["heat"])
        actor = jnp.mean(lax.stop_gradient(heat) * log_prob - jnp.minimum(*guess))
        judged = [mlp(c, jnp.concatenate([seen, actions], -1))[:, 0] for c in params["critics"]]
        critic = sum(jnp.mean((q - goals) ** 2) for q in judged)
        return actor + critic - jnp.mean(heat * lax.stop_gradient(log_prob - 2.0))

    args = (
        draws.normal(64, 6),
        np.tanh(draws.normal(64, 2)),
        draws.normal(64),
        draws.normal(64, 2),
    )
    return jax.value_and_grad(loss), (params, *args)


@RL_UPDATE.program(
    "q_learning_grid", "400 tabular updates of f32[64,4] along a fixed walk", loops=True
)
def _q_learning_grid() -> Built:
    draws = Draws(12)

    def learn(table: Array, states: Array, actions: Array, rewards: Array) -> Tree:
        def step(table: Array, now: Tree) -> tuple[Array, Array]:
            state, action, reward, after = now
            gap = reward + 0.95 * jnp.max(table[after]) - table[state, action]
            return table.at[state, action].add(0.3 * gap), gap

        return lax.scan(step, table, (states[:-1], actions, rewards, states[1:]))

    args = (draws.normal(64, 4), draws.integers(64, 401), draws.integers(4, 400), draws.normal(400))
    return learn, args


@RL_UPDATE.program(
    "value_iteration",
    "60 sweeps over a random decision process of 96 states, 4 actions",
    loops=True,
)
def _value_iteration() -> Built:
    draws = Draws(13)
    chances = draws.uniform(4, 96, 96) ** 6
    chances = chances / chances.sum(axis=-1, keepdims=True)

    def solve(chances: Array, rewards: Array) -> Tree:
        def sweep(_: Array, carry: Tree) -> Tree:
            values, _ = carry
            quality = rewards + 0.95 * jnp.einsum("ast,t->as", chances, values)
            fresh = jnp.max(quality, axis=0)
            return fresh, jnp.max(jnp.abs(fresh - values))

        values, residual = lax.fori_loop(0, 60, sweep, (jnp.zeros(96), jnp.float32(0.0)))
        quality = rewards + 0.95 * jnp.einsum("ast,t->as", chances, values)
        return values, residual, jax.nn.softmax(quality, axis=0)

    return solve, (chances, draws.normal(4, 96))


@RL_UPDATE.program(
    "v_trace_returns", "V-trace targets and policy-gradient weights, f32[600,128]", loops=True
)
def _v_trace_returns() -> Built:
    draws = Draws(14)

    def targets(values: Array, rewards: Array, logs: Array, old: Array) -> Tree:
        ratio = jnp.exp(logs - old)
        rho, trace = jnp.minimum(ratio, 1.0), 0.95 * jnp.minimum(ratio, 1.0)
        after = jnp.concatenate([values[1:], values[-1:]])
        gaps = rho * (rewards + 0.99 * after - values)

        def back(carry: Array, now: Tree) -> tuple[Array, Array]:
            gap, trace = now
            carry = gap + 0.99 * trace * carry
            return carry, carry

        change = lax.scan(back, jnp.zeros(128), (gaps, trace), reverse=True)[1]
        goal = values + change
        shifted = jnp.concatenate([goal[1:], values[-1:]])
        return goal, rho * (rewards + 0.99 * shifted - values)

    return targets, tuple(draws.normal(600, 128) for _ in range(4))
