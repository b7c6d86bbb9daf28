"""Whole training updates of agents: environment, network, loss, replay and optimizer in one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, as_arrays, mlp_apply, mlp_params, normal

Act = Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]


def _categorical(params: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, ...]:
    """Action, its log probability and the value, by a perceptron with one output per action."""
    out = mlp_apply(params, obs.reshape(-1).astype(jnp.float32))
    logits = jax.nn.log_softmax(out[:-1])
    action = jax.random.categorical(key, logits)
    return action, logits[action], out[-1]


def _advantages(value: jax.Array, reward: jax.Array, done: jax.Array, last: jax.Array) -> Any:
    """Generalised advantages and value targets; arrays (time, environments), last (environments,)."""

    def back(carry: Any, step: Any) -> Any:
        advantage, following = carry
        value, reward, done = step
        delta = reward + 0.99 * following * (1 - done) - value
        advantage = delta + 0.99 * 0.95 * (1 - done) * advantage
        return (advantage, value), advantage

    start = (jnp.zeros_like(last), last)
    advantages = jax.lax.scan(back, start, (value, reward, done), reverse=True, unroll=16)[1]
    return advantages, advantages + value


def _ppo_loss(params: Any, obs: Any, action: Any, logp: Any, advantage: Any, target: Any) -> Any:
    """Clipped surrogate, value error and entropy over one minibatch."""
    out = jax.vmap(lambda o: mlp_apply(params, o.reshape(-1).astype(jnp.float32)))(obs)
    logits, value = jax.nn.log_softmax(out[:, :-1]), out[:, -1]
    ratio = jnp.exp(jnp.take_along_axis(logits, action[:, None], axis=1)[:, 0] - logp)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 0.8, 1.2) * advantage
    entropy = -jnp.sum(jnp.exp(logits) * logits, axis=-1).mean()
    policy = -jnp.minimum(ratio * advantage, clipped).mean()
    return policy + 0.5 * jnp.square(value - target).mean() - 0.01 * entropy


def _ppo_epochs(optimizer: Any, params: Any, state: Any, key: jax.Array, batch: Any) -> Any:
    """Two epochs of four shuffled minibatches each; the batch is a tuple of arrays (steps, ...)."""
    import optax

    size = batch[0].shape[0]

    def minibatch(carry: Any, rows: Any) -> Any:
        params, state = carry
        loss, grads = jax.value_and_grad(_ppo_loss)(params, *rows)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), loss

    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, size)
        shuffled = [x[order].reshape(4, size // 4, *x.shape[1:]) for x in batch]
        return jax.lax.scan(minibatch, carry, tuple(shuffled))

    return jax.lax.scan(epoch, (params, state), jax.random.split(key, 2))


def _ppo_gymnax(name: str, batch: int, steps: int, width: int) -> Program:
    """One proximal policy update, as PureJaxRL writes it, on environments of gymnax."""
    import gymnax
    import optax

    env, env_params = gymnax.make(name)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-5))

    def update(params: Any, opt_state: Any, runner: Any, key: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            obs, state = carry
            act_keys, step_keys = jax.random.split(key, (2, batch))
            action, logp, value = jax.vmap(_categorical, (None, 0, 0))(params, act_keys, obs)
            out = jax.vmap(env.step, (0, 0, 0, None))(step_keys, state, action, env_params)
            following, state, reward, done = out[0], out[1], out[2], out[3]
            return (following, state), (obs, action, logp, value, reward, done.astype(jnp.float32))

        roll_key, epoch_key = jax.random.split(key)
        runner, (obs, action, logp, value, reward, done) = jax.lax.scan(
            step, runner, jax.random.split(roll_key, steps)
        )
        last = jax.vmap(_categorical, (None, None, 0))(params, key, runner[0])[2]
        advantage, target = _advantages(value, reward, done, last)
        flat = [
            x.reshape(steps * batch, *x.shape[2:]) for x in (obs, action, logp, advantage, target)
        ]
        carry, losses = _ppo_epochs(optimizer, params, opt_state, epoch_key, tuple(flat))
        return carry, runner, losses

    reset = jax.vmap(env.reset, in_axes=(0, None))
    obs, state = reset(jax.random.split(jax.random.PRNGKey(0), batch), env_params)
    inputs = int(obs[0].size)
    actions = int(env.action_space(env_params).n)
    params = mlp_params(1, (inputs, width, width, actions + 1))
    return update, (params, optimizer.init(params), as_arrays((obs, state)), jax.random.PRNGKey(2))


def ppo_cartpole() -> Program:
    """Proximal policy update on sixteen cart poles."""
    return _ppo_gymnax("CartPole-v1", batch=16, steps=32, width=64)


def ppo_asterix() -> Program:
    """Proximal policy update on pictures of a small game."""
    return _ppo_gymnax("Asterix-MinAtar", batch=8, steps=16, width=32)


def ppo_acrobot() -> Program:
    """Proximal policy update on the double pendulum, whose steps are Runge-Kutta steps."""
    return _ppo_gymnax("Acrobot-v1", batch=24, steps=20, width=32)


def dqn_gymnax() -> Program:
    """Sixteen steps of deep Q-learning: act, store, sample, learn every fourth step, move the target."""
    import flashbax
    import gymnax
    import optax

    env, env_params = gymnax.make("MountainCar-v0")
    buffer = flashbax.make_flat_buffer(
        max_length=1024, min_length=8, sample_batch_size=32, add_sequences=False, add_batch_size=4
    )
    optimizer = optax.adam(1e-3)

    def loss(params: Any, target: Any, first: Any, second: Any) -> jax.Array:
        q = jax.vmap(mlp_apply, (None, 0))(params, first["obs"])
        best = jax.vmap(mlp_apply, (None, 0))(target, second["obs"]).max(axis=-1)
        wanted = first["reward"] + 0.99 * (1 - first["done"]) * best
        chosen = jnp.take_along_axis(q, first["action"][:, None], axis=1)[:, 0]
        return optax.huber_loss(chosen, wanted).mean()

    def learn(params: Any, target: Any, state: Any, replay: Any, key: jax.Array) -> Any:
        pair = buffer.sample(replay, key).experience
        grads = jax.grad(loss)(params, target, pair.first, pair.second)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def step(carry: Any, inputs: Any) -> Any:
        params, target, opt_state, replay, obs, state = carry
        count, key = inputs
        keys = jax.random.split(key, 4)
        greedy = jax.vmap(mlp_apply, (None, 0))(params, obs).argmax(axis=-1)
        random = jax.random.randint(keys[0], (4,), 0, 3)
        action = jnp.where(jax.random.uniform(keys[1], (4,)) < 0.1, random, greedy)
        out = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(keys[2], 4), state, action, env_params
        )
        following, state, reward, done = out[0], out[1], out[2], out[3]
        stored = {"obs": obs, "action": action, "reward": reward, "done": done.astype(jnp.float32)}
        replay = buffer.add(replay, stored)
        params, opt_state = jax.lax.cond(
            (count % 4 == 0) & buffer.can_sample(replay),
            lambda: learn(params, target, opt_state, replay, keys[3]),
            lambda: (params, opt_state),
        )
        target = optax.periodic_update(params, target, count, 8)
        return (params, target, opt_state, replay, following, state), reward

    def train(carry: Any, key: jax.Array) -> Any:
        return jax.lax.scan(step, carry, (jnp.arange(16), jax.random.split(key, 16)))

    obs, state = jax.vmap(env.reset, (0, None))(
        jax.random.split(jax.random.PRNGKey(0), 4), env_params
    )
    params = mlp_params(1, (2, 120, 84, 3))
    one = {
        "obs": obs[0],
        "action": jnp.int32(0),
        "reward": jnp.float32(0),
        "done": jnp.float32(0),
    }
    carry = (params, params, optimizer.init(params), buffer.init(one), obs, state)
    return train, (as_arrays(carry), jax.random.PRNGKey(3))


def _squashed(params: Any, obs: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Action of a squashed normal policy and its log probability."""
    mean, spread = jnp.split(mlp_apply(params, obs), 2, axis=-1)
    log_std = -5 + 3.5 * (jnp.tanh(spread) + 1)
    raw = mean + jnp.exp(log_std) * noise
    action = jnp.tanh(raw)
    log_p = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2 * jnp.pi)
    return action, jnp.sum(log_p - jnp.log(1 - jnp.square(action) + 1e-6), axis=-1)


def _critics(params: Any, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Values by both critics."""
    both = jnp.concatenate([obs, action], axis=-1)
    return jax.vmap(mlp_apply, (0, None))(params, both)[..., 0]


def _critic_loss(params: Any, nets: Any, row: Any, noise: jax.Array) -> jax.Array:
    action, log_p = _squashed(nets["actor"], row["next"], noise)
    best = _critics(nets["target"], row["next"], action).min(axis=0)
    wanted = row["reward"] + 0.99 * (1 - row["done"]) * (best - jnp.exp(nets["alpha"]) * log_p)
    wanted = jax.lax.stop_gradient(wanted)
    return jnp.square(_critics(params, row["obs"], row["action"]) - wanted).mean(1).sum()


def _actor_loss(params: Any, nets: Any, row: Any, noise: jax.Array) -> Any:
    action, log_p = _squashed(params, row["obs"], noise)
    worst = _critics(nets["critic"], row["obs"], action).min(axis=0)
    return (jnp.exp(nets["alpha"]) * log_p - worst).mean(), log_p.mean()


def _sac_networks(obs_size: int, act_size: int) -> dict[str, Any]:
    """What is trained: twin critics, a policy, the logarithm of the temperature."""
    sizes = (obs_size + act_size, 256, 256, 1)
    return {
        "critic": jax.tree.map(lambda *x: jnp.stack(x), mlp_params(0, sizes), mlp_params(7, sizes)),
        "actor": mlp_params(20, (obs_size, 256, 256, 2 * act_size)),
        "alpha": jnp.float32(0),
    }


def _sac_transitions(obs_size: int, act_size: int) -> dict[str, jax.Array]:
    """What the replay buffer holds at first."""
    return {
        "obs": normal(30, 256, obs_size),
        "action": jnp.tanh(normal(31, 256, act_size)),
        "reward": normal(32, 256),
        "done": jnp.zeros(256),
        "next": normal(33, 256, obs_size),
    }


def sac_updates() -> Program:
    """Four updates of a soft actor-critic with twin critics, tuned temperature and moving targets."""
    import flashbax
    import optax

    obs_size, act_size = 11, 3
    buffer = flashbax.make_item_buffer(
        max_length=512, min_length=64, sample_batch_size=64, add_batches=True
    )
    optimizer = optax.adam(3e-4)

    def step(carry: Any, key: jax.Array) -> Any:
        nets, states, replay = carry
        sample_key, first, second = jax.random.split(key, 3)
        row = buffer.sample(replay, sample_key).experience
        noise = jax.random.normal(first, row["action"].shape)
        q_loss, q_grads = jax.value_and_grad(_critic_loss)(nets["critic"], nets, row, noise)
        noise = jax.random.normal(second, row["action"].shape)
        (_, log_p), pi_grads = jax.value_and_grad(_actor_loss, has_aux=True)(
            nets["actor"], nets, row, noise
        )
        a_grads = -jnp.exp(nets["alpha"]) * (log_p - act_size)
        grads = {"critic": q_grads, "actor": pi_grads, "alpha": a_grads}
        trained = {name: nets[name] for name in grads}
        updates, states = optimizer.update(grads, states, trained)
        trained = optax.apply_updates(trained, updates)
        target = optax.incremental_update(trained["critic"], nets["target"], 0.005)
        return ({**trained, "target": target}, states, replay), (q_loss, log_p)

    def train(nets: Any, states: Any, replay: Any, key: jax.Array) -> Any:
        carry, losses = jax.lax.scan(step, (nets, states, replay), jax.random.split(key, 4))
        return carry[0], carry[1], losses

    trained, rows = _sac_networks(obs_size, act_size), _sac_transitions(obs_size, act_size)
    replay = buffer.init(jax.tree.map(lambda x: x[0], rows))
    replay = buffer.add(replay, rows)
    nets = {**trained, "target": trained["critic"]}
    return train, (nets, optimizer.init(trained), as_arrays(replay), jax.random.PRNGKey(34))


def brax_policy_gradient() -> Program:
    """Gradient of the return of a perceptron policy through three steps of a simulated cart pole."""
    from brax import envs

    env = envs.get_environment("inverted_double_pendulum", backend="spring")

    def value(params: Any, state: Any) -> jax.Array:
        def step(state: Any, _: None) -> Any:
            action = jnp.tanh(jax.vmap(mlp_apply, (None, 0))(params, state.obs))
            state = jax.vmap(env.step)(state, action)
            return state, state.reward

        return jax.lax.scan(step, state, length=3)[1].mean()

    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), 16))
    params = mlp_params(1, (env.observation_size, 32, 32, env.action_size))
    return jax.value_and_grad(value), (params, as_arrays(state))


def alphazero_update() -> Program:
    """Selfplay of othello by a convolutional network, and the gradient of its loss."""
    import pgx
    from flax import linen as nn

    env = pgx.make("othello")

    class Net(nn.Module):
        """Two residual blocks with heads for policy and value."""

        @nn.compact
        def __call__(self, x: jax.Array) -> Any:
            """Logits (batch, 65) and values (batch,) of boards (batch, 8, 8, 2)."""
            x = nn.Conv(16, (3, 3))(x.astype(jnp.float32))
            for _ in range(2):
                y = nn.Conv(16, (3, 3))(nn.relu(nn.LayerNorm()(x)))
                x = x + nn.Conv(16, (3, 3))(nn.relu(nn.LayerNorm()(y)))
            flat = nn.relu(nn.Conv(2, (1, 1))(x)).reshape(x.shape[0], -1)
            return nn.Dense(65)(flat), jnp.tanh(nn.Dense(1)(flat))[:, 0]

    net = Net()

    def play(params: Any, state: Any, key: jax.Array) -> Any:
        def move(state: Any, key: jax.Array) -> Any:
            logits, _ = net.apply(params, state.observation)
            logits = jnp.where(state.legal_action_mask, logits, -1e9)
            action = jax.random.categorical(key, logits)
            following = jax.vmap(env.step)(state, action)
            return following, (state.observation, jax.nn.softmax(logits), following.rewards)

        return jax.lax.scan(move, state, jax.random.split(key, 8))

    def loss(params: Any, obs: jax.Array, wanted: jax.Array, reward: jax.Array) -> jax.Array:
        logits, value = net.apply(params, obs)
        cross = -jnp.sum(wanted * jax.nn.log_softmax(logits), axis=-1)
        return cross.mean() + jnp.square(value - reward).mean()

    def update(params: Any, state: Any, key: jax.Array) -> Any:
        state, history = play(params, state, key)
        obs, wanted, rewards = (x.reshape(-1, *x.shape[2:]) for x in history)
        return jax.value_and_grad(loss)(params, obs, wanted, rewards[:, 0]), state.legal_action_mask

    state = jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.PRNGKey(0), 8))
    params = net.init(jax.random.PRNGKey(1), state.observation)
    return update, (params, as_arrays(state), jax.random.PRNGKey(2))


def neuroevolution() -> Program:
    """One generation of an evolution strategy whose fitness is the return on pendulums."""
    import gymnax
    from evosax.algorithms import Open_ES

    env, env_params = gymnax.make("Pendulum-v1")
    params = mlp_params(0, (3, 16, 1))
    strategy = Open_ES(population_size=32, solution=params)
    strategy_params = strategy.default_params

    def fitness(params: Any, key: jax.Array) -> jax.Array:
        obs, state = env.reset(key, env_params)

        def step(carry: Any, key: jax.Array) -> Any:
            obs, state = carry
            action = 2 * jnp.tanh(mlp_apply(params, obs))
            out = env.step(key, state, action, env_params)
            return (out[0], out[1]), out[2]

        return -jax.lax.scan(step, (obs, state), jax.random.split(key, 50))[1].sum()

    def generation(state: Any, key: jax.Array) -> Any:
        ask, roll, tell = jax.random.split(key, 3)
        population, state = strategy.ask(ask, state, strategy_params)
        scores = jax.vmap(fitness, (0, None))(population, roll)
        state, metrics = strategy.tell(tell, population, scores, state, strategy_params)
        return state.mean, scores, metrics["best_fitness"]

    state = strategy.init(jax.random.PRNGKey(1), params, strategy_params)
    return generation, (as_arrays(state), jax.random.PRNGKey(2))


WORKLOADS: dict[str, Builder] = {
    "ppo-cartpole-update": ppo_cartpole,
    "ppo-asterix-update": ppo_asterix,
    "ppo-acrobot-update": ppo_acrobot,
    "dqn-gymnax-steps": dqn_gymnax,
    "sac-flashbax-updates": sac_updates,
    "brax-policy-gradient": brax_policy_gradient,
    "pgx-alphazero-update": alphazero_update,
    "evosax-neuroevolution": neuroevolution,
}
