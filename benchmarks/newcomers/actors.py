"""Environments, networks and training states that programs share."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.third_party.common import as_arrays


def cartpole():
    """Cart poles with PureJaxRL's two wrappers."""
    import gymnax
    from gymnax.wrappers.purerl import FlattenObservationWrapper, LogWrapper

    env, env_params = gymnax.make("CartPole-v1")
    return LogWrapper(FlattenObservationWrapper(env)), env_params


def tanh_actor(action_dim: int, width: int, log_std_min: float = -5.0):
    """A policy whose Gaussian actions a hyperbolic tangent bounds."""
    import distrax
    import flax.linen as nn

    class Actor(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Dense(width)(x))
            x = nn.relu(nn.Dense(width)(x))
            mean = nn.Dense(action_dim)(x)
            log_std = jnp.tanh(nn.Dense(action_dim)(x))
            log_std = log_std_min + 0.5 * (2.0 - log_std_min) * (log_std + 1)
            return distrax.Transformed(
                distrax.MultivariateNormalDiag(mean, jnp.exp(log_std)),
                distrax.Block(distrax.Tanh(), ndims=1),
            )

    return Actor()


def vector_critic(width: int, n_critics: int = 2, layer_norm: bool = False, dropout: float = 0.0):
    """Several critics as one module with a leading axis, as SBX has them."""
    import flax.linen as nn

    class Critic(nn.Module):
        @nn.compact
        def __call__(self, x, action):
            x = jnp.concatenate([x, action], -1)
            for _ in range(2):
                x = nn.Dense(width)(x)
                if dropout > 0:
                    x = nn.Dropout(rate=dropout)(x, deterministic=False)
                if layer_norm:
                    x = nn.LayerNorm()(x)
                x = nn.relu(x)
            return nn.Dense(1)(x)

    class VectorCritic(nn.Module):
        @nn.compact
        def __call__(self, obs, action):
            vmap_critic = nn.vmap(
                Critic,
                variable_axes={"params": 0},
                split_rngs={"params": True, "dropout": True},
                in_axes=None,
                out_axes=0,
                axis_size=n_critics,
            )
            return vmap_critic()(obs, action)

    return VectorCritic()


def training_state(module, seed, learning_rate, *example):
    """A module's parameters and Adam, with target parameters."""
    import optax
    from flax.training.train_state import TrainState

    class RLTrainState(TrainState):
        target_params: dict

    params_key, dropout_key = jax.random.split(jax.random.PRNGKey(seed))
    params = module.init({"params": params_key, "dropout": dropout_key}, *example)
    return as_arrays(
        RLTrainState.create(
            apply_fn=module.apply,
            params=params,
            target_params=params,
            tx=optax.adam(learning_rate),
        )
    )


def soft_update(state, tau=0.005):
    """Move the target parameters a little."""
    import optax

    target = optax.incremental_update(state.params, state.target_params, tau)
    return state.replace(target_params=target)
