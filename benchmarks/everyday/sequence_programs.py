"""Dynamic programs and models of sequences."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from benchmarks.everyday.common import Program, Sizes, integers, normal


def _hmm(states: int, length: int, symbols: int = 12) -> tuple[Any, ...]:
    trans = jax.nn.log_softmax(normal(states, states, seed=1))
    emit = jax.nn.log_softmax(normal(states, symbols, seed=2))
    return jax.nn.log_softmax(normal(states)), trans, emit, integers(symbols, length, seed=3)


def viterbi(size: int, steps: int) -> Program:
    """Best path of a hidden Markov model, with backtracking."""

    def run(prior: jax.Array, trans: jax.Array, emit: jax.Array, obs: jax.Array) -> Any:
        def forward(score, o):
            scores = score[:, None] + trans
            return jnp.max(scores, 0) + emit[:, o], jnp.argmax(scores, 0)

        score, pointers = lax.scan(forward, prior + emit[:, obs[0]], obs[1:])
        last = jnp.argmax(score)

        def backward(state, pointer):
            previous = pointer[state]
            return previous, previous

        _, path = lax.scan(backward, last, pointers, reverse=True)
        return jnp.append(path, last), score[last]

    return run, _hmm(size, steps)


def forward_backward(size: int, steps: int) -> Program:
    """Posterior of each state of a hidden Markov model."""

    def run(prior: jax.Array, trans: jax.Array, emit: jax.Array, obs: jax.Array) -> Any:
        logb = emit.T[obs]

        def forward(alpha, b):
            alpha = logsumexp(alpha[:, None] + trans, axis=0) + b
            return alpha, alpha

        def backward(beta, b):
            beta = logsumexp(trans + b + beta, axis=1)
            return beta, beta

        first = prior + logb[0]
        _, alphas = lax.scan(forward, first, logb[1:])
        _, betas = lax.scan(backward, jnp.zeros_like(prior), logb[1:], reverse=True)
        alphas = jnp.concatenate([first[None], alphas])
        betas = jnp.concatenate([betas, jnp.zeros_like(prior)[None]])
        return jax.nn.softmax(alphas + betas, axis=-1), logsumexp(alphas[-1])

    return run, _hmm(size, steps)


def hmm_training(size: int, steps: int) -> Program:
    """A gradient step of a hidden Markov model on a batch of sequences."""

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        prior = jax.nn.log_softmax(params["prior"])
        trans = jax.nn.log_softmax(params["trans"], axis=1)
        emit = jax.nn.log_softmax(params["emit"], axis=1)

        def likelihood(obs):
            def step(alpha, o):
                return logsumexp(alpha[:, None] + trans, axis=0) + emit[:, o], None

            return logsumexp(lax.scan(step, prior + emit[:, obs[0]], obs[1:])[0])

        return -jax.vmap(likelihood)(batch).mean()

    def run(params: Any, batch: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, batch)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    prior, trans, emit, _ = _hmm(size, 2)
    return run, ({"prior": prior, "trans": trans, "emit": emit}, integers(12, 8, steps))


def ctc(size: int, steps: int) -> Program:
    """Connectionist temporal classification, loss and gradient of a batch."""

    def one(logits, labels):
        n = labels.shape[0]
        extended = jnp.zeros(2 * n + 1, jnp.int32).at[1::2].set(labels)
        logp = jax.nn.log_softmax(logits)[:, extended]
        before = jnp.concatenate([jnp.array([-1, -1]), extended[:-2]])
        skip = (extended != 0) & (extended != before)
        alpha = jnp.full(2 * n + 1, -1e5).at[:2].set(logp[0, :2])

        def step(alpha, logp):
            one = jnp.pad(alpha[:-1], (1, 0), constant_values=-1e5)
            two = jnp.pad(alpha[:-2], (2, 0), constant_values=-1e5)
            two = jnp.where(skip, two, -1e5)
            return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + logp, None

        alpha, _ = lax.scan(step, alpha, logp[1:])
        return -jnp.logaddexp(alpha[-1], alpha[-2])

    def loss(logits: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(one)(logits, labels))

    run = jax.value_and_grad(loss)
    return run, (normal(8, steps, 32), integers(32, 8, size, low=1, seed=1))


def dtw(size: int, pairs: int) -> Program:
    """Dynamic time warping of pairs of series, a scan of rows and a scan inside each."""

    def distance(a: jax.Array, b: jax.Array) -> jax.Array:
        cost = jnp.abs(a[:, None] - b[None, :])

        def row(previous, c):
            diagonal = jnp.concatenate([jnp.array([jnp.inf]), previous[:-1]])
            best = jnp.minimum(previous, diagonal)

            def cell(left, inputs):
                c, best = inputs
                value = c + jnp.minimum(left, best)
                return value, value

            _, new = lax.scan(cell, jnp.inf, (c, best))
            return new, None

        return lax.scan(row, jnp.cumsum(cost[0]), cost[1:])[0][-1]

    return jax.vmap(distance), (normal(pairs, size), normal(pairs, size, seed=1))


def edit_distance(size: int, pairs: int) -> Program:
    """Levenshtein's distance of pairs of strings, the running minimum by `cummin`."""

    def distance(a: jax.Array, b: jax.Array) -> jax.Array:
        columns = jnp.arange(b.shape[0] + 1)

        def row(previous, letter):
            replace = previous[:-1] + (b != letter)
            best = jnp.minimum(previous[1:] + 1, replace)
            best = jnp.concatenate([previous[:1] + 1, best])
            return lax.cummin(best - columns) + columns, None

        return lax.scan(row, columns, a)[0][-1]

    return jax.vmap(distance), (integers(4, pairs, size), integers(4, pairs, size, seed=1))


def kalman(size: int, steps: int) -> Program:
    """Kalman's filter of tracks at constant velocity, 4 by 4 matrices, vmapped over tracks."""

    def track(ys: jax.Array) -> Any:
        f = jnp.eye(4).at[0, 2].set(0.1).at[1, 3].set(0.1)
        h = jnp.eye(2, 4)
        q, r = 0.01 * jnp.eye(4), 0.25 * jnp.eye(2)

        def step(state, y):
            x, p = state
            x, p = f @ x, f @ p @ f.T + q
            s = h @ p @ h.T + r
            gain = jnp.linalg.solve(s, h @ p).T
            innovation = y - h @ x
            x = x + gain @ innovation
            p = (jnp.eye(4) - gain @ h) @ p
            _, logdet = jnp.linalg.slogdet(s)
            return (x, p), (x, -0.5 * (logdet + innovation @ jnp.linalg.solve(s, innovation)))

        _, (xs, logp) = lax.scan(step, (jnp.zeros(4), jnp.eye(4)), ys)
        return xs, logp.sum()

    return jax.vmap(track), (normal(size, steps, 2).cumsum(1),)


def beam_search(size: int, steps: int) -> Program:
    """Beam search with a small recurrent network as the model."""
    beams, hidden = 8, 64

    def run(embed: jax.Array, w: jax.Array, out: jax.Array) -> Any:
        def step(i, state):
            tokens, scores, h = state
            h = jnp.tanh(h @ w + embed[tokens[:, i]])
            logp = jax.nn.log_softmax(h @ out)
            total = (scores[:, None] + logp).reshape(-1)
            scores, index = lax.top_k(total, beams)
            parent, token = index // size, index % size
            tokens = tokens[parent].at[:, i + 1].set(token)
            return tokens, scores, h[parent]

        tokens = jnp.zeros((beams, steps + 1), jnp.int32)
        scores = jnp.where(jnp.arange(beams) == 0, 0.0, -1e9)
        return lax.fori_loop(0, steps, step, (tokens, scores, jnp.zeros((beams, hidden))))[:2]

    embed, w, out = (
        normal(size, hidden),
        normal(hidden, hidden, seed=1),
        normal(hidden, size, seed=2),
    )
    return run, (embed, w / 8, out / 8)


def cky(size: int, symbols: int) -> Program:
    """Inside scores of a grammar in Chomsky's form, a span length at a time."""

    def run(rules: jax.Array, words: jax.Array) -> jax.Array:
        chart = jnp.full((size, size, symbols), -1e9)
        chart = chart.at[jnp.arange(size), jnp.arange(size)].set(words)

        def span(length, chart):
            def cell(i):
                j = i + length
                splits = jnp.arange(size)
                ok = (splits >= i) & (splits < j)
                left = chart[i, splits]
                right = chart[jnp.minimum(splits + 1, size - 1), jnp.minimum(j, size - 1)]
                pairs = left[:, :, None] + right[:, None, :]
                pairs = logsumexp(jnp.where(ok[:, None, None], pairs, -1e9), axis=0)
                return logsumexp(rules + pairs, axis=(1, 2))

            start = jnp.arange(size)
            new = jax.vmap(cell)(start)
            return chart.at[start, start + length].set(new, mode="drop")

        return lax.fori_loop(1, size, span, chart)[0, -1]

    rules = jax.nn.log_softmax(normal(symbols, symbols**2)).reshape((symbols,) * 3)
    return run, (rules, jax.nn.log_softmax(normal(size, symbols, seed=1)))


SIZES: Final[Sizes] = {
    ("viterbi", viterbi): ((16, 1000), (64, 500), (256, 200)),
    ("forward-backward", forward_backward): ((8, 2000), (32, 500), (128, 200)),
    ("hmm-training", hmm_training): ((8, 300), (32, 100), (64, 50)),
    ("ctc", ctc): ((10, 100), (30, 200), (60, 300)),
    ("dtw", dtw): ((64, 64), (150, 64), (400, 12)),
    ("edit-distance", edit_distance): ((64, 32), (200, 16), (300, 16)),
    ("kalman", kalman): ((8, 100), (64, 100), (512, 100)),
    ("beam-search", beam_search): ((100, 100), (1000, 50), (8000, 20)),
    ("cky", cky): ((8, 16), (16, 12), (24, 16)),
}
