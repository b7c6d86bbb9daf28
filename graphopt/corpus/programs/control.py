"""Reinforcement learning: classic-control environments as scans, and its update rules."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, mlp

CONTROL = Family("control")
RL_UPDATE = Family("rl-update")
FAMILIES = (CONTROL, RL_UPDATE)


def _cartpole(state: Array, force: Array) -> Array:
    """Next f32[4, B] state; force is f32[B]."""
    _, velocity, angle, spin = state
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (force + 0.05 * spin**2 * sine) / 1.1
    spin_rate = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    rate = push - 0.05 * spin_rate * cosine / 1.1
    return state + 0.02 * jnp.stack([velocity, rate, spin, spin_rate])


def _pendulum(state: Array, torque: Array) -> Array:
    """Next f32[2, B] (angle, speed)."""
    angle, speed = state
    speed = jnp.clip(speed + 0.05 * (15.0 * jnp.sin(angle) + 3.0 * torque), -8.0, 8.0)
    return jnp.stack([angle + 0.05 * speed, speed])


def _acrobot_rate(state: Array, torque: Array) -> Array:
    """Time derivative of f32[4, B] (angles, speeds): the book's equations of motion."""
    first, second, spin1, spin2 = state
    cosine = jnp.cos(second)
    inertia = 0.25 + 1.25 + cosine + 2.0
    cross = 0.25 + 0.5 * cosine + 1.0
    low = 4.9 * jnp.cos(first + second - jnp.pi / 2)
    high = -0.5 * spin2**2 * jnp.sin(second) - spin2 * spin1 * jnp.sin(second)
    high += 14.7 * jnp.cos(first - jnp.pi / 2) + low
    rate2 = torque + cross / inertia * high - 0.5 * spin1**2 * jnp.sin(second) - low
    rate2 = rate2 / (1.25 - cross**2 / inertia)
    rate1 = -(cross * rate2 + high) / inertia
    return jnp.stack([spin1, spin2, rate1, rate2])


def _acrobot(state: Array, torque: Array) -> Array:
    """One Runge-Kutta step of 0.05 s."""
    k1 = _acrobot_rate(state, torque)
    k2 = _acrobot_rate(state + 0.025 * k1, torque)
    k3 = _acrobot_rate(state + 0.025 * k2, torque)
    k4 = _acrobot_rate(state + 0.05 * k3, torque)
    return state + 0.05 / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def _mountain_car(state: Array, push: Array) -> Array:
    """Next f32[2, B] (place, speed)."""
    place, speed = state
    speed = jnp.clip(speed + 0.0015 * push - 0.0025 * jnp.cos(3.0 * place), -0.07, 0.07)
    place = jnp.clip(place + speed, -1.2, 0.6)
    return jnp.stack([place, jnp.where(place <= -1.2, 0.0, speed)])


def _rollout(
    dynamics: Callable[[Array, Array], Array],
    act: Callable[[Tree, Array], Array],
    steps: int,
    ended: Callable[[Array], Array] | None = None,
) -> Callable[[Tree, Array], Tree]:
    """A rollout that returns the last state and the trajectory; resets to the start where ended."""

    def run(params: Tree, start: Array) -> Tree:
        def step(state: Array, _: None) -> tuple[Array, Tree]:
            action = act(params, state)
            after = dynamics(state, action)
            if ended is not None:
                after = jnp.where(ended(after), start, after)
            return after, (after, action)

        return lax.scan(step, start, length=steps)

    return run


def _smooth_policy(scale: float) -> Callable[[Tree, Array], Array]:
    def act(params: Tree, state: Array) -> Array:
        return scale * jnp.tanh(mlp(params, state.T, jnp.tanh)[:, 0])

    return act


def _linear(scale: float) -> Callable[[Array, Array], Array]:
    def act(gains: Array, state: Array) -> Array:
        return scale * jnp.tanh(gains @ state)

    return act


@CONTROL.program("cartpole_batch", "100 steps of 64 cart-poles under a linear policy, with resets", loops=True)
def _cartpole_batch() -> Built:
    def ended(state: Array) -> Array:
        return (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > math.radians(30.0))

    start = Draws(0).uniform(4, 64, low=-0.05, high=0.05)
    gains = np.array([0.1, 0.3, 2.0, 0.5], np.float32)
    return _rollout(_cartpole, _linear(10.0), 100, ended), (gains, start)


@CONTROL.program("cartpole_single_network", "1000 steps of one cart-pole under a two-layer network", loops=True)
def _cartpole_single_network() -> Built:
    draws = Draws(1)
    params = [(0.3 * w, 0.0 * b) for w, b in draws.layers(4, 16, 1)]
    return _rollout(_cartpole, _smooth_policy(3.0), 1000, lambda s: jnp.abs(s[2]) > 1.0), (
        params,
        draws.uniform(4, 1, low=-0.05, high=0.05),
    )


@CONTROL.program("cartpole_policy_gradient", "gradient of the balance cost through 60 steps of 16 cart-poles",
                 gradient=True, loops=True)  # fmt: skip
def _cartpole_policy_gradient() -> Built:
    def cost(gains: Array, start: Array) -> Tree:
        states = _rollout(_cartpole, _linear(5.0), 60)(gains, start)[1][0]
        return jnp.mean(states[:, 2] ** 2 + 0.1 * states[:, 0] ** 2)

    gains = np.array([0.2, 0.4, 3.0, 0.6], np.float32)
    return jax.value_and_grad(cost), (gains, Draws(2).uniform(4, 16, low=-0.05, high=0.05))


@CONTROL.program("pendulum_energy_swing", "1000 steps of 8 pendulums swung up by an energy rule", loops=True)
def _pendulum_energy_swing() -> Built:
    def act(gain: Array, state: Array) -> Array:
        energy = 0.5 * state[1] ** 2 - 15.0 * (1.0 - jnp.cos(state[0]))
        return 2.0 * jnp.tanh(gain * (20.0 - energy) * state[1])

    start = Draws(3).uniform(2, 8, low=-0.2, high=0.2)
    return _rollout(_pendulum, act, 1000), (np.float32(0.05), start)


@CONTROL.program("pendulum_cross_entropy", "planning: three rounds of 128 action sequences of 40 steps",
                 loops=True, chaotic=True)  # fmt: skip
def _pendulum_cross_entropy() -> Built:
    def plan(state: Array, noise: Array) -> Tree:
        def score(actions: Array) -> Array:
            def step(state: Array, action: Array) -> tuple[Array, Array]:
                state = _pendulum(state, jnp.clip(action, -2.0, 2.0))
                return state, (1.0 - jnp.cos(state[0])) + 0.1 * state[1] ** 2 + 0.001 * action**2

            start = jnp.broadcast_to(state[:, None], (2, actions.shape[1]))
            return jnp.sum(lax.scan(step, start, actions)[1], axis=0)

        def improve(carry: Tree, noise: Array) -> tuple[Tree, Array]:
            mean, spread = carry
            actions = mean[:, None] + spread[:, None] * noise
            costs = score(actions)
            weights = jax.nn.softmax(-costs)
            mean = actions @ weights
            spread = jnp.sqrt((actions - mean[:, None]) ** 2 @ weights + 1e-4)
            return (mean, spread), jnp.min(costs)

        start = (jnp.zeros(noise.shape[1]), jnp.ones(noise.shape[1]))
        return lax.scan(improve, start, noise)

    return plan, (np.array([3.0, 0.0], np.float32), Draws(4).normal(3, 40, 128))


@CONTROL.program("acrobot_rk4", "300 Runge-Kutta steps of one acrobot under a network, f32[4,1]", loops=True)
def _acrobot_rk4() -> Built:
    draws = Draws(5)
    start = draws.uniform(4, 1, low=-0.1, high=0.1)
    return _rollout(_acrobot, _smooth_policy(1.0), 300), (draws.layers(4, 12, 1), start)


@CONTROL.program("acrobot_sensitivity", "gradient of the tip height through 60 Euler steps of acrobots, batch 8",
                 gradient=True, loops=True)  # fmt: skip
def _acrobot_sensitivity() -> Built:
    def step(state: Array, torque: Array) -> Array:
        return state + 0.01 * _acrobot_rate(state, torque)

    def height(params: Tree, start: Array) -> Tree:
        state = _rollout(step, _smooth_policy(1.0), 60)(params, start)[0]
        return jnp.mean(-jnp.cos(state[0]) - jnp.cos(state[0] + state[1]))

    draws = Draws(6)
    return jax.value_and_grad(height), (draws.layers(4, 12, 1), draws.uniform(4, 8, low=-0.1, high=0.1))


@CONTROL.program("mountain_car_tiles", "600 steps of 32 mountain cars under an energy-pumping policy", loops=True)
def _mountain_car_tiles() -> Built:
    def act(gain: Array, state: Array) -> Array:
        return jnp.tanh(gain * state[1])

    start = np.stack([Draws(7).uniform(32, low=-0.6, high=-0.4), np.zeros(32, np.float32)])
    return _rollout(_mountain_car, act, 600, lambda s: s[0] >= 0.5), (np.float32(200.0), start)


@CONTROL.program("lqr_tracking", "Riccati recursion and rollout of a 4-state regulator, 500 steps", loops=True)
def _lqr_tracking() -> Built:
    draws = Draws(8)

    def solve(a: Array, b: Array, start: Array) -> Tree:
        def back(value: Array, _: None) -> tuple[Array, Array]:
            cross = b.T @ value @ a
            weight = 1.0 + (b.T @ value @ b)[0, 0]
            gain = cross / weight
            value = jnp.eye(4) + a.T @ value @ a - cross.T @ gain
            return value, gain

        _, gains = lax.scan(back, jnp.eye(4), length=500)

        def forward(state: Array, gain: Array) -> tuple[Array, Array]:
            state = (a - b @ gain) @ state
            return state, state

        return lax.scan(forward, start, gains[::-1]), gains

    a = np.eye(4, dtype=np.float32) + draws.normal(4, 4, scale=0.05)
    return solve, (a, draws.normal(4, 1, scale=0.3), draws.normal(4))


@RL_UPDATE.program("ppo_update_grad", "advantages by a reverse scan, clipped loss and gradient, f32[64,8] steps",
                   gradient=True, loops=True)  # fmt: skip
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


@RL_UPDATE.program("dqn_double_grad", "double Q-learning loss with target network and priorities: gradient", gradient=True)
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

    taken = (draws.integers(4, 128), draws.normal(128), draws.uniform(128).round(), draws.uniform(128))
    networks = (draws.layers(8, 64, 64, 4), draws.layers(8, 64, 64, 4))
    args = (*networks, draws.normal(128, 8), draws.normal(128, 8), taken)
    return jax.value_and_grad(loss, has_aux=True), args


@RL_UPDATE.program("soft_actor_critic_step", "actor, twin critics and temperature losses with gradients, batch 64", gradient=True)
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

    args = (draws.normal(64, 6), np.tanh(draws.normal(64, 2)), draws.normal(64), draws.normal(64, 2))
    return jax.value_and_grad(loss), (params, *args)


@RL_UPDATE.program("q_learning_grid", "400 tabular updates of f32[64,4] along a fixed walk", loops=True)
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


@RL_UPDATE.program("value_iteration", "60 sweeps over a random decision process of 96 states, 4 actions", loops=True)
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


@RL_UPDATE.program("v_trace_returns", "V-trace targets and policy-gradient weights, f32[300,64]", loops=True)
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

        change = lax.scan(back, jnp.zeros(64), (gaps, trace), reverse=True)[1]
        goal = values + change
        shifted = jnp.concatenate([goal[1:], values[-1:]])
        return goal, rho * (rewards + 0.99 * shifted - values)

    return targets, tuple(draws.normal(300, 64) for _ in range(4))
