"""Rollouts of environments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tutorials.common import Builder, Program, as_arrays, normal


def _gymnax(name: str, batch: int, steps: int, continuous: bool) -> Program:
    import gymnax

    env, params = gymnax.make(name)
    keys = jax.random.split(jax.random.PRNGKey(0), batch)

    def rollout(key: jax.Array, keys: jax.Array) -> Any:
        obs, state = jax.vmap(env.reset, (0, None))(keys, params)

        def step(carry: Any, key: jax.Array) -> Any:
            obs, state = carry
            akeys = jax.random.split(key, batch)
            actions = jax.vmap(env.action_space(params).sample)(akeys)
            obs, state, reward, *done, _ = jax.vmap(env.step, (0, 0, 0, None))(
                akeys, state, actions, params
            )
            return (obs, state), (reward, done)

        (obs, _), history = jax.lax.scan(step, (obs, state), jax.random.split(key, steps))
        return obs, history

    return rollout, (jax.random.PRNGKey(1), keys)


def gymnax_space_invaders_rollout() -> Program:
    """Random play of 16 games of space invaders, 32 steps, resets included."""
    return _gymnax("SpaceInvaders-MinAtar", 16, 32, False)


def gymnax_swimmer_rollout() -> Program:
    """Random torques on 64 swimmers, 25 steps."""
    return _gymnax("Swimmer-misc", 64, 25, True)


def brax_cheetah_spring_policy_rollout() -> Program:
    """Half cheetah with spring joints driven by a brax PPO network over 2 steps, a batch of 4."""
    from brax import envs
    from brax.training.agents.ppo import networks as ppo_networks

    env = envs.get_environment("halfcheetah", backend="spring")
    net = ppo_networks.make_ppo_networks(
        env.observation_size, env.action_size, policy_hidden_layer_sizes=(32,) * 2
    )
    policy = net.policy_network.init(jax.random.PRNGKey(0))
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(1), 4))

    def rollout(policy: Any, state: Any, key: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            logits = net.policy_network.apply(None, policy, state.obs)
            raw = net.parametric_action_distribution.sample_no_postprocessing(logits, key)
            action = net.parametric_action_distribution.postprocess(raw)
            logp = net.parametric_action_distribution.log_prob(logits, raw)
            state = jax.vmap(env.step)(state, action)
            return state, (state.obs, state.reward, logp)

        return jax.lax.scan(step, state, jax.random.split(key, 2))[1]

    return rollout, (policy, as_arrays(state), jax.random.PRNGKey(2))


def brax_double_pendulum_analytic_grad() -> Program:
    """Analytic policy gradient through 2 steps of an inverted double pendulum with springs."""
    from brax import envs

    env = envs.get_environment("inverted_double_pendulum", backend="spring")
    state = jax.jit(env.reset)(jax.random.PRNGKey(0))

    def loss(params: Any, state: Any) -> jax.Array:
        def step(state: Any, _: None) -> Any:
            h = jnp.tanh(state.obs @ params["w1"])
            state = env.step(state, jnp.tanh(h @ params["w2"]))
            return state, state.reward

        return -jnp.mean(jax.lax.scan(step, state, None, length=2)[1])

    params = {"w1": 0.1 * normal(1, env.observation_size, 32), "w2": 0.1 * normal(2, 32, 1)}
    return jax.value_and_grad(loss), (params, as_arrays(state))


def _jumanji(name: str, batch: int, steps: int) -> Program:
    import jumanji

    env = jumanji.make(name)
    state, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), batch))

    def rollout(key: jax.Array, state: Any, mask: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            state, mask = carry
            flat = jnp.where(mask.reshape(batch, -1), 0.0, -1e9)
            index = jax.random.categorical(key, flat)
            if mask.ndim > 2:
                action = jnp.stack(jnp.unravel_index(index, mask.shape[1:]), -1).astype(jnp.int32)
            else:
                action = index
            state, ts = jax.vmap(env.step)(state, action)
            return (state, ts.observation.action_mask), (ts.reward, ts.discount)

        (_, mask), history = jax.lax.scan(step, (state, mask), jax.random.split(key, steps))
        return mask, history

    return rollout, (jax.random.PRNGKey(1), state, timestep.observation.action_mask)


def jumanji_tetris_rollout() -> Program:
    """Valid random placements in 8 games of tetris, 10 steps."""
    return _jumanji("Tetris-v0", 8, 10)


def jumanji_job_tsp_rollout() -> Program:
    """Random tours of 20 cities in 32 travelling-salesman instances."""
    return _jumanji("TSP-v1", 32, 20)


def _pgx(game: str, batch: int, steps: int) -> Program:
    import pgx

    env = pgx.make(game)

    def play(key: jax.Array) -> Any:
        k0, k1 = jax.random.split(key)
        state = jax.vmap(env.init)(jax.random.split(k0, batch))

        def step(state: Any, key: jax.Array) -> Any:
            a, s = jax.random.split(key)
            action = jax.random.categorical(
                a, jnp.log(state.legal_action_mask.astype(jnp.float32)), axis=-1
            )
            state = jax.vmap(env.step)(state, action, jax.random.split(s, batch))
            return state, (state.rewards, state.current_player)

        state, history = jax.lax.scan(step, state, jax.random.split(k1, steps))
        return state.observation, history

    return play, (jax.random.PRNGKey(0),)


def pgx_hex_selfplay() -> Program:
    """Random self-play of hex on 11 x 11 boards, 8 games, 12 moves."""
    return _pgx("hex", 8, 12)


def pgx_freeway_rollout() -> Program:
    """Random play of MinAtar freeway in pgx, 16 games, 20 steps, from the start."""
    return _pgx("minatar-freeway", 16, 20)


def navix_doorkey_vmap_rollout() -> Program:
    """Eight agents in door-and-key rooms with random actions, 12 steps."""
    import navix

    env = navix.make("Navix-DoorKey-5x5-v0")

    def rollout(key: jax.Array) -> Any:
        def one(key: jax.Array) -> Any:
            def step(ts: Any, key: jax.Array) -> Any:
                ts = env.step(ts, jax.random.randint(key, (), 0, env.action_space.n))
                return ts, (ts.reward, ts.observation)

            return jax.lax.scan(step, env.reset(key), jax.random.split(key, 12))[1]

        return jax.vmap(one)(jax.random.split(key, 8))

    return rollout, (jax.random.PRNGKey(0),)


def xland_trivial_ruleset_rollout() -> Program:
    """XLand grid with its rules and goals: 4 agents, 15 random actions."""
    import xminigrid

    env, params = xminigrid.make("XLand-MiniGrid-R1-9x9")

    def rollout(key: jax.Array) -> Any:
        def one(key: jax.Array) -> Any:
            def step(ts: Any, key: jax.Array) -> Any:
                ts = env.step(params, ts, jax.random.randint(key, (), 0, env.num_actions(params)))
                return ts, (ts.reward, ts.observation)

            return jax.lax.scan(step, env.reset(params, key), jax.random.split(key, 15))[1]

        return jax.vmap(one)(jax.random.split(key, 4))

    return rollout, (jax.random.PRNGKey(0),)


def craftax_classic_rollout() -> Program:
    """Three random steps of classic Craftax from a fresh world state."""
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    params = env.default_params
    _, state = jax.jit(env.reset)(jax.random.PRNGKey(0), params)

    def rollout(key: jax.Array, state: Any) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            action = jax.random.randint(key, (), 0, env.action_space(params).n)
            obs, state, reward, done, _ = env.step(key, state, action, params)
            return state, (obs, reward, done)

        return jax.lax.scan(step, state, jax.random.split(key, 3))[1]

    return rollout, (jax.random.PRNGKey(1), state)


_CART = """
<mujoco>
  <option timestep="0.01" iterations="2" ls_iterations="4"><flag eulerdamp="disable"/></option>
  <worldbody>
    <body name="cart"><joint name="slide" type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size=".2 .1 .1" mass="1" contype="0" conaffinity="0"/>
      <body name="pole"><joint name="hinge" type="hinge" axis="0 1 0" damping="0.01"/>
        <geom type="capsule" fromto="0 0 0 0 0 .6" size=".03" mass=".1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="10" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


def mjx_cartpole_shooting_grad() -> Program:
    """Gradient of a swing-up cost through 8 MJX steps with respect to the controls, 8 samples."""
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_string(_CART))
    data = mjx.make_data(model)

    def cost(controls: jax.Array, qpos: jax.Array) -> jax.Array:
        def step(d: Any, u: jax.Array) -> Any:
            d = mjx.step(model, d.replace(ctrl=u))
            return d, (1 - jnp.cos(d.qpos[1])) + 0.1 * d.qpos[0] ** 2 + 0.01 * jnp.sum(u**2)

        return jnp.sum(jax.lax.scan(step, data.replace(qpos=qpos), controls)[1])

    return jax.vmap(jax.value_and_grad(cost)), (0.3 * normal(0, 8, 8, 1), 0.2 * normal(1, 8, 2))


def jaxmarl_overcooked_rollout() -> Program:
    """Two cooks in a cramped room, 20 random steps."""
    import jaxmarl

    env = jaxmarl.make("overcooked")

    def rollout(key: jax.Array) -> Any:
        k0, k1 = jax.random.split(key)
        _, state = env.reset(k0)

        def step(state: Any, key: jax.Array) -> Any:
            keys = jax.random.split(key, 1 + env.num_agents)
            actions = {
                a: env.action_space(a).sample(k) for a, k in zip(env.agents, keys[1:], strict=True)
            }
            obs, state, reward, done, _ = env.step(keys[0], state, actions)
            return state, (obs, reward, done)

        return jax.lax.scan(step, state, jax.random.split(k1, 20))[1]

    return rollout, (jax.random.PRNGKey(0),)


WORKLOADS: dict[str, Builder] = {
    "gymnax-space-invaders-rollout": gymnax_space_invaders_rollout,
    "gymnax-swimmer-rollout": gymnax_swimmer_rollout,
    "brax-cheetah-network-rollout": brax_cheetah_spring_policy_rollout,
    "brax-double-pendulum-analytic-grad": brax_double_pendulum_analytic_grad,
    "jumanji-tetris-rollout": jumanji_tetris_rollout,
    "jumanji-salesman-rollout": jumanji_job_tsp_rollout,
    "pgx-hex-selfplay": pgx_hex_selfplay,
    "pgx-freeway-rollout": pgx_freeway_rollout,
    "navix-door-key-rollout": navix_doorkey_vmap_rollout,
    "xminigrid-xland-rollout": xland_trivial_ruleset_rollout,
    "craftax-classic-rollout": craftax_classic_rollout,
    "mjx-cartpole-shooting-grad": mjx_cartpole_shooting_grad,
    "jaxmarl-overcooked-rollout": jaxmarl_overcooked_rollout,
}
