"""Deep Q-learning and soft actor-critic with replay buffers, a whole training in one file."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.third_party.common import Builder, Program

from .actors import cartpole, soft_update, tanh_actor, training_state, vector_critic


def purejaxrl_dqn_steps() -> Program:
    """Forty-eight steps of deep Q-learning on four cart poles, a gradient step every fourth."""
    import flashbax as fbx
    import flax.linen as nn
    import optax
    from flax import struct
    from flax.training.train_state import TrainState

    num_envs, num_steps = 4, 48
    learning_starts, training_interval, target_update_interval = 32, 16, 48
    env, env_params = cartpole()

    class QNetwork(nn.Module):
        action_dim: int

        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Dense(120)(x))
            x = nn.relu(nn.Dense(84)(x))
            return nn.Dense(self.action_dim)(x)

    @struct.dataclass
    class TimeStep:
        obs: jax.Array
        action: jax.Array
        reward: jax.Array
        done: jax.Array

    class CustomTrainState(TrainState):
        target_network_params: dict
        timesteps: jax.Array
        n_updates: jax.Array

    buffer = fbx.make_flat_buffer(
        max_length=1000,
        min_length=32,
        sample_batch_size=32,
        add_sequences=False,
        add_batch_size=num_envs,
    )
    vmap_reset = jax.vmap(env.reset, in_axes=(0, None))
    vmap_step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def train(rng):
        rng, _rng = jax.random.split(rng)
        init_obs, env_state = vmap_reset(jax.random.split(_rng, num_envs), env_params)
        one = TimeStep(init_obs[0], jnp.int32(0), jnp.float32(0.0), jnp.asarray(False))
        buffer_state = buffer.init(one)
        network = QNetwork(action_dim=env.action_space(env_params).n)
        rng, _rng = jax.random.split(rng)
        network_params = network.init(_rng, init_obs[0])
        train_state = CustomTrainState.create(
            apply_fn=network.apply,
            params=network_params,
            target_network_params=network_params,
            tx=optax.adam(learning_rate=2.5e-4),
            timesteps=jnp.int32(0),
            n_updates=jnp.int32(0),
        )

        def eps_greedy_exploration(rng, q_vals, t):
            rng_a, rng_e = jax.random.split(rng)
            eps = jnp.clip((0.05 - 1.0) / 150 * t + 1.0, 0.05)
            greedy_actions = jnp.argmax(q_vals, axis=-1)
            random_actions = jax.random.randint(rng_a, greedy_actions.shape, 0, q_vals.shape[-1])
            explore = jax.random.uniform(rng_e, greedy_actions.shape) < eps
            return jnp.where(explore, random_actions, greedy_actions)

        def _update_step(runner_state, unused):
            train_state, buffer_state, env_state, last_obs, rng = runner_state
            rng, rng_a, rng_s = jax.random.split(rng, 3)
            q_vals = network.apply(train_state.params, last_obs)
            action = eps_greedy_exploration(rng_a, q_vals, train_state.timesteps)
            obs, env_state, reward, terminated, truncated, info = vmap_step(
                jax.random.split(rng_s, num_envs), env_state, action, env_params
            )
            done = jnp.logical_or(terminated, truncated)
            train_state = train_state.replace(timesteps=train_state.timesteps + num_envs)
            timestep = TimeStep(obs=last_obs, action=action, reward=reward, done=done)
            buffer_state = buffer.add(buffer_state, timestep)

            def _learn_phase(train_state, rng):
                learn_batch = buffer.sample(buffer_state, rng).experience
                q_next_target = network.apply(
                    train_state.target_network_params, learn_batch.second.obs
                )
                q_next_target = jnp.max(q_next_target, axis=-1)
                target = (
                    learn_batch.first.reward + (1 - learn_batch.first.done) * 0.99 * q_next_target
                )

                def _loss_fn(params):
                    q_vals = network.apply(params, learn_batch.first.obs)
                    chosen_action_qvals = jnp.take_along_axis(
                        q_vals, jnp.expand_dims(learn_batch.first.action, axis=-1), axis=-1
                    ).squeeze(axis=-1)
                    return jnp.mean((chosen_action_qvals - target) ** 2)

                loss, grads = jax.value_and_grad(_loss_fn)(train_state.params)
                train_state = train_state.apply_gradients(grads=grads)
                return train_state.replace(n_updates=train_state.n_updates + 1), loss

            rng, _rng = jax.random.split(rng)
            is_learn_time = (
                buffer.can_sample(buffer_state)
                & (train_state.timesteps > learning_starts)
                & (train_state.timesteps % training_interval == 0)
            )
            train_state, loss = jax.lax.cond(
                is_learn_time,
                lambda train_state, rng: _learn_phase(train_state, rng),
                lambda train_state, rng: (train_state, jnp.array(0.0)),
                train_state,
                _rng,
            )
            train_state = jax.lax.cond(
                train_state.timesteps % target_update_interval == 0,
                lambda train_state: train_state.replace(
                    target_network_params=optax.incremental_update(
                        train_state.params, train_state.target_network_params, 0.9
                    )
                ),
                lambda train_state: train_state,
                operand=train_state,
            )
            metrics = {
                "timesteps": train_state.timesteps,
                "updates": train_state.n_updates,
                "loss": loss,
                "returns": info["returned_episode_returns"].mean(),
            }
            return (train_state, buffer_state, env_state, obs, rng), metrics

        rng, _rng = jax.random.split(rng)
        runner_state = (train_state, buffer_state, env_state, init_obs, _rng)
        runner_state, metrics = jax.lax.scan(_update_step, runner_state, None, num_steps)
        return runner_state[0].params, metrics

    return train, (jax.random.PRNGKey(0),)


def sac_pendulum_steps() -> Program:
    """Sixteen steps of soft actor-critic on four pendulums, a gradient step after each."""
    import flashbax as fbx
    import gymnax
    import optax

    num_envs, num_steps, gamma, target_entropy = 4, 16, 0.99, -1.0
    env, env_params = gymnax.make("Pendulum-v1")
    buffer = fbx.make_item_buffer(
        max_length=512, min_length=16, sample_batch_size=64, add_batches=True
    )
    actor, critic = tanh_actor(1, 64), vector_critic(64)
    actor_state = training_state(actor, 0, 3e-4, jnp.zeros((1, 3)))
    critic_state = training_state(critic, 1, 1e-3, jnp.zeros((1, 3)), jnp.zeros((1, 1)))
    alpha_tx = optax.adam(1e-3)
    log_alpha = jnp.float32(0.0)

    def learn(actor_state, critic_state, log_alpha, alpha_opt, batch, rng):
        next_rng, pi_rng = jax.random.split(rng)
        alpha = jnp.exp(log_alpha)
        next_action, next_log_prob = actor.apply(
            actor_state.params, batch["next_obs"]
        ).sample_and_log_prob(seed=next_rng)
        next_q = critic.apply(critic_state.target_params, batch["next_obs"], next_action)
        next_q = jnp.min(next_q, axis=0).squeeze(-1) - alpha * next_log_prob
        target_q = batch["reward"] + gamma * (1 - batch["terminated"]) * next_q

        def critic_loss_fn(params):
            q = critic.apply(params, batch["obs"], batch["action"]).squeeze(-1)
            return jnp.square(q - target_q).mean(axis=1).sum()

        critic_loss, grads = jax.value_and_grad(critic_loss_fn)(critic_state.params)
        critic_state = critic_state.apply_gradients(grads=grads)

        def actor_loss_fn(params):
            action, log_prob = actor.apply(params, batch["obs"]).sample_and_log_prob(seed=pi_rng)
            q = critic.apply(critic_state.params, batch["obs"], action)
            return (alpha * log_prob - jnp.min(q, axis=0).squeeze(-1)).mean(), -log_prob.mean()

        (actor_loss, entropy), grads = jax.value_and_grad(actor_loss_fn, has_aux=True)(
            actor_state.params
        )
        actor_state = actor_state.apply_gradients(grads=grads)

        def alpha_loss_fn(log_alpha):
            return jnp.exp(log_alpha) * jax.lax.stop_gradient(entropy - target_entropy)

        alpha_grad = jax.grad(alpha_loss_fn)(log_alpha)
        updates, alpha_opt = alpha_tx.update(alpha_grad, alpha_opt)
        log_alpha = optax.apply_updates(log_alpha, updates)
        losses = (critic_loss, actor_loss, entropy)
        return actor_state, soft_update(critic_state), log_alpha, alpha_opt, losses

    def train(actor_state, critic_state, log_alpha, rng):
        rng, reset_rng, warm_rng = jax.random.split(rng, 3)
        obs, env_state = jax.vmap(env.reset, (0, None))(
            jax.random.split(reset_rng, num_envs), env_params
        )

        def act(env_state, obs, action, rng):
            next_obs, env_state, reward, terminated, _, info = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(rng, num_envs), env_state, 2.0 * action, env_params
            )
            return (
                next_obs,
                env_state,
                {
                    "obs": obs,
                    "action": action,
                    "reward": reward,
                    "terminated": terminated,
                    "next_obs": info["final_observation"],
                },
            )

        def warm(carry, rng):
            env_state, obs = carry
            action_rng, step_rng = jax.random.split(rng)
            action = jax.random.uniform(action_rng, (num_envs, 1), minval=-1.0, maxval=1.0)
            next_obs, env_state, item = act(env_state, obs, action, step_rng)
            return (env_state, next_obs), item

        (env_state, obs), items = jax.lax.scan(
            warm, (env_state, obs), jax.random.split(warm_rng, 16)
        )
        items = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), items)
        buffer_state = buffer.init(jax.tree.map(lambda x: x[0], items))
        buffer_state = buffer.add(buffer_state, items)

        def step(carry, rng):
            actor_state, critic_state, log_alpha, alpha_opt, buffer_state, env_state, obs = carry
            action_rng, step_rng, sample_rng, learn_rng = jax.random.split(rng, 4)
            action = actor.apply(actor_state.params, obs).sample(seed=action_rng)
            next_obs, env_state, item = act(env_state, obs, action, step_rng)
            buffer_state = buffer.add(buffer_state, item)
            batch = buffer.sample(buffer_state, sample_rng).experience
            actor_state, critic_state, log_alpha, alpha_opt, losses = learn(
                actor_state, critic_state, log_alpha, alpha_opt, batch, learn_rng
            )
            carry = (actor_state, critic_state, log_alpha, alpha_opt)
            return (*carry, buffer_state, env_state, next_obs), (losses, item["reward"])

        carry = (actor_state, critic_state, log_alpha, alpha_tx.init(log_alpha))
        carry, out = jax.lax.scan(
            step, (*carry, buffer_state, env_state, obs), jax.random.split(rng, num_steps)
        )
        return carry[0].params, carry[1].params, carry[2], out

    return train, (actor_state, critic_state, log_alpha, jax.random.PRNGKey(3))


WORKLOADS: dict[str, Builder] = {
    "purejaxrl-dqn-steps": purejaxrl_dqn_steps,
    "sac-pendulum-steps": sac_pendulum_steps,
}
