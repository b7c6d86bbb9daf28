"""Games: console emulators, board and card games, volleyball, teams on a grid."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.third_party.common import Builder, Program


def octax_brix_rollout() -> Program:
    """Twelve random moves in four emulated games of Brix."""
    from octax.environments import create_environment

    env, _ = create_environment("brix")

    def rollout(rng):
        state, obs, _ = env.reset(rng)

        def step(carry, _):
            rng, state, obs = carry
            rng, action_rng = jax.random.split(rng)
            action = jax.random.randint(action_rng, (), 0, env.num_actions)
            state, obs, reward, terminated, _, _ = env.step(state, action)
            return (rng, state, obs), (reward, terminated)

        (_, _, obs), (rewards, terminated) = jax.lax.scan(step, (rng, state, obs), length=12)
        return rewards, terminated, obs

    return jax.vmap(rollout), (jax.random.split(jax.random.PRNGKey(0), 4),)


def octax_pong_single() -> Program:
    """Twenty moves in one emulated game of Pong."""
    from octax.environments import create_environment

    env, _ = create_environment("pong")

    def run(rng, actions):
        state, obs, _ = env.reset(rng)

        def step(carry, action):
            state, obs, reward, terminated, _, _ = env.step(carry[0], action)
            return (state, obs), (reward, terminated)

        (_, obs), out = jax.lax.scan(step, (state, obs), actions)
        return obs, out

    return run, (jax.random.PRNGKey(3), jnp.arange(20) % env.num_actions)


def evojax_slimevolley_rollout() -> Program:
    """A hundred steps of sixteen volleyball games, each with a linear policy."""
    from evojax.task.slimevolley import SlimeVolley

    task = SlimeVolley(max_steps=100, test=True)
    weights = 0.3 * jax.random.normal(jax.random.PRNGKey(1), (16, 12, 3))

    def run(keys, weights):
        s = task.reset(keys)

        def step(s, _):
            s, r, d = task.step(s, jnp.tanh(jnp.einsum("bi,bij->bj", s.obs, weights)))
            return s, (r, d)

        s, out = jax.lax.scan(step, s, None, length=100)
        return s.obs, out

    return run, (jax.random.split(jax.random.PRNGKey(0), 16), weights)


def mapox_king_hill_rollout() -> Program:
    """Thirty-two random allowed moves of two teams that hold a hill, on four grids."""
    from mapox.envs.king_hill import KingHillConfig, KingHillEnv

    env = KingHillEnv(KingHillConfig(), 512)

    def one(key):
        s, ts = env.reset(key)

        def step(carry, k):
            s, mask = carry
            k1, k2 = jax.random.split(k)
            logits = jax.random.uniform(k1, (env.num_agents, env.action_spec.n))
            action = jnp.argmax(jnp.where(mask, logits, -1e9), axis=-1)
            s, ts = env.step(s, action, k2)
            return (s, ts.action_mask), (ts.reward, ts.terminated, ts.obs)

        return jax.lax.scan(step, (s, ts.action_mask), jax.random.split(key, 32))[1]

    return jax.vmap(one), (jax.random.split(jax.random.PRNGKey(0), 4),)


def _nashbench(name: str) -> Program:
    """Sixty-four random legal moves in sixty-four games that start again when they end."""
    import nashbench

    game = nashbench.make(name)
    step_one = nashbench.auto_reset(game)

    def run(keys):
        st, ts = jax.vmap(game.reset)(keys)

        def step(carry, k):
            st, ts = carry
            logits = jax.random.uniform(k, ts.legal_action_mask.shape)
            action = jnp.argmax(jnp.where(ts.legal_action_mask, logits, -1.0), axis=-1)
            st, ts = jax.vmap(step_one)(st, action.astype(jnp.int32))
            return (st, ts), (ts.reward, ts.done)

        return jax.lax.scan(step, (st, ts), jax.random.split(jax.random.PRNGKey(9), 64))[1]

    return run, (jax.random.split(jax.random.PRNGKey(0), 64),)


def nashbench_dark_hex() -> Program:
    """Random games of Hex on a board that the players do not see."""
    return _nashbench("dark_hex3")


def nashbench_leduc_poker() -> Program:
    """Random games of Leduc poker."""
    return _nashbench("leduc_poker")


def nashbench_liars_dice() -> Program:
    """Random games of liar's dice."""
    return _nashbench("liars_dice")


def nashbench_battleship() -> Program:
    """Random games of Battleship."""
    return _nashbench("battleship")


WORKLOADS: dict[str, Builder] = {
    "octax-brix-rollout": octax_brix_rollout,
    "octax-pong-single": octax_pong_single,
    "evojax-slimevolley-rollout": evojax_slimevolley_rollout,
    "mapox-king-hill-rollout": mapox_king_hill_rollout,
    "nashbench-dark-hex": nashbench_dark_hex,
    "nashbench-leduc-poker": nashbench_leduc_poker,
    "nashbench-liars-dice": nashbench_liars_dice,
    "nashbench-battleship": nashbench_battleship,
}
