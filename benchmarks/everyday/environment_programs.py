"""Environments of reinforcement learning, many at once, and games."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from benchmarks.everyday.common import Program, Sizes, a_key, normal


def cartpole(size: int, steps: int) -> Program:
    """Cart and pole with a linear policy, reset where an episode ends."""

    def reset(key):
        return random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.int32(0)

    def env_step(key, state, action):
        (x, xd, th, thd), t = state
        force = jnp.where(action == 1, 10.0, -10.0)
        cos, sin = jnp.cos(th), jnp.sin(th)
        temp = (force + 0.05 * thd**2 * sin) / 1.1
        thacc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        xacc = temp - 0.05 * thacc * cos / 1.1
        obs = jnp.array([x + 0.02 * xd, xd + 0.02 * xacc, th + 0.02 * thd, thd + 0.02 * thacc])
        done = (jnp.abs(obs[0]) > 2.4) | (jnp.abs(obs[2]) > 0.2095) | (t >= 500)
        fresh = reset(key)
        state = jax.tree.map(lambda a, b: lax.select(done, a, b), fresh, (obs, t + 1))
        return state, 1.0 - done, done

    def run(key: jax.Array, w: jax.Array) -> Any:
        key, used = random.split(key)
        states = jax.vmap(reset)(random.split(used, size))

        def step(carry, _):
            key, states = carry
            key, ka, kr = random.split(key, 3)
            actions = random.bernoulli(ka, jax.nn.sigmoid(states[0] @ w)).astype(jnp.int32)
            states, reward, done = jax.vmap(env_step)(random.split(kr, size), states, actions)
            return (key, states), (reward.sum(), done.sum())

        return lax.scan(step, (key, states), None, length=steps)[1]

    return run, (a_key(), jnp.array([0.1, 0.3, 3.0, 1.0]))


def mountain_car(size: int, steps: int) -> Program:
    """Mountain car pushed along its velocity with some noise."""

    def run(key: jax.Array, pos: jax.Array) -> Any:
        def step(carry, key):
            pos, vel, t = carry
            k1, k2 = random.split(key)
            noise = random.randint(k1, pos.shape, 0, 3)
            action = jnp.where(
                random.uniform(k2, pos.shape) < 0.2, noise, 1 + jnp.sign(vel).astype(int)
            )
            vel = jnp.clip(vel + (action - 1) * 0.001 - 0.0025 * jnp.cos(3 * pos), -0.07, 0.07)
            pos = jnp.clip(pos + vel, -1.2, 0.6)
            vel = jnp.where((pos <= -1.2) & (vel < 0), 0.0, vel)
            done = (pos >= 0.5) | (t >= 200)
            pos = jnp.where(done, -0.5, pos)
            vel = jnp.where(done, 0.0, vel)
            return (pos, vel, jnp.where(done, 0, t + 1)), done.mean()

        start = (pos, jnp.zeros(size), jnp.zeros(size, jnp.int32))
        return lax.scan(step, start, random.split(key, steps))

    return run, (a_key(), 0.05 * normal(size) - 0.5)


def acrobot(size: int, steps: int) -> Program:
    """Acrobots with random torques, Runge-Kutta, angles wrapped by `%`."""

    def slope(s, torque):
        t1, t2, w1, w2 = s
        d1 = 0.25 + (1 + 0.25 + jnp.cos(t2)) + 2
        d2 = 0.25 + 0.5 * jnp.cos(t2) + 1
        phi2 = 0.5 * 9.8 * jnp.cos(t1 + t2 - jnp.pi / 2)
        phi1 = -0.5 * w2**2 * jnp.sin(t2) - w2 * w1 * jnp.sin(t2)
        phi1 = phi1 + 1.5 * 9.8 * jnp.cos(t1 - jnp.pi / 2) + phi2
        a2 = (torque + d2 / d1 * phi1 - 0.5 * w1**2 * jnp.sin(t2) - phi2) / (1.25 - d2**2 / d1)
        return jnp.array([w1, w2, -(d2 * a2 + phi1) / d1, a2])

    def env_step(s, torque):
        k1 = slope(s, torque)
        k2 = slope(s + 0.1 * k1, torque)
        k3 = slope(s + 0.1 * k2, torque)
        k4 = slope(s + 0.2 * k3, torque)
        s = s + 0.2 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = (s[:2] + jnp.pi) % (2 * jnp.pi) - jnp.pi
        w = jnp.clip(s[2:], jnp.array([-4, -9]) * jnp.pi, jnp.array([4, 9]) * jnp.pi)
        s = jnp.concatenate([angles, w])
        done = -jnp.cos(s[0]) - jnp.cos(s[1] + s[0]) > 1.0
        return jnp.where(done, jnp.zeros(4), s), done

    def run(key: jax.Array, s: jax.Array) -> Any:
        def step(s, key):
            torque = random.randint(key, (size,), -1, 2).astype(jnp.float32)
            s, done = jax.vmap(env_step)(s, torque)
            return s, done.sum()

        return lax.scan(step, s, random.split(key, steps))

    return run, (a_key(), 0.1 * normal(size, 4))


def snake(size: int, steps: int) -> Program:
    """Snakes on boards: a board keeps how long each cell stays occupied."""
    side = 10

    def reset(key):
        board = jnp.zeros((side, side), jnp.int32).at[5, 5].set(3).at[5, 4].set(2).at[5, 3].set(1)
        return board, jnp.array([5, 5]), random.randint(key, (2,), 0, side), jnp.int32(3)

    def env_step(key, state, action):
        board, head, food, length = state
        moves = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
        head = head + moves[action]
        inside = jnp.all((head >= 0) & (head < side))
        cell = jnp.clip(head, 0, side - 1)
        dead = ~inside | (board[cell[0], cell[1]] > 1)
        ate = jnp.all(cell == food)
        length = length + ate
        board = jnp.where(ate, board, jnp.maximum(board - 1, 0))
        board = board.at[cell[0], cell[1]].set(length)
        kf, kr = random.split(key)
        free = jnp.where(board.reshape(-1) == 0, 0.0, -jnp.inf)
        place = random.categorical(kf, free)
        food = jnp.where(ate, jnp.array([place // side, place % side]), food)
        new = (board, cell, food, length)
        state = lax.cond(dead, lambda: reset(kr), lambda: new)
        return state, ate.astype(jnp.float32) - dead

    def run(key: jax.Array) -> Any:
        states = jax.vmap(reset)(random.split(key, size))

        def step(carry, key):
            ka, ke = random.split(key)
            _, head, food, _ = carry
            gap = food - head
            greedy = jnp.where(
                gap[:, 1] != 0, jnp.where(gap[:, 1] > 0, 0, 2), jnp.where(gap[:, 0] > 0, 1, 3)
            )
            explore = random.uniform(ka, (size,)) < 0.1
            action = jnp.where(explore, (greedy + 1) % 4, greedy)
            carry, reward = jax.vmap(env_step)(random.split(ke, size), carry, action)
            return carry, reward.mean()

        return lax.scan(step, states, random.split(key, steps))

    return run, (a_key(),)


def tic_tac_toe(size: int, _: int) -> Program:
    """Random games to their end, and how often each first move wins."""
    lines = np.array(
        [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]
    )

    def game(key: jax.Array) -> Any:
        def going(state):
            _, _, winner, turn, _ = state
            return (winner == 0) & (turn < 9)

        def move(state):
            board, key, _, turn, first = state
            key, used = random.split(key)
            place = random.categorical(used, jnp.where(board == 0, 0.0, -jnp.inf))
            player = jnp.where(turn % 2 == 0, 1, -1)
            board = board.at[place].set(player)
            won = jnp.any(jnp.abs(board[lines].sum(-1)) == 3)
            return (
                board,
                key,
                jnp.where(won, player, 0),
                turn + 1,
                jnp.where(turn == 0, place, first),
            )

        start = (jnp.zeros(9, jnp.int32), key, 0, 0, 0)
        _, _, winner, turns, first = lax.while_loop(going, move, start)
        return winner, turns, first

    def run(key: jax.Array) -> Any:
        winner, turns, first = jax.vmap(game)(random.split(key, size))
        wins = jnp.zeros(9).at[first].add(winner == 1)
        return wins / jnp.maximum(jnp.bincount(first, length=9), 1), turns.mean()

    return run, (a_key(),)


SIZES: Final[Sizes] = {
    ("cartpole", cartpole): ((8, 500), (128, 200), (2048, 50)),
    ("mountain-car", mountain_car): ((16, 500), (1000, 200), (10_000, 30)),
    ("acrobot", acrobot): ((16, 300), (200, 200), (3000, 30)),
    ("snake", snake): ((8, 100), (64, 40), (256, 20)),
    ("tic-tac-toe", tic_tac_toe): ((64, 0), (512, 0), (8192, 0)),
}
