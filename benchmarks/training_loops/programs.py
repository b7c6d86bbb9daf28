"""Ten steps of training as their users write them: each takes a state that its caller gives away.

A builder returns ``(step, state, inputs)``; ``step(state, *inputs)`` returns the next state and a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.third_party.common import mlp_apply, mlp_params, normal, uniform

Loop = tuple[Callable[..., Any], Any, tuple[Any, ...]]


def _loop(loss: Callable[..., Any], params: Any, inputs: tuple[Any, ...], optimizer: Any) -> Loop:
    """A gradient, an update of the optimizer, an update of the parameters."""

    def step(state: Any, *data: Any) -> Any:
        params, opt = state
        value, grads = jax.value_and_grad(loss)(params, *data)
        updates, opt = optimizer.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), value

    return step, (params, optimizer.init(params)), inputs


def _mean_square(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda params, x, y: jnp.mean((apply(params, x) - y) ** 2)


def small_mlp_adam() -> Loop:
    """Plain jax: a network of a few thousand weights, Adam."""
    data = (normal(1, 32, 8), normal(2, 32, 2))
    return _loop(_mean_square(mlp_apply), mlp_params(0, (8, 32, 32, 2)), data, optax.adam(1e-3))


def nnx_mlp_adam() -> Loop:
    """Flax nnx: split and merged around the gradient."""
    from flax import nnx

    model = nnx.Sequential(
        nnx.Linear(64, 256, rngs=nnx.Rngs(0)), nnx.relu,
        nnx.Linear(256, 256, rngs=nnx.Rngs(1)), nnx.LayerNorm(256, rngs=nnx.Rngs(2)),
        nnx.Linear(256, 10, rngs=nnx.Rngs(3)),
    )  # fmt: skip
    definition, params = nnx.split(model)
    data = (normal(1, 128, 64), normal(2, 128, 10))
    loss = _mean_square(lambda p, x: nnx.merge(definition, p)(x))
    return _loop(loss, params, data, optax.adam(1e-3))


def linen_cnn_momentum() -> Loop:
    """Flax linen: two convolutions, group normalisation, momentum."""
    import flax.linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for width in (16, 32):
                x = nn.relu(nn.GroupNorm(4)(nn.Conv(width, (3, 3), strides=2)(x)))
            return nn.Dense(10)(x.mean((1, 2)))

    net = Net()
    data = (normal(1, 16, 32, 32, 3), normal(2, 16, 10))
    params = net.init(jax.random.PRNGKey(0), data[0])
    return _loop(_mean_square(net.apply), params, data, optax.sgd(1e-2, momentum=0.9))


def equinox_attention_adamw() -> Loop:
    """Equinox: attention and a network over short sequences, decayed weights, clipped gradients."""
    import equinox as eqx

    keys = jax.random.split(jax.random.PRNGKey(0), 2)
    model = (
        eqx.nn.MultiheadAttention(4, 64, key=keys[0]),
        eqx.nn.MLP(64, 64, 128, 1, key=keys[1]),
        eqx.nn.LayerNorm(64),
    )
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def apply(params: Any, x: Any) -> Any:
        attention, mlp, norm = eqx.combine(params, static)

        def one(x: Any) -> Any:
            x = x + attention(x, x, x)
            return x + jax.vmap(mlp)(jax.vmap(norm)(x))

        return jax.vmap(one)(x)

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    data = (normal(1, 16, 32, 64), normal(2, 16, 32, 64))
    return _loop(_mean_square(apply), params, data, optimizer)


def haiku_lstm_rmsprop() -> Loop:
    """Haiku: an LSTM over time."""
    import haiku as hk

    def forward(x: Any) -> Any:
        core = hk.LSTM(64)
        out, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.Linear(4)(out)

    net = hk.without_apply_rng(hk.transform(forward))
    data = (normal(1, 32, 8, 16), normal(2, 32, 8, 4))
    params = net.init(jax.random.PRNGKey(0), data[0])
    return _loop(_mean_square(net.apply), params, data, optax.rmsprop(1e-3))


def large_adam() -> Loop:
    """Four million parameters: the update of Adam is most of the step."""
    data = (normal(1, 8, 1024), normal(2, 8, 1024))
    params = mlp_params(0, (1024, 1024, 1024, 1024, 1024))
    return _loop(_mean_square(mlp_apply), params, data, optax.adam(1e-3))


def _cartpole(state: Any, action: Any) -> tuple[Any, Any]:
    x, v, a, w = state
    force = jnp.where(action > 0, 10.0, -10.0)
    part = (force + 0.05 * w**2 * jnp.sin(a)) / 1.1
    turn = (9.8 * jnp.sin(a) - jnp.cos(a) * part) / (0.5 * (4 / 3 - 0.1 * jnp.cos(a) ** 2 / 1.1))
    push = part - 0.05 * turn * jnp.cos(a) / 1.1
    new = jnp.stack([x + 0.02 * v, v + 0.02 * push, a + 0.02 * w, w + 0.02 * turn])
    fallen = (jnp.abs(new[0]) > 2.4) | (jnp.abs(new[2]) > 0.21)
    return jnp.where(fallen, jnp.zeros(4), new), jnp.where(fallen, 0.0, 1.0)


def dqn_replay() -> Loop:
    """An agent: it acts, writes into its replay buffer in place, samples, learns."""
    optimizer, size = optax.adam(1e-3), 4096
    params = mlp_params(0, (4, 32, 32, 2))
    memory = {"s": jnp.zeros((size, 4)), "a": jnp.zeros(size, int), "r": jnp.zeros(size),
              "n": jnp.zeros((size, 4)), "k": jnp.array(0)}  # fmt: skip

    def act(params: Any, carry: Any, key: Any) -> Any:
        env, memory = carry
        greedy = jnp.argmax(mlp_apply(params, env))
        action = jnp.where(jax.random.uniform(key) < 0.1, 1 - greedy, greedy)
        new, reward = _cartpole(env, action)
        place = memory["k"] % size
        values = {"s": env, "a": action, "r": reward, "n": new}
        memory = {k: memory[k].at[place].set(v) for k, v in values.items()} | {"k": memory["k"] + 1}
        return (new, memory), reward

    def loss(params: Any, memory: Any, rows: Any) -> Any:
        q = jnp.take_along_axis(mlp_apply(params, memory["s"][rows]), memory["a"][rows, None], 1)
        best = mlp_apply(params, memory["n"][rows]).max(1)
        return jnp.mean((q[:, 0] - memory["r"][rows] - 0.99 * jax.lax.stop_gradient(best)) ** 2)

    def step(state: Any) -> Any:
        params, opt, env, memory, key = state
        key, a, b = jax.random.split(key, 3)
        (env, memory), rewards = jax.lax.scan(
            partial(act, params), (env, memory), jax.random.split(a, 16)
        )
        rows = jax.random.randint(b, (32,), 0, jnp.minimum(memory["k"], size))
        grads = jax.grad(loss)(params, memory, rows)
        updates, opt = optimizer.update(grads, opt)
        return (optax.apply_updates(params, updates), opt, env, memory, key), rewards.mean()

    key = jax.random.PRNGKey(1)
    return step, (params, optimizer.init(params), 0.01 * normal(3, 4), memory, key), ()


def reinforce_cartpole() -> Loop:
    """An agent: 64 environments for 32 steps, then one gradient of the policy."""
    optimizer = optax.adam(1e-2)
    params = mlp_params(0, (4, 32, 1))

    def rollout(params: Any, env: Any, key: Any) -> Any:
        def one(env: Any, key: Any) -> Any:
            logit = mlp_apply(params, env.T)[:, 0]
            action = jax.random.uniform(key, logit.shape) < jax.nn.sigmoid(logit)
            new, reward = jax.vmap(_cartpole, (1, 0), (1, 0))(env, action)
            chosen = jnp.where(action, jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit))
            return new, (chosen, reward)

        env, (logs, rewards) = jax.lax.scan(one, env, jax.random.split(key, 32))
        returns = jnp.cumsum(rewards[::-1], 0)[::-1]
        return -jnp.mean(logs * (returns - returns.mean())), env

    def step(state: Any) -> Any:
        params, opt, env, key = state
        key, now = jax.random.split(key)
        (value, env), grads = jax.value_and_grad(rollout, has_aux=True)(params, env, now)
        updates, opt = optimizer.update(grads, opt)
        return (optax.apply_updates(params, updates), opt, env, key), value

    return (
        step,
        (params, optimizer.init(params), 0.01 * normal(3, 4, 64), jax.random.PRNGKey(1)),
        (),
    )


def scan_particles() -> Loop:
    """A simulator: 200 steps of 64 particles in a ring, over a state that is given away."""

    def step(state: Any) -> Any:
        def one(carry: Any, _: Any) -> Any:
            x, v = carry
            away = x[:, None] - x[None]
            distance = jnp.sqrt(jnp.sum(away**2, -1) + 1e-2)
            v = 0.999 * v + 1e-3 * jnp.sum(away / distance[..., None] ** 3, 1) - 1e-2 * x
            return (x + 1e-2 * v, v), distance.mean()

        state, seen = jax.lax.scan(one, state, None, 200)
        return state, seen.mean()

    return step, (uniform(0, 64, 2), 0.1 * normal(1, 64, 2)), ()


def langevin_chains() -> Loop:
    """A sampler: 100 steps of Langevin dynamics on logistic regression, 16 chains."""
    features, labels = normal(0, 64, 8), (uniform(1, 64) > 0.5).astype(jnp.float32)

    def energy(w: Any) -> Any:
        logits = features @ w
        return jnp.sum(jnp.logaddexp(0.0, logits) - labels * logits) + 0.5 * jnp.sum(w**2)

    def step(state: Any) -> Any:
        def one(carry: Any, key: Any) -> Any:
            noise = jax.random.normal(key, carry.shape)
            return carry - 1e-2 * jax.vmap(jax.grad(energy))(carry) + 0.14 * noise, None

        w, key = state
        key, now = jax.random.split(key)
        w, _ = jax.lax.scan(one, w, jax.random.split(now, 100))
        return (w, key), w.mean()

    return step, (normal(2, 16, 8), jax.random.PRNGKey(3)), ()


PROGRAMS: dict[str, Callable[[], Loop]] = {
    fn.__name__: fn
    for fn in (
        small_mlp_adam, nnx_mlp_adam, linen_cnn_momentum, equinox_attention_adamw, haiku_lstm_rmsprop,
        large_adam, dqn_replay, reinforce_cartpole, scan_particles, langevin_chains,
    )
}  # fmt: skip
