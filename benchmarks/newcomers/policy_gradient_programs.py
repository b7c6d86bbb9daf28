"""Proximal policy updates in one file, in the manner of PureJaxRL."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program

from .actors import cartpole


def _actor_critic(actions: int):
    """The policy and value networks of PureJaxRL."""
    import distrax
    import flax.linen as nn
    from flax.linen.initializers import constant, orthogonal

    class ActorCritic(nn.Module):
        action_dim: int

        @nn.compact
        def __call__(self, x):
            def hidden(x):
                x = nn.Dense(64, kernel_init=orthogonal(np.sqrt(2)), bias_init=constant(0.0))(x)
                return nn.tanh(x)

            mean = hidden(hidden(x))
            mean = nn.Dense(self.action_dim, kernel_init=orthogonal(0.01), bias_init=constant(0.0))(
                mean
            )
            pi = distrax.Categorical(logits=mean)
            critic = hidden(hidden(x))
            critic = nn.Dense(1, kernel_init=orthogonal(1.0), bias_init=constant(0.0))(critic)
            return pi, jnp.squeeze(critic, axis=-1)

    return ActorCritic(actions)


class _Transition(NamedTuple):
    """One step of all environments."""

    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array
    info: dict


def _gae(traj_batch, last_val, last_done, gamma=0.99, gae_lambda=0.95):
    """Generalized advantages and value targets. ``done`` belongs to the observation before it
    where ``last_done`` is given, else to the one after."""

    def advantage(carry, transition):
        gae, next_value, next_done = carry
        done = transition.done if last_done is None else next_done
        delta = transition.reward + gamma * next_value * (1 - done) - transition.value
        gae = delta + gamma * gae_lambda * (1 - done) * gae
        return (gae, transition.value, transition.done), gae

    first = (jnp.zeros_like(last_val), last_val, traj_batch.done[-1])
    if last_done is not None:
        first = (jnp.zeros_like(last_val), last_val, last_done)
    _, advantages = jax.lax.scan(advantage, first, traj_batch, reverse=True, unroll=16)
    return advantages, advantages + traj_batch.value


def _ppo_loss(pi, value, traj_batch, gae, targets, clip_eps=0.2):
    """The clipped objective, with a clipped value loss and an entropy bonus."""
    log_prob = pi.log_prob(traj_batch.action)
    value_clipped = traj_batch.value + (value - traj_batch.value).clip(-clip_eps, clip_eps)
    value_losses = jnp.square(value - targets)
    value_losses_clipped = jnp.square(value_clipped - targets)
    value_loss = 0.5 * jnp.maximum(value_losses, value_losses_clipped).mean()
    ratio = jnp.exp(log_prob - traj_batch.log_prob)
    gae = (gae - gae.mean()) / (gae.std() + 1e-8)
    loss_actor1 = ratio * gae
    loss_actor2 = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps) * gae
    loss_actor = -jnp.minimum(loss_actor1, loss_actor2).mean()
    entropy = pi.entropy().mean()
    return loss_actor + 0.5 * value_loss - 0.01 * entropy, (value_loss, loss_actor, entropy)


def purejaxrl_ppo_updates() -> Program:
    """Three proximal policy updates on eight cart poles, from the networks' initialization on."""
    import optax
    from flax.training.train_state import TrainState

    num_envs, num_steps, num_updates, num_minibatches, update_epochs = 8, 16, 3, 4, 4
    env, env_params = cartpole()

    def linear_schedule(count):
        frac = 1.0 - (count // (num_minibatches * update_epochs)) / num_updates
        return 2.5e-4 * frac

    def train(rng):
        network = _actor_critic(env.action_space(env_params).n)
        rng, _rng = jax.random.split(rng)
        init_x = jnp.zeros(env.observation_space(env_params).shape)
        tx = optax.chain(
            optax.clip_by_global_norm(0.5), optax.adam(learning_rate=linear_schedule, eps=1e-5)
        )
        train_state = TrainState.create(
            apply_fn=network.apply, params=network.init(_rng, init_x), tx=tx
        )
        rng, _rng = jax.random.split(rng)
        reset_rng = jax.random.split(_rng, num_envs)
        obsv, env_state = jax.vmap(env.reset, in_axes=(0, None))(reset_rng, env_params)

        def _update_step(runner_state, unused):
            def _env_step(runner_state, unused):
                train_state, env_state, last_obs, rng = runner_state
                rng, _rng = jax.random.split(rng)
                pi, value = network.apply(train_state.params, last_obs)
                action = pi.sample(seed=_rng)
                log_prob = pi.log_prob(action)
                rng, _rng = jax.random.split(rng)
                rng_step = jax.random.split(_rng, num_envs)
                obsv, env_state, reward, terminated, truncated, info = jax.vmap(
                    env.step, in_axes=(0, 0, 0, None)
                )(rng_step, env_state, action, env_params)
                done = jnp.logical_or(terminated, truncated)
                transition = _Transition(done, action, value, reward, log_prob, last_obs, info)
                return (train_state, env_state, obsv, rng), transition

            runner_state, traj_batch = jax.lax.scan(_env_step, runner_state, None, num_steps)
            train_state, env_state, last_obs, rng = runner_state
            _, last_val = network.apply(train_state.params, last_obs)
            advantages, targets = _gae(traj_batch, last_val, None)

            def _update_epoch(update_state, unused):
                def _update_minbatch(train_state, batch_info):
                    traj_batch, advantages, targets = batch_info

                    def _loss_fn(params, traj_batch, gae, targets):
                        pi, value = network.apply(params, traj_batch.obs)
                        return _ppo_loss(pi, value, traj_batch, gae, targets)

                    grad_fn = jax.value_and_grad(_loss_fn, has_aux=True)
                    total_loss, grads = grad_fn(train_state.params, traj_batch, advantages, targets)
                    return train_state.apply_gradients(grads=grads), total_loss

                train_state, traj_batch, advantages, targets, rng = update_state
                rng, _rng = jax.random.split(rng)
                batch_size = num_steps * num_envs
                permutation = jax.random.permutation(_rng, batch_size)
                batch = (traj_batch, advantages, targets)
                batch = jax.tree.map(lambda x: x.reshape((batch_size, *x.shape[2:])), batch)
                shuffled_batch = jax.tree.map(lambda x: jnp.take(x, permutation, axis=0), batch)
                minibatches = jax.tree.map(
                    lambda x: jnp.reshape(x, [num_minibatches, -1, *x.shape[1:]]),
                    shuffled_batch,
                )
                train_state, total_loss = jax.lax.scan(_update_minbatch, train_state, minibatches)
                return (train_state, traj_batch, advantages, targets, rng), total_loss

            update_state = (train_state, traj_batch, advantages, targets, rng)
            update_state, loss_info = jax.lax.scan(_update_epoch, update_state, None, update_epochs)
            runner_state = (update_state[0], env_state, last_obs, update_state[-1])
            return runner_state, (loss_info, traj_batch.info)

        rng, _rng = jax.random.split(rng)
        runner_state = (train_state, env_state, obsv, _rng)
        runner_state, (losses, info) = jax.lax.scan(_update_step, runner_state, None, num_updates)
        return {
            "params": runner_state[0].params,
            "losses": losses,
            "returns": info["returned_episode_returns"],
        }

    return train, (jax.random.PRNGKey(30),)


def purejaxrl_ppo_rnn_updates() -> Program:
    """Two proximal policy updates with a recurrent network on eight cart poles."""
    import distrax
    import flax.linen as nn
    import optax
    from flax.linen.initializers import constant, orthogonal
    from flax.training.train_state import TrainState

    num_envs, num_steps, num_updates, num_minibatches, update_epochs = 8, 16, 2, 4, 2
    env, env_params = cartpole()

    class ScannedRNN(nn.Module):
        @functools.partial(
            nn.scan,
            variable_broadcast="params",
            in_axes=0,
            out_axes=0,
            split_rngs={"params": False},
        )
        @nn.compact
        def __call__(self, carry, x):
            ins, resets = x
            fresh = self.initialize_carry(ins.shape[0], ins.shape[1])
            carry = jnp.where(resets[:, np.newaxis], fresh, carry)
            return nn.GRUCell(features=ins.shape[1])(carry, ins)

        @staticmethod
        def initialize_carry(batch_size, hidden_size):
            cell = nn.GRUCell(features=hidden_size)
            return cell.initialize_carry(jax.random.PRNGKey(0), (batch_size, hidden_size))

    class ActorCriticRNN(nn.Module):
        action_dim: int

        @nn.compact
        def __call__(self, hidden, x):
            def dense(features, scale):
                return nn.Dense(features, kernel_init=orthogonal(scale), bias_init=constant(0.0))

            obs, dones = x
            embedding = nn.relu(dense(64, np.sqrt(2))(obs))
            hidden, embedding = ScannedRNN()(hidden, (embedding, dones))
            actor_mean = dense(self.action_dim, 0.01)(nn.relu(dense(64, 2)(embedding)))
            critic = dense(1, 1.0)(nn.relu(dense(64, 2)(embedding)))
            pi = distrax.Categorical(logits=actor_mean)
            return hidden, pi, jnp.squeeze(critic, axis=-1)

    network = ActorCriticRNN(env.action_space(env_params).n)
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4, eps=1e-5))

    def train(rng):
        rng, _rng = jax.random.split(rng)
        init_x = (
            jnp.zeros((1, num_envs, *env.observation_space(env_params).shape)),
            jnp.zeros((1, num_envs)),
        )
        init_hstate = ScannedRNN.initialize_carry(num_envs, 64)
        params = network.init(_rng, init_hstate, init_x)
        train_state = TrainState.create(apply_fn=network.apply, params=params, tx=tx)
        rng, _rng = jax.random.split(rng)
        reset_rng = jax.random.split(_rng, num_envs)
        obsv, env_state = jax.vmap(env.reset, in_axes=(0, None))(reset_rng, env_params)

        def _update_step(runner_state, unused):
            def _env_step(runner_state, unused):
                train_state, env_state, last_obs, last_done, hstate, rng = runner_state
                rng, _rng = jax.random.split(rng)
                ac_in = (last_obs[np.newaxis, :], last_done[np.newaxis, :])
                hstate, pi, value = network.apply(train_state.params, hstate, ac_in)
                action = pi.sample(seed=_rng)
                log_prob = pi.log_prob(action)
                value, action, log_prob = value.squeeze(0), action.squeeze(0), log_prob.squeeze(0)
                rng, _rng = jax.random.split(rng)
                rng_step = jax.random.split(_rng, num_envs)
                obsv, env_state, reward, terminated, truncated, info = jax.vmap(
                    env.step, in_axes=(0, 0, 0, None)
                )(rng_step, env_state, action, env_params)
                done = jnp.logical_or(terminated, truncated)
                transition = _Transition(last_done, action, value, reward, log_prob, last_obs, info)
                return (train_state, env_state, obsv, done, hstate, rng), transition

            initial_hstate = runner_state[-2]
            runner_state, traj_batch = jax.lax.scan(_env_step, runner_state, None, num_steps)
            train_state, env_state, last_obs, last_done, hstate, rng = runner_state
            ac_in = (last_obs[np.newaxis, :], last_done[np.newaxis, :])
            _, _, last_val = network.apply(train_state.params, hstate, ac_in)
            advantages, targets = _gae(traj_batch, last_val.squeeze(0), last_done)

            def _update_epoch(update_state, unused):
                def _update_minbatch(train_state, batch_info):
                    init_hstate, traj_batch, advantages, targets = batch_info

                    def _loss_fn(params, init_hstate, traj_batch, gae, targets):
                        _, pi, value = network.apply(
                            params, init_hstate[0], (traj_batch.obs, traj_batch.done)
                        )
                        return _ppo_loss(pi, value, traj_batch, gae, targets)

                    total_loss, grads = jax.value_and_grad(_loss_fn, has_aux=True)(
                        train_state.params, init_hstate, traj_batch, advantages, targets
                    )
                    return train_state.apply_gradients(grads=grads), total_loss

                train_state, init_hstate, traj_batch, advantages, targets, rng = update_state
                rng, _rng = jax.random.split(rng)
                permutation = jax.random.permutation(_rng, num_envs)
                batch = (init_hstate, traj_batch, advantages, targets)
                shuffled_batch = jax.tree.map(lambda x: jnp.take(x, permutation, axis=1), batch)
                minibatches = jax.tree.map(
                    lambda x: jnp.swapaxes(
                        jnp.reshape(x, [x.shape[0], num_minibatches, -1, *x.shape[2:]]),
                        1,
                        0,
                    ),
                    shuffled_batch,
                )
                train_state, total_loss = jax.lax.scan(_update_minbatch, train_state, minibatches)
                return (train_state, init_hstate, traj_batch, advantages, targets, rng), total_loss

            init_hstate = initial_hstate[None, :]
            update_state = (train_state, init_hstate, traj_batch, advantages, targets, rng)
            update_state, loss_info = jax.lax.scan(_update_epoch, update_state, None, update_epochs)
            train_state, rng = update_state[0], update_state[-1]
            return (train_state, env_state, last_obs, last_done, hstate, rng), loss_info

        rng, _rng = jax.random.split(rng)
        done = jnp.zeros((num_envs), dtype=bool)
        runner_state = (train_state, env_state, obsv, done, init_hstate, _rng)
        runner_state, losses = jax.lax.scan(_update_step, runner_state, None, num_updates)
        return runner_state[0].params, runner_state[4], losses

    return train, (jax.random.PRNGKey(30),)


WORKLOADS: dict[str, Builder] = {
    "purejaxrl-ppo-updates": purejaxrl_ppo_updates,
    "purejaxrl-ppo-rnn-updates": purejaxrl_ppo_rnn_updates,
}
