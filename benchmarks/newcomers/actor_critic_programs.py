"""Updates of SBX, and of offline reinforcement learning, from batches."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program, normal, uniform

from .actors import soft_update, tanh_actor, training_state, vector_critic


class _Batch(NamedTuple):
    """Transitions from a replay buffer or a data set."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    next_obs: jax.Array
    done: jax.Array


def _transitions(seed: int, size: int, obs_dim: int, action_dim: int) -> _Batch:
    """Random transitions with actions in [-1, 1]."""
    obs = normal(seed, size, obs_dim)
    return _Batch(
        obs,
        jnp.tanh(normal(seed + 1, size, action_dim)),
        normal(seed + 2, size),
        obs + 0.1 * normal(seed + 3, size, obs_dim),
        (uniform(seed + 4, size) < 0.05).astype(jnp.float32),
    )


def _slice(data: _Batch, step, batch_size: int) -> _Batch:
    """The batch of one gradient step."""
    return jax.tree.map(
        lambda x: jax.lax.dynamic_slice_in_dim(x, step * batch_size, batch_size), data
    )


def sbx_td3_updates() -> Program:
    """Eight gradient steps of TD3 with layer norm, the policy moved at every second."""
    import flax.linen as nn

    batch_size, steps, policy_delay, gamma = 64, 8, 2, 0.99

    class Actor(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.relu(nn.LayerNorm()(nn.Dense(64)(x)))
            return nn.tanh(nn.Dense(6)(x))

    actor, qf = Actor(), vector_critic(64, layer_norm=True)
    actor_state = training_state(actor, 0, 1e-3, jnp.zeros((1, 17)))
    qf_state = training_state(qf, 1, 1e-3, jnp.zeros((1, 17)), jnp.zeros((1, 6)))

    def update_critic(actor_state, qf_state, batch, key):
        noise = (0.2 * jax.random.normal(key, batch.action.shape)).clip(-0.5, 0.5)
        next_action = actor.apply(actor_state.target_params, batch.next_obs) + noise
        next_q = qf.apply(qf_state.target_params, batch.next_obs, next_action.clip(-1.0, 1.0))
        next_q = jnp.min(next_q, axis=0)
        target_q = batch.reward[:, None] + (1 - batch.done[:, None]) * gamma * next_q

        def mse_loss(params):
            current_q_values = qf.apply(params, batch.obs, batch.action)
            return 0.5 * ((target_q - current_q_values) ** 2).mean(axis=1).sum()

        loss, grads = jax.value_and_grad(mse_loss)(qf_state.params)
        return soft_update(qf_state.apply_gradients(grads=grads)), loss

    def update_actor(actor_state, qf_state, batch):
        def actor_loss(params):
            actions = actor.apply(params, batch.obs)
            return -jnp.min(qf.apply(qf_state.params, batch.obs, actions), axis=0).mean()

        loss, grads = jax.value_and_grad(actor_loss)(actor_state.params)
        return soft_update(actor_state.apply_gradients(grads=grads)), loss

    def train(actor_state, qf_state, data, key):
        def one_update(i, carry):
            batch = _slice(data, i, batch_size)
            key, noise_key = jax.random.split(carry["key"])
            qf_state, qf_loss = update_critic(
                carry["actor_state"], carry["qf_state"], batch, noise_key
            )
            actor_state, actor_loss = jax.lax.cond(
                i % policy_delay == 0,
                lambda state: update_actor(state, qf_state, batch),
                lambda state: (state, carry["info"]["actor_loss"]),
                carry["actor_state"],
            )
            return {
                "actor_state": actor_state,
                "qf_state": qf_state,
                "key": key,
                "info": {"actor_loss": actor_loss, "qf_loss": qf_loss},
            }

        carry = {
            "actor_state": actor_state,
            "qf_state": qf_state,
            "key": key,
            "info": {"actor_loss": jnp.array(0.0), "qf_loss": jnp.array(0.0)},
        }
        carry = jax.lax.fori_loop(0, steps, one_update, carry)
        return carry["actor_state"].params, carry["qf_state"].params, carry["info"]

    data = _transitions(10, batch_size * steps, 17, 6)
    return train, (actor_state, qf_state, data, jax.random.PRNGKey(5))


def sbx_droq_updates() -> Program:
    """Eight critic steps of DroQ with dropout and layer norm, then one of the policy."""
    batch_size, steps, gamma, ent_coef = 64, 8, 0.99, 0.1
    actor, qf = tanh_actor(6, 64), vector_critic(64, layer_norm=True, dropout=0.01)
    actor_state = training_state(actor, 2, 3e-4, jnp.zeros((1, 17)))
    qf_state = training_state(qf, 3, 3e-4, jnp.zeros((1, 17)), jnp.zeros((1, 6)))

    def update_critic(actor_state, qf_state, batch, key):
        noise_key, target_key, current_key = jax.random.split(key, 3)
        dist = actor.apply(actor_state.params, batch.next_obs)
        next_action, next_log_prob = dist.sample_and_log_prob(seed=noise_key)
        next_q = qf.apply(
            qf_state.target_params, batch.next_obs, next_action, rngs={"dropout": target_key}
        )
        next_q = jnp.min(next_q, axis=0) - ent_coef * next_log_prob[:, None]
        target_q = batch.reward[:, None] + (1 - batch.done[:, None]) * gamma * next_q

        def mse_loss(params):
            current = qf.apply(params, batch.obs, batch.action, rngs={"dropout": current_key})
            return 0.5 * ((jax.lax.stop_gradient(target_q) - current) ** 2).mean(axis=1).sum()

        loss, grads = jax.value_and_grad(mse_loss)(qf_state.params)
        return soft_update(qf_state.apply_gradients(grads=grads)), loss

    def train(actor_state, qf_state, data, key):
        def one_update(carry, i):
            qf_state, key = carry
            key, critic_key = jax.random.split(key)
            batch = _slice(data, i, batch_size)
            qf_state, loss = update_critic(actor_state, qf_state, batch, critic_key)
            return (qf_state, key), loss

        (qf_state, key), losses = jax.lax.scan(one_update, (qf_state, key), jnp.arange(steps))
        noise_key, dropout_key = jax.random.split(key)
        batch = _slice(data, steps - 1, batch_size)

        def actor_loss(params):
            action, log_prob = actor.apply(params, batch.obs).sample_and_log_prob(seed=noise_key)
            q = qf.apply(qf_state.params, batch.obs, action, rngs={"dropout": dropout_key})
            return (ent_coef * log_prob[:, None] - jnp.mean(q, axis=0)).mean()

        loss, grads = jax.value_and_grad(actor_loss)(actor_state.params)
        actor_state = actor_state.apply_gradients(grads=grads)
        return actor_state.params, qf_state.params, qf_state.target_params, losses, loss

    data = _transitions(20, batch_size * steps, 17, 6)
    return train, (actor_state, qf_state, data, jax.random.PRNGKey(6))


def cql_update() -> Program:
    """One conservative Q-learning step of the critics and of the policy, from a data set."""
    batch_size, n_actions, gamma, alpha, cql_alpha = 64, 4, 0.99, 0.2, 5.0
    actor, qf = tanh_actor(3, 64), vector_critic(64)
    actor_state = training_state(actor, 4, 3e-4, jnp.zeros((1, 11)))
    qf_state = training_state(qf, 5, 3e-4, jnp.zeros((1, 11)), jnp.zeros((1, 3)))

    def update(actor_state, qf_state, data, key):
        index_key, next_key, random_key, current_key, following_key, pi_key = jax.random.split(
            key, 6
        )
        index = jax.random.randint(index_key, (batch_size,), 0, data.obs.shape[0])
        batch = jax.tree.map(lambda x: x[index], data)
        next_action, _ = actor.apply(actor_state.params, batch.next_obs).sample_and_log_prob(
            seed=next_key
        )
        next_q = qf.apply(qf_state.target_params, batch.next_obs, next_action).min(0).squeeze(-1)
        td_target = batch.reward + gamma * (1 - batch.done) * next_q

        shape = (n_actions, batch_size, batch.action.shape[-1])
        random_actions = jax.random.uniform(random_key, shape, minval=-1.0, maxval=1.0)
        current_actions, current_log_pis = actor.apply(
            actor_state.params, batch.obs
        ).sample_and_log_prob(seed=current_key, sample_shape=(n_actions,))
        following_actions, following_log_pis = actor.apply(
            actor_state.params, batch.next_obs
        ).sample_and_log_prob(seed=following_key, sample_shape=(n_actions,))

        def critic_loss(params):
            q_of = jax.vmap(lambda action: qf.apply(params, batch.obs, action).squeeze(-1))
            q_pred = qf.apply(params, batch.obs, batch.action).squeeze(-1)
            td_loss = jnp.square(q_pred - td_target).mean()
            cat_q = jnp.concatenate(
                [
                    q_of(random_actions) - shape[-1] * jnp.log(0.5),
                    q_of(following_actions) - following_log_pis[:, None],
                    q_of(current_actions) - current_log_pis[:, None],
                ]
            )
            gap = jax.scipy.special.logsumexp(cat_q, axis=0) - q_pred
            gap = jnp.clip(gap.mean(axis=1), -100.0, 100.0)
            return td_loss + cql_alpha * gap.sum(), (td_loss, gap)

        (loss, info), grads = jax.value_and_grad(critic_loss, has_aux=True)(qf_state.params)
        qf_state = qf_state.apply_gradients(grads=grads)

        def actor_loss(params):
            action, log_pi = actor.apply(params, batch.obs).sample_and_log_prob(seed=pi_key)
            return (
                alpha * log_pi - qf.apply(qf_state.params, batch.obs, action).min(0)[:, 0]
            ).mean()

        policy_loss, grads = jax.value_and_grad(actor_loss)(actor_state.params)
        actor_state = actor_state.apply_gradients(grads=grads)
        return actor_state.params, soft_update(qf_state).target_params, (loss, policy_loss, info)

    return update, (actor_state, qf_state, _transitions(30, 1024, 11, 3), jax.random.PRNGKey(7))


def iql_updates() -> Program:
    """Eight steps of implicit Q-learning: values by expectiles, critics, weighted cloning."""
    import distrax
    import flax.linen as nn

    batch_size, steps, gamma, expectile, beta = 64, 8, 0.99, 0.7, 3.0

    class Value(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.relu(nn.Dense(64, kernel_init=nn.initializers.orthogonal(np.sqrt(2)))(x))
            return nn.Dense(1)(x).squeeze(-1)

    class Policy(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.relu(nn.Dense(64, kernel_init=nn.initializers.orthogonal(np.sqrt(2)))(x))
            mean = nn.tanh(nn.Dense(3)(x))
            log_std = self.param("log_std", nn.initializers.zeros, (3,))
            return distrax.MultivariateNormalDiag(
                mean, jnp.broadcast_to(jnp.exp(log_std.clip(-5.0, 2.0)), mean.shape)
            )

    value, policy, qf = Value(), Policy(), vector_critic(64)
    example = jnp.zeros((1, 11))
    states = (
        training_state(value, 6, 3e-4, example),
        training_state(policy, 7, 3e-4, example),
        training_state(qf, 8, 3e-4, example, jnp.zeros((1, 3))),
    )

    def update(states, batch):
        value_state, policy_state, qf_state = states
        q = qf.apply(qf_state.target_params, batch.obs, batch.action).min(0).squeeze(-1)

        def value_loss(params):
            diff = q - value.apply(params, batch.obs)
            return (jnp.where(diff > 0, expectile, 1 - expectile) * diff**2).mean()

        v_loss, grads = jax.value_and_grad(value_loss)(value_state.params)
        value_state = value_state.apply_gradients(grads=grads)
        weight = jnp.minimum(
            jnp.exp(beta * (q - value.apply(value_state.params, batch.obs))), 100.0
        )

        def policy_loss(params):
            return -(weight * policy.apply(params, batch.obs).log_prob(batch.action)).mean()

        pi_loss, grads = jax.value_and_grad(policy_loss)(policy_state.params)
        policy_state = policy_state.apply_gradients(grads=grads)
        next_v = value.apply(value_state.params, batch.next_obs)
        target = batch.reward + gamma * (1 - batch.done) * next_v

        def critic_loss(params):
            return ((qf.apply(params, batch.obs, batch.action).squeeze(-1) - target) ** 2).mean()

        q_loss, grads = jax.value_and_grad(critic_loss)(qf_state.params)
        qf_state = soft_update(qf_state.apply_gradients(grads=grads))
        return (value_state, policy_state, qf_state), (v_loss, pi_loss, q_loss)

    def train(states, data, key):
        def one(states, key):
            index = jax.random.randint(key, (batch_size,), 0, data.obs.shape[0])
            return update(states, jax.tree.map(lambda x: x[index], data))

        states, losses = jax.lax.scan(one, states, jax.random.split(key, steps))
        return [state.params for state in states], losses

    return train, (states, _transitions(40, 1024, 11, 3), jax.random.PRNGKey(8))


WORKLOADS: dict[str, Builder] = {
    "sbx-td3-updates": sbx_td3_updates,
    "sbx-droq-updates": sbx_droq_updates,
    "cql-update": cql_update,
    "iql-updates": iql_updates,
}
