"""Rigid bodies, grid worlds and games of several agents: single steps and rollouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, as_arrays

_PENDULUM = """
<mujoco>
  <option timestep="0.01" iterations="4" ls_iterations="4"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 1">
      <joint type="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".05" mass="1"/>
      <body pos="0 0 -.5">
        <joint type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".05" mass="1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
"""A double pendulum above a plane that it may touch."""


def _pendulum() -> tuple[Any, Any]:
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_string(_PENDULUM))
    return model, mjx.make_data(model)


def mjx_step() -> Program:
    """One step of a double pendulum."""
    from mujoco import mjx

    model, data = _pendulum()

    def step(position: jax.Array, velocity: jax.Array) -> Any:
        after = mjx.step(model, data.replace(qpos=position, qvel=velocity))
        return after.qpos, after.qvel

    return step, (jnp.array([0.3, 0.2]), jnp.array([0.1, 0.2]))


def mjx_rollout() -> Program:
    """Twenty steps of a double pendulum."""
    from mujoco import mjx

    model, data = _pendulum()

    def rollout(position: jax.Array) -> Any:
        def step(data: Any, _: None) -> Any:
            data = mjx.step(model, data)
            return data, data.qpos

        return jax.lax.scan(step, data.replace(qpos=position), None, length=20)[1]

    return rollout, (jnp.array([0.3, 0.2]),)


def _episode(reset: Callable[..., Any], step: Callable[..., Any], steps: int) -> Program:
    """A rollout of random actions: ``reset(key)`` -> state, ``step(state, key)`` -> (state, seen)."""

    def rollout(key: jax.Array) -> Any:
        keys = jax.random.split(key, steps)
        return jax.lax.scan(step, reset(key), keys)[1]

    return rollout, (jax.random.PRNGKey(0),)


def jaxmarl_rollout() -> Program:
    """Thirty steps of agents that spread over landmarks, acting at random."""
    import jaxmarl

    env = jaxmarl.make("MPE_simple_spread_v3")

    def step(state: Any, key: jax.Array) -> Any:
        keys = jax.random.split(key, env.num_agents + 1)
        actions = {
            agent: env.action_space(agent).sample(keys[i]) for i, agent in enumerate(env.agents)
        }
        _, state, reward, _, _ = env.step(keys[-1], state, actions)
        return state, reward

    return _episode(lambda key: env.reset(key)[1], step, 30)


def jaxmarl_step() -> Program:
    """One step of pursuers and their prey."""
    import jaxmarl

    env = jaxmarl.make("MPE_simple_tag_v3")
    _, state = env.reset(jax.random.PRNGKey(0))
    actions = {a: env.action_space(a).sample(jax.random.PRNGKey(1)) for a in env.agents}

    def step(key: jax.Array, state: Any, actions: Any) -> Any:
        return env.step(key, state, actions)[:3]

    return step, as_arrays((jax.random.PRNGKey(0), state, actions))


def navix_rollout() -> Program:
    """Twenty-five random moves in an empty room."""
    import navix

    env = navix.make("Navix-Empty-5x5-v0")

    def step(state: Any, key: jax.Array) -> Any:
        state = env.step(state, jax.random.randint(key, (), 0, env.action_space.n))
        return state, (state.reward, state.observation)

    return _episode(env.reset, step, 25)


def xminigrid_rollout() -> Program:
    """Twenty-five random moves in an empty room, with symbolic observations."""
    import xminigrid

    env, params = xminigrid.make("MiniGrid-EmptyRandom-8x8")

    def step(state: Any, key: jax.Array) -> Any:
        action = jax.random.randint(key, (), 0, env.num_actions(params))
        state = env.step(params, state, action)
        return state, (state.reward, state.observation)

    return _episode(lambda key: env.reset(params, key), step, 25)


def xminigrid_step() -> Program:
    """One move in four rooms."""
    import xminigrid

    env, params = xminigrid.make("MiniGrid-FourRooms")
    state = env.reset(params, jax.random.PRNGKey(0))

    def step(state: Any, action: jax.Array) -> Any:
        after = env.step(params, state, action)
        return after.observation, after.reward

    return step, (state, jnp.int32(2))


def craftax_step() -> Program:
    """One step of the classic survival game, with symbolic observations."""
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    params = env.default_params
    _, state = env.reset(jax.random.PRNGKey(0), params)

    def step(key: jax.Array, state: Any, action: jax.Array) -> Any:
        return env.step(key, state, action, params)[:3]

    return step, (jax.random.PRNGKey(0), state, jnp.int32(3))


WORKLOADS: dict[str, Builder] = {
    "mjx-double-pendulum-step": mjx_step,
    "mjx-double-pendulum-rollout": mjx_rollout,
    "jaxmarl-spread-rollout": jaxmarl_rollout,
    "jaxmarl-tag-step": jaxmarl_step,
    "navix-empty-rollout": navix_rollout,
    "xminigrid-empty-rollout": xminigrid_rollout,
    "xminigrid-four-rooms-step": xminigrid_step,
    "craftax-classic-step": craftax_step,
}
