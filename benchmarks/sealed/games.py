"""Games: boards played at random and solved exactly, and learning to play by reward."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.sealed.common import Program, integers, normal, uniform

__all__ = ["WORKLOADS"]


def _merge_row(row: Any) -> tuple[Any, Any]:
    """A row of four tiles slid to the left, equal neighbours joined once, and the points."""
    row = row[jnp.argsort(row == 0, stable=True)]

    def join(i: Any, carry: Any) -> Any:
        row, points = carry
        same = (row[i] == row[i + 1]) & (row[i] > 0)
        points = points + jnp.where(same, 2 ** (row[i] + 1), 0)
        row = row.at[i].add(same.astype(row.dtype))
        row = row.at[i + 1].set(jnp.where(same, 0, row[i + 1]))
        return row, points

    row, points = lax.fori_loop(0, 3, join, (row, jnp.int32(0)))
    return row[jnp.argsort(row == 0, stable=True)], points


def _merge_move(board: Any, action: Any, spawn: Any) -> Any:
    def left(board: Any) -> Any:
        return jax.vmap(_merge_row)(board)

    def turned(quarter: int) -> Callable[[Any], Any]:
        def move(board: Any) -> Any:
            board, points = left(jnp.rot90(board, quarter))
            return jnp.rot90(board, -quarter), points

        return move

    new, points = lax.switch(action, [turned(k) for k in range(4)], board)
    moved = jnp.any(new != board)
    empty = (new == 0).reshape(-1)
    rank = jnp.cumsum(empty) - 1
    chosen = jnp.floor(spawn * empty.sum()).astype(rank.dtype)
    tile = (empty & (rank == chosen)).astype(new.dtype).reshape(4, 4)
    return jnp.where(moved, new + tile, new), jnp.where(moved, points.sum(), 0), moved


def merging_tiles() -> Program:
    """One move in each of many games of sliding and merging tiles."""

    def fn(boards: Any, actions: Any, spawns: Any) -> Any:
        boards, points, moved = jax.vmap(_merge_move)(boards, actions, spawns)
        return boards, points, moved, boards.max((1, 2))

    boards = jnp.maximum(integers(1, 6, 32, 4, 4) - 1, 0)
    return fn, (boards, integers(2, 4, 32), uniform(3, 32))


def advantage_estimates() -> Program:
    """Generalised advantages of several environments, normalised, and the clipped policy loss."""

    def fn(data: dict[str, Any], log_chances: Any, gamma: Any, smoothing: Any) -> Any:
        def back(carry: Any, inputs: Any) -> Any:
            advantage, next_value = carry
            reward, value, done = inputs
            alive = 1.0 - done
            delta = reward + gamma * next_value * alive - value
            advantage = delta + gamma * smoothing * alive * advantage
            return (advantage, value), advantage

        last = data["last_value"]
        inputs = (data["reward"], data["value"], data["done"])
        _, advantages = lax.scan(back, (jnp.zeros_like(last), last), inputs, reverse=True)
        targets = advantages + data["value"]
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = jnp.exp(log_chances - data["log_chance"])
        clipped = jnp.clip(ratio, 0.8, 1.2)
        loss = -jnp.mean(jnp.minimum(ratio * scaled, clipped * scaled))
        return loss, scaled, targets

    steps, games = 128, 16
    old = -1 + 0.3 * normal(4, steps, games)
    data = {
        "reward": normal(5, steps, games),
        "value": normal(6, steps, games),
        "done": (uniform(7, steps, games) < 0.03).astype(jnp.float32),
        "log_chance": old,
        "last_value": normal(8, games),
    }
    log_chances = old + 0.1 * normal(9, steps, games)
    return fn, (data, log_chances, jnp.asarray(0.99), jnp.asarray(0.95))


LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def noughts_and_crosses() -> Program:
    """Values of all positions of noughts and crosses, solved backwards from the full boards."""

    def fn(boards: Any, scores: Any, patience: Any) -> Any:
        powers = 3 ** jnp.arange(9)
        counts = jnp.sum(boards > 0, axis=1)
        player = 1 + counts % 2
        lines = boards[:, jnp.array(LINES)]
        won = jnp.any(jnp.all(lines == 3 - player[:, None, None], axis=2), axis=1)
        free = boards == 0
        after = jnp.arange(boards.shape[0])[:, None] + player[:, None] * powers[None, :]
        after = jnp.where(free, after, 0)
        full = counts == 9

        def settle(k: Any, value: Any) -> Any:
            replies = jnp.where(free, -patience * value[after], -jnp.inf)
            best = jnp.max(replies, axis=1)
            known = jnp.where(won, -scores[0], jnp.where(full, scores[1], best))
            return jnp.where(counts == 9 - k, known, value)

        value = lax.fori_loop(0, 10, settle, jnp.zeros(boards.shape[0]))
        return value, jnp.where(free[0], -value[after[0]], 0.0)

    boards = np.array(list(itertools.product(range(3), repeat=9)), np.int32)[:, ::-1]
    return fn, (jnp.asarray(boards), jnp.asarray([1.0, 0.1]), jnp.asarray(0.9))


def _four_in_line(board: Any) -> Any:
    """Whether a board of booleans has four in a line."""
    across = board[:, :-3] & board[:, 1:-2] & board[:, 2:-1] & board[:, 3:]
    down = board[:-3] & board[1:-2] & board[2:-1] & board[3:]
    falling = board[:-3, :-3] & board[1:-2, 1:-2] & board[2:-1, 2:-1] & board[3:, 3:]
    rising = board[3:, :-3] & board[2:-1, 1:-2] & board[1:-2, 2:-1] & board[:-3, 3:]
    return across.any() | down.any() | falling.any() | rising.any()


def _four_playout(key: Any, first: Any) -> Any:
    """The winner (one, two, or nobody) of a game played at random after a first move."""

    def play(carry: Any, column: Any) -> Any:
        key, board, heights, turn, _ = carry
        row = heights[column]
        board = board.at[turn % 2, row, column].set(True)
        heights = heights.at[column].add(1)
        won = _four_in_line(board[turn % 2])
        return key, board, heights, turn + 1, jnp.where(won, 1 + turn % 2, 0)

    def step(carry: Any) -> Any:
        key, pick = jax.random.split(carry[0])
        logits = jnp.where(carry[2] < 6, 0.0, -1e9)
        return play((key, *carry[1:]), jax.random.categorical(pick, logits))

    start = (key, jnp.zeros((2, 6, 7), bool), jnp.zeros(7, jnp.int32), jnp.int32(0), jnp.int32(0))
    *_, turns, winner = lax.while_loop(
        lambda c: (c[4] == 0) & (c[3] < 42), step, play(start, first)
    )
    return winner, turns


def four_playouts() -> Program:
    """Random playouts of four-in-a-line, to rate each first move."""
    playouts = 128

    def fn(key: Any, columns: Any) -> Any:
        keys = jax.random.split(key, (columns.shape[0], playouts))
        over_games = jax.vmap(_four_playout, (0, None))
        winners, turns = jax.vmap(over_games)(keys, columns)
        rating = jnp.mean(winners == 1, 1) - jnp.mean(winners == 2, 1)
        return rating, turns.mean(1)

    return fn, (jax.random.PRNGKey(2), jnp.arange(7))


def _cart_step(state: Any, push: Any) -> Any:
    """A pole on a cart after a push, by a step of Euler's method."""
    _, speed, angle, spin = state
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    pull = (push + 0.05 * spin**2 * sine) / 1.1
    twist = (9.8 * sine - cosine * pull) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    acceleration = pull - 0.05 * twist * cosine / 1.1
    change = jnp.stack([speed, acceleration, spin, twist])
    return state + 0.02 * change


def _policy(params: dict[str, Any], state: Any) -> Any:
    hidden = jnp.tanh(state @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def _play_cart(params: dict[str, Any], key: Any, state: Any, steps: int) -> Any:
    def step(carry: Any, key: Any) -> Any:
        state, alive = carry
        action = jax.random.bernoulli(key, jax.nn.sigmoid(_policy(params, state)[0]))
        new = _cart_step(state, jnp.where(action, 10.0, -10.0))
        standing = alive & (jnp.abs(new[2]) < 0.21) & (jnp.abs(new[0]) < 2.4)
        return (new, standing), (state, action, alive.astype(jnp.float32))

    return lax.scan(step, (state, jnp.array(True)), jax.random.split(key, steps))[1]


def cart_policy() -> Program:
    """Episodes of balancing a pole, then a policy gradient step with a baseline."""
    episodes, steps = 64, 160

    def fn(params: dict[str, Any], key: Any, starts: Any, rate: Any) -> Any:
        keys = jax.random.split(key, episodes)
        played = jax.vmap(lambda k, s: _play_cart(params, k, s, steps))(keys, starts)
        states, actions, rewards = played
        returns = jnp.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
        gain = (returns - returns.mean(0)) / 20 * rewards

        def loss(params: dict[str, Any]) -> Any:
            logits = _policy(params, states)[..., 0]
            chance = jax.nn.log_sigmoid(jnp.where(actions, logits, -logits))
            return -jnp.mean(chance * gain)

        value, slopes = jax.value_and_grad(loss)(params)
        params = jax.tree.map(lambda p, g: p - rate * g, params, slopes)
        return params, value, rewards.sum(1).mean()

    params = {
        "w1": 0.5 * normal(12, 4, 32),
        "b1": jnp.zeros(32),
        "w2": 0.2 * normal(13, 32, 1),
        "b2": jnp.zeros(1),
    }
    return fn, (params, jax.random.PRNGKey(3), 0.05 * normal(14, episodes, 4), jnp.asarray(0.1))


WORKLOADS: dict[str, Callable[[], Program]] = {
    "merging-tiles": merging_tiles,
    "advantage-estimates": advantage_estimates,
    "noughts-and-crosses": noughts_and_crosses,
    "four-playouts": four_playouts,
    "cart-policy": cart_policy,
}
