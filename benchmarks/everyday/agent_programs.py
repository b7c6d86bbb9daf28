"""What agents compute: values, advantages, memories, updates."""

from __future__ import annotations

import itertools
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax, random

from benchmarks.everyday.common import Program, Sizes, a_key, integers, normal


def q_learning(size: int, steps: int) -> Program:
    """Tabular Q-learning of a windy grid, epsilon greedy."""

    def run(key: jax.Array, q: jax.Array) -> Any:
        moves = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
        goal = jnp.array([size - 1, size - 1])

        def step(carry, key):
            q, pos = carry
            k1, k2, k3 = random.split(key, 3)
            greedy = jnp.argmax(q[pos[0], pos[1]])
            action = jnp.where(random.uniform(k1) < 0.1, random.randint(k2, (), 0, 4), greedy)
            wind = random.bernoulli(k3, 0.1) * jnp.array([0, -1])
            new = jnp.clip(pos + moves[action] + wind, 0, size - 1)
            done = jnp.all(new == goal)
            reward = jnp.where(done, 1.0, -0.01)
            target = reward + 0.99 * (1 - done) * jnp.max(q[new[0], new[1]])
            q = q.at[pos[0], pos[1], action].add(0.1 * (target - q[pos[0], pos[1], action]))
            return (q, jnp.where(done, jnp.zeros(2, jnp.int32), new)), reward

        (q, _), rewards = lax.scan(step, (q, jnp.zeros(2, jnp.int32)), random.split(key, steps))
        return q, rewards.sum()

    return run, (a_key(), jnp.zeros((size, size, 4)))


def bandits(size: int, steps: int) -> Program:
    """Upper confidence bounds and Thompson's sampling on the same arms, many runs."""

    def one(key: jax.Array, arms: jax.Array) -> Any:
        n = arms.shape[0]

        def step(carry, inputs):
            t, key = inputs
            (s1, c1), (a, b) = carry
            k1, k2, k3 = random.split(key, 3)
            ucb = s1 / jnp.maximum(c1, 1) + jnp.sqrt(2 * jnp.log(t + 1.0) / jnp.maximum(c1, 1e-3))
            arm = jnp.argmax(ucb)
            r = random.bernoulli(k1, arms[arm]).astype(jnp.float32)
            draw = a / (a + b) + jnp.sqrt(a * b / ((a + b) ** 2 * (a + b + 1))) * random.normal(
                k2, (n,)
            )
            other = jnp.argmax(draw)
            r2 = random.bernoulli(k3, arms[other]).astype(jnp.float32)
            carry = (
                (s1.at[arm].add(r), c1.at[arm].add(1)),
                (a.at[other].add(r2), b.at[other].add(1 - r2)),
            )
            return carry, (arms.max() - arms[arm], arms.max() - arms[other])

        start = (jnp.zeros(n), jnp.zeros(n)), (jnp.ones(n), jnp.ones(n))
        _, regrets = lax.scan(step, start, (jnp.arange(steps), random.split(key, steps)))
        return jax.tree.map(jnp.cumsum, regrets)

    def run(key, arms):
        curves = jax.vmap(one, (0, None))(random.split(key, size), arms)
        return jax.tree.map(lambda c: c.mean(0), curves)

    return run, (a_key(), jax.nn.sigmoid(normal(10)))


def advantages(size: int, steps: int) -> Program:
    """Generalised advantages and V-trace of one rollout, normalised."""

    def run(
        rewards: jax.Array,
        values: jax.Array,
        dones: jax.Array,
        logp: jax.Array,
        behaviour: jax.Array,
    ) -> Any:
        gamma, lam = 0.99, 0.95

        def gae(carry, inputs):
            advantage, following = carry
            reward, value, done = inputs
            delta = reward + gamma * following * (1 - done) - value
            advantage = delta + gamma * lam * (1 - done) * advantage
            return (advantage, value), advantage

        last = values[-1]
        _, adv = lax.scan(
            gae, (jnp.zeros_like(last), last), (rewards, values[:-1], dones), reverse=True
        )

        rho = jnp.exp(logp - behaviour)
        clipped = jnp.minimum(1.0, rho)
        discount = gamma * (1 - dones)
        delta = clipped * (rewards + discount * values[1:] - values[:-1])

        def vtrace(acc, inputs):
            discount, c, delta = inputs
            acc = delta + discount * c * acc
            return acc, acc

        _, vs = lax.scan(vtrace, jnp.zeros_like(last), (discount, clipped, delta), reverse=True)
        vs = vs + values[:-1]
        after = jnp.concatenate([vs[1:], last[None]])
        pg = clipped * (rewards + discount * after - values[:-1])
        return (adv - adv.mean()) / (adv.std() + 1e-8), vs, pg

    dones = (normal(steps, size, seed=2) > 2).astype(jnp.float32)
    arrays = (normal(steps, size), normal(steps + 1, size, seed=1), dones)
    return run, (*arrays, 0.3 * normal(steps, size, seed=3), 0.3 * normal(steps, size, seed=4))


def replay(size: int, steps: int) -> Program:
    """Deep Q-learning from a circular buffer: write a row, draw a batch, one step of descent."""

    def network(params, x):
        return jax.nn.relu(x @ params[0] + params[1]) @ params[2] + params[3]

    def loss(params, target, s, a, r, s1):
        q = jnp.take_along_axis(network(params, s), a[:, None], axis=1)[:, 0]
        best = r + 0.99 * jnp.max(network(target, s1), axis=1)
        return jnp.mean((q - lax.stop_gradient(best)) ** 2)

    def run(key: jax.Array, params: Any, buffer: Any) -> Any:
        def step(carry, inputs):
            params, target, buffer, obs = carry
            i, key = inputs
            k1, k2, k3 = random.split(key, 3)
            action = jnp.argmax(network(params, obs) + random.gumbel(k1, (4,)))
            new = 0.9 * obs + 0.1 * random.normal(k2, obs.shape) + 0.01 * action
            row = (obs, action.astype(jnp.int32), -jnp.sum(new**2), new)
            buffer = jax.tree.map(
                lambda b, v: lax.dynamic_update_slice_in_dim(b, v[None], i % size, axis=0),
                buffer,
                row,
            )
            index = random.randint(k3, (32,), 0, jnp.minimum(i + 1, size))
            batch = jax.tree.map(lambda b: b[index], buffer)
            value, grads = jax.value_and_grad(loss)(params, target, *batch)
            params = jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)
            target = jax.tree.map(lambda t, p: 0.995 * t + 0.005 * p, target, params)
            return (params, target, buffer, new), value

        start = (params, params, buffer, jnp.ones(8))
        (params, *_), losses = lax.scan(step, start, (jnp.arange(steps), random.split(key, steps)))
        return params, losses

    params = (0.3 * normal(8, 32), jnp.zeros(32), 0.2 * normal(32, 4, seed=1), jnp.zeros(4))
    buffer = (
        jnp.zeros((size, 8)),
        jnp.zeros(size, jnp.int32),
        jnp.zeros(size),
        jnp.zeros((size, 8)),
    )
    return run, (a_key(), params, buffer)


def ppo(size: int, epochs: int) -> Program:
    """Epochs of shuffled minibatches of proximal policy optimisation, Adam by hand."""

    def network(params, x):
        for w, b in params[:-1]:
            x = jnp.tanh(x @ w + b)
        w, b = params[-1]
        out = x @ w + b
        return out[:, :-1], out[:, -1]

    def loss(params, batch):
        obs, action, old, adv, returns = batch
        logits, value = network(params, obs)
        logp = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(logp, action[:, None], 1)[:, 0]
        ratio = jnp.exp(chosen - old)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        policy = -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv).mean()
        entropy = -jnp.sum(jnp.exp(logp) * logp, -1).mean()
        return policy + 0.5 * jnp.mean((value - returns) ** 2) - 0.01 * entropy

    def run(key: jax.Array, params: Any, data: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, params)

        def minibatch(carry, batch):
            params, m, v, t = carry
            value, grads = jax.value_and_grad(loss)(params, batch)
            length = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
            grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 0.5 / (length + 1e-6)), grads)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, grads)
            t = t + 1
            params = jax.tree.map(
                lambda p, m, v: (
                    p - 3e-4 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-5)
                ),
                params,
                m,
                v,
            )
            return (params, m, v, t), value

        def epoch(carry, key):
            order = random.permutation(key, size)
            shuffled = jax.tree.map(lambda x: x[order].reshape(8, size // 8, *x.shape[1:]), data)
            return lax.scan(minibatch, carry, shuffled)

        start = (params, zeros, zeros, jnp.float32(0.0))
        (params, *_), losses = lax.scan(epoch, start, random.split(key, epochs))
        return params, losses.mean(1)

    widths = (8, 64, 64, 5)
    params = [
        (normal(a, b, seed=a + b) / a**0.5, jnp.zeros(b)) for a, b in itertools.pairwise(widths)
    ]
    data = (
        normal(size, 8),
        integers(4, size),
        -1.4 + 0.1 * normal(size, seed=1),
        normal(size, seed=2),
        normal(size, seed=3),
    )
    return run, (a_key(), params, data)


SIZES: Final[Sizes] = {
    ("q-learning", q_learning): ((5, 2000), (20, 5000)),
    ("bandits", bandits): ((8, 300), (64, 200), (512, 50)),
    ("advantages", advantages): ((16, 512), (512, 256), (4096, 128)),
    ("replay", replay): ((256, 200), (5000, 200), (100_000, 100)),
    ("ppo", ppo): ((256, 4), (2048, 4), (8192, 2)),
}
