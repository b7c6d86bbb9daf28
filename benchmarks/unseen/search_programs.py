"""Searching and decoding: alignment of sequences, a game tree, a code's parity checks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.third_party.common import Builder, Program

GAP_OPEN, GAP_EXTEND = 10, 1


def _alignment_cell(carry: Any, inputs: Any) -> Any:
    h_left, f_left, h_diagonal = carry
    score, h_up, e_up = inputs
    e = jnp.maximum(h_up - GAP_OPEN, e_up - GAP_EXTEND)
    f = jnp.maximum(h_left - GAP_OPEN, f_left - GAP_EXTEND)
    h = jnp.maximum(jnp.maximum(0, h_diagonal + score), jnp.maximum(e, f))
    return (h, f, h_up), (h, e)


def _align(query: jax.Array, target: jax.Array, substitution: jax.Array) -> Any:
    n = target.shape[0]

    def row(carry: Any, letter: jax.Array) -> Any:
        h_before, e_before, best = carry
        scores = substitution[letter][target]
        zero = jnp.int32(0)
        init = (zero, jnp.int32(-1000), zero)
        _, (h, e) = lax.scan(_alignment_cell, init, (scores, h_before, e_before))
        best = jnp.maximum(best, jnp.max(h))
        return (h, e, best), jnp.argmax(h)

    init = (jnp.zeros(n, jnp.int32), jnp.full(n, -1000, jnp.int32), jnp.int32(0))
    (_, _, best), ends = lax.scan(row, init, query)
    return best, ends


def smith_waterman_affine() -> Program:
    """Local alignment with affine gaps, cell by cell, by vmap over pairs of sequences."""
    k1, k2, k3 = jax.random.split(jax.random.PRNGKey(5), 3)
    query = jax.random.randint(k1, (12, 40), 0, 20)
    other = jax.random.randint(k3, (12, 40), 0, 20)
    target = jnp.where(jax.random.bernoulli(k2, 0.6, (12, 40)), query, other)
    rng = np.random.default_rng(62)
    substitution = rng.integers(-4, 2, (20, 20))
    substitution = np.minimum(substitution, substitution.T)
    np.fill_diagonal(substitution, rng.integers(4, 11, 20))
    align = jax.vmap(_align, in_axes=(0, 0, None))
    return align, (query, target, jnp.asarray(substitution, jnp.int32))


class _Tree(NamedTuple):
    children: jax.Array
    parent: jax.Array
    visits: jax.Array
    value: jax.Array
    size: jax.Array


def _winner(lines: jax.Array, board: jax.Array) -> jax.Array:
    s = jnp.sum(board[lines], axis=1)
    return jnp.where(jnp.any(s == 3), 1, jnp.where(jnp.any(s == -3), -1, 0))


def _terminal(lines: jax.Array, board: jax.Array) -> jax.Array:
    return (_winner(lines, board) != 0) | jnp.all(board != 0)


def _best_action(tree: _Tree, node: jax.Array, board: jax.Array) -> jax.Array:
    children = tree.children[node]
    visits = tree.visits[children]
    mean = jnp.where(visits > 0, tree.value[children] / jnp.maximum(visits, 1), 0.0)
    bonus = 1.4 * jnp.sqrt(jnp.log(tree.visits[node] + 1.0) / (visits + 1e-3))
    score = jnp.where(children >= 0, mean + bonus, 1e3)
    return jnp.argmax(jnp.where(board == 0, score, -jnp.inf))


def _select(lines: jax.Array, tree: _Tree, board: jax.Array, player: jax.Array) -> Any:
    """Walk down to a leaf: its node, board, player to move, and the action that leaves the tree."""

    def down(state: Any) -> Any:
        node, board, player, _, _ = state
        action = _best_action(tree, node, board)
        child = tree.children[node, action]
        new = child < 0
        board = board.at[action].set(player)
        node = jnp.where(new, node, child)
        stop = new | _terminal(lines, board)
        return node, board, -player, jnp.where(new, action, -1), stop

    init = (jnp.int32(0), board, player, jnp.int32(-1), _terminal(lines, board))
    return lax.while_loop(lambda state: ~state[4], down, init)[:4]


def _expand(tree: _Tree, node: jax.Array, action: jax.Array) -> tuple[_Tree, jax.Array]:
    new = tree.size
    children = tree.children.at[node, action].set(new)
    parent = tree.parent.at[new].set(node)
    return tree._replace(children=children, parent=parent, size=new + 1), new


def _rollout(lines: jax.Array, board: jax.Array, player: jax.Array, key: jax.Array) -> jax.Array:
    def move(state: Any) -> Any:
        board, player, key = state
        key, k = jax.random.split(key)
        logits = jnp.where(board == 0, 0.0, -1e9)
        action = jax.random.categorical(k, logits)
        return board.at[action].set(player), -player, key

    init = (board, player, key)
    board, _, _ = lax.while_loop(lambda state: ~_terminal(lines, state[0]), move, init)
    return _winner(lines, board)


def _backup(tree: _Tree, node: jax.Array, reward: jax.Array, player: jax.Array) -> Any:
    def up(state: Any) -> Any:
        node, tree, mover = state
        visits = tree.visits.at[node].add(1)
        value = tree.value.at[node].add(reward * mover)
        return tree.parent[node], tree._replace(visits=visits, value=value), -mover

    # A node's value is seen by the side that moved there, not by the player to move at it.
    return lax.while_loop(lambda state: state[0] >= 0, up, (node, tree, -player))[1]


def mcts_tictactoe() -> Program:
    """Monte Carlo tree search of tic-tac-toe, with the tree in arrays."""
    n_sim = 200
    lines = jnp.array(
        [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]
    )

    def search(board: jax.Array, player: jax.Array, key: jax.Array) -> Any:
        m = n_sim + 1
        children, parent = jnp.full((m, 9), -1, jnp.int32), jnp.full(m, -1, jnp.int32)
        visits, value = jnp.zeros(m, jnp.int32), jnp.zeros(m, jnp.int32)
        tree = _Tree(children, parent, visits, value, jnp.int32(1))

        def simulate(tree: _Tree, key: jax.Array) -> Any:
            node, leaf, to_move, action = _select(lines, tree, board, player)
            tree, node = lax.cond(
                action >= 0, lambda: _expand(tree, node, action), lambda: (tree, node)
            )
            reward = _rollout(lines, leaf, to_move, key)
            return _backup(tree, node, reward, to_move), reward

        tree, rewards = lax.scan(simulate, tree, jax.random.split(key, n_sim))
        children = tree.children[0]
        counts = jnp.where(children >= 0, tree.visits[children], 0)
        return jnp.argmax(counts), counts, jnp.mean(rewards.astype(jnp.float32)), tree.size

    board = jnp.array([1, 0, 0, 0, -1, 0, 0, 0, 0], jnp.int32)
    return search, (board, jnp.int32(1), jax.random.PRNGKey(9))


def _parity_checks(bits: int, per_bit: int, per_check: int) -> np.ndarray[Any, Any]:
    """Bits of every check of a random regular code."""
    rng = np.random.default_rng(96)
    checks = bits * per_bit // per_check
    table = rng.permutation(np.repeat(np.arange(bits), per_bit)).reshape(checks, per_check)
    # No check may read a bit twice: swaps with other checks remove double edges.
    while bad := [i for i in range(checks) if len(set(table[i])) < per_check]:
        i, j = bad[0], rng.integers(checks)
        a, b = rng.integers(per_check, size=2)
        table[i, a], table[j, b] = table[j, b], table[i, a]
    return table


def _decode(table: jax.Array, llr: jax.Array) -> Any:
    """Bits of a received word, given the logarithm of their odds, and the iterations it took."""
    m, per_check = table.shape

    def posterior(messages: jax.Array) -> jax.Array:
        return llr + jnp.zeros(llr.shape[0]).at[table].add(messages)

    def going(state: Any) -> Any:
        _, bits, it = state
        return (it < 40) & ~jnp.all(jnp.sum(bits[table], axis=1) % 2 == 0)

    def iteration(state: Any) -> Any:
        messages, _, it = state
        to_checks = posterior(messages)[table] - messages
        sign = jnp.where(to_checks < 0, -1.0, 1.0)
        size = jnp.abs(to_checks)
        k = jnp.argmin(size, axis=1)
        rows = jnp.arange(m)
        least = size[rows, k]
        second = jnp.min(size.at[rows, k].set(jnp.inf), axis=1)
        smallest = jnp.arange(per_check) == k[:, None]
        others = jnp.where(smallest, second[:, None], least[:, None])
        messages = 0.8 * jnp.prod(sign, axis=1, keepdims=True) * sign * others
        bits = (posterior(messages) < 0).astype(jnp.int32)
        return messages, bits, it + 1

    init = (jnp.zeros((m, per_check)), (llr < 0).astype(jnp.int32), jnp.int32(0))
    _, bits, it = lax.while_loop(going, iteration, init)
    return bits, it


def ldpc_min_sum() -> Program:
    """Min-sum decoding of a low-density parity-check code until it agrees, by vmap over words."""
    bits, sigma = 384, 0.72
    decode = partial(_decode, jnp.asarray(_parity_checks(bits, 3, 6)))
    # The word that was sent is all zeros.
    received = 1.0 + sigma * jax.random.normal(jax.random.PRNGKey(1), (16, bits))
    return jax.vmap(decode), (2.0 * received / sigma**2,)


WORKLOADS: dict[str, Builder] = {
    "smith-waterman-affine": smith_waterman_affine,
    "mcts-tictactoe": mcts_tictactoe,
    "ldpc-min-sum": ldpc_min_sum,
}
