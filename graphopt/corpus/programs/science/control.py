"""Classic-control environments as scans."""

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
FAMILIES = (CONTROL,)


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


@CONTROL.program(
    "cartpole_batch", "100 steps of 64 cart-poles under a linear policy, with resets", loops=True
)
def _cartpole_batch() -> Built:
    def ended(state: Array) -> Array:
        return (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > math.radians(30.0))

    start = Draws(0).uniform(4, 64, low=-0.05, high=0.05)
    gains = np.array([0.1, 0.3, 2.0, 0.5], np.float32)
    return _rollout(_cartpole, _linear(10.0), 100, ended), (gains, start)


@CONTROL.program(
    "cartpole_single_network", "1000 steps of one cart-pole under a two-layer network", loops=True
)
def _cartpole_single_network() -> Built:
    draws = Draws(1)
    params = [(0.3 * w, 0.0 * b) for w, b in draws.layers(4, 16, 1)]
    return _rollout(_cartpole, _smooth_policy(3.0), 1000, lambda s: jnp.abs(s[2]) > 1.0), (
        params,
        draws.uniform(4, 1, low=-0.05, high=0.05),
    )


@CONTROL.program(
    "cartpole_policy_gradient",
    "gradient of the balance cost through 60 steps of 16 cart-poles",
    gradient=True,
    loops=True,
)
def _cartpole_policy_gradient() -> Built:
    def cost(gains: Array, start: Array) -> Tree:
        states = _rollout(_cartpole, _linear(5.0), 60)(gains, start)[1][0]
        return jnp.mean(states[:, 2] ** 2 + 0.1 * states[:, 0] ** 2)

    gains = np.array([0.2, 0.4, 3.0, 0.6], np.float32)
    return jax.value_and_grad(cost), (gains, Draws(2).uniform(4, 16, low=-0.05, high=0.05))


@CONTROL.program(
    "pendulum_energy_swing", "1000 steps of 8 pendulums swung up by an energy rule", loops=True
)
def _pendulum_energy_swing() -> Built:
    def act(gain: Array, state: Array) -> Array:
        energy = 0.5 * state[1] ** 2 - 15.0 * (1.0 - jnp.cos(state[0]))
        return 2.0 * jnp.tanh(gain * (20.0 - energy) * state[1])

    start = Draws(3).uniform(2, 8, low=-0.2, high=0.2)
    return _rollout(_pendulum, act, 1000), (np.float32(0.05), start)


@CONTROL.program(
    "pendulum_cross_entropy",
    "planning: three rounds of 128 action sequences of 40 steps",
    loops=True,
    chaotic=True,
)
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


@CONTROL.program(
    "acrobot_rk4", "300 Runge-Kutta steps of one acrobot under a network, f32[4,1]", loops=True
)
def _acrobot_rk4() -> Built:
    draws = Draws(5)
    start = draws.uniform(4, 1, low=-0.1, high=0.1)
    return _rollout(_acrobot, _smooth_policy(1.0), 300), (draws.layers(4, 12, 1), start)


@CONTROL.program(
    "acrobot_sensitivity",
    "gradient of the tip height through 60 Euler steps of 8 acrobots",
    gradient=True,
    loops=True,
)
def _acrobot_sensitivity() -> Built:
    def step(state: Array, torque: Array) -> Array:
        return state + 0.01 * _acrobot_rate(state, torque)

    def height(params: Tree, start: Array) -> Tree:
        state = _rollout(step, _smooth_policy(1.0), 60)(params, start)[0]
        return jnp.mean(-jnp.cos(state[0]) - jnp.cos(state[0] + state[1]))

    draws = Draws(6)
    return jax.value_and_grad(height), (
        draws.layers(4, 12, 1),
        draws.uniform(4, 8, low=-0.1, high=0.1),
    )


@CONTROL.program(
    "mountain_car_tiles", "600 steps of 32 mountain cars under an energy-pumping policy", loops=True
)
def _mountain_car_tiles() -> Built:
    def act(gain: Array, state: Array) -> Array:
        return jnp.tanh(gain * state[1])

    start = np.stack([Draws(7).uniform(32, low=-0.6, high=-0.4), np.zeros(32, np.float32)])
    return _rollout(_mountain_car, act, 600, lambda s: s[0] >= 0.5), (np.float32(200.0), start)


@CONTROL.program(
    "lqr_tracking", "Riccati recursion and rollout of a 4-state regulator, 2000 steps", loops=True
)
def _lqr_tracking() -> Built:
    draws = Draws(8)

    def solve(a: Array, b: Array, start: Array) -> Tree:
        def back(value: Array, _: None) -> tuple[Array, Array]:
            cross = b.T @ value @ a
            weight = 1.0 + (b.T @ value @ b)[0, 0]
            gain = cross / weight
            value = jnp.eye(4) + a.T @ value @ a - cross.T @ gain
            return value, gain

        _, gains = lax.scan(back, jnp.eye(4), length=2000)

        def forward(state: Array, gain: Array) -> tuple[Array, Array]:
            state = (a - b @ gain) @ state
            return state, state

        return lax.scan(forward, start, gains[::-1]), gains

    a = np.eye(4, dtype=np.float32) + draws.normal(4, 4, scale=0.05)
    return solve, (a, draws.normal(4, 1, scale=0.3), draws.normal(4))
