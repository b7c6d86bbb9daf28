"""Reinforcement learning: search, losses, replay buffers, games and simulators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, as_arrays, mlp_apply, mlp_params, normal, uniform


def _muzero_networks(batch: int, actions: int) -> tuple[Any, Any, Any]:
    """Parameters, root function and recurrent function of a small latent-dynamics model."""
    import mctx

    params = {
        "prediction": mlp_params(0, (32, 32, actions + 1)),
        "dynamics": mlp_params(10, (32 + actions, 32, 33)),
    }

    def root(params: Any, embedding: jax.Array) -> Any:
        out = mlp_apply(params["prediction"], embedding)
        return mctx.RootFnOutput(prior_logits=out[:, 1:], value=out[:, 0], embedding=embedding)

    def recurrent(params: Any, key: jax.Array, action: jax.Array, embedding: jax.Array) -> Any:
        del key
        inputs = jnp.concatenate([embedding, jax.nn.one_hot(action, actions)], axis=-1)
        out = mlp_apply(params["dynamics"], inputs)
        embedding = jnp.tanh(out[:, 1:])
        prediction = mlp_apply(params["prediction"], embedding)
        step = mctx.RecurrentFnOutput(
            reward=out[:, 0],
            discount=jnp.full(batch, 0.99),
            prior_logits=prediction[:, 1:],
            value=prediction[:, 0],
        )
        return step, embedding

    return params, root, recurrent


def mctx_gumbel_muzero() -> Program:
    """Gumbel MuZero search with sequential halving at the root."""
    import mctx

    params, root, recurrent = _muzero_networks(8, 6)

    def search(params: Any, key: jax.Array, embedding: jax.Array) -> Any:
        out = mctx.gumbel_muzero_policy(
            params, key, root(params, embedding), recurrent, num_simulations=12
        )
        return out.action, out.action_weights, out.search_tree.summary().value

    return search, (params, jax.random.PRNGKey(1), normal(2, 8, 32))


def mctx_muzero_policy() -> Program:
    """MuZero search with invalid actions, Dirichlet noise and a depth limit."""
    import mctx

    params, root, recurrent = _muzero_networks(8, 6)

    def search(params: Any, key: jax.Array, embedding: jax.Array, invalid: jax.Array) -> Any:
        out = mctx.muzero_policy(
            params,
            key,
            root(params, embedding),
            recurrent,
            num_simulations=10,
            invalid_actions=invalid,
            max_depth=5,
        )
        return out.action, out.action_weights, out.search_tree.node_visits

    invalid = (uniform(3, 8, 6) > 0.7).astype(jnp.float32).at[:, 0].set(0.0)
    return search, (params, jax.random.PRNGKey(1), normal(2, 8, 32), invalid)


def _pgx_selfplay(game: str, batch: int, steps: int) -> Program:
    """Program that plays uniformly random legal moves on a batch of boards."""
    import pgx

    env = pgx.make(game)

    def play(key: jax.Array, state: Any) -> Any:
        def move(state: Any, key: jax.Array) -> Any:
            logits = jnp.where(state.legal_action_mask, 0.0, -1e9)
            action_key, step_key = jax.random.split(key)
            actions = jax.random.categorical(action_key, logits)
            state = jax.vmap(env.step)(state, actions, jax.random.split(step_key, batch))
            return state, (actions, state.rewards, state.terminated)

        state, history = jax.lax.scan(move, state, jax.random.split(key, steps))
        return state.observation, state.legal_action_mask, history

    state = jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.PRNGKey(0), batch))
    return play, (jax.random.PRNGKey(1), state)


def pgx_go_selfplay() -> Program:
    """Random self-play of go on small boards."""
    return _pgx_selfplay("go_9x9", batch=4, steps=6)


def pgx_chess_selfplay() -> Program:
    """Random self-play of chess, with its large move tables."""
    return _pgx_selfplay("chess", batch=2, steps=2)


def pgx_backgammon_selfplay() -> Program:
    """Random self-play of backgammon, with dice."""
    return _pgx_selfplay("backgammon", batch=8, steps=6)


def pgx_mctx_connect_four() -> Program:
    """Search that uses the game rules of connect four as its model."""
    import mctx
    import pgx

    env = pgx.make("connect_four")

    def evaluate(params: Any, state: Any) -> tuple[jax.Array, jax.Array]:
        out = mlp_apply(params, state.observation.reshape(-1).astype(jnp.float32))
        return jnp.where(state.legal_action_mask, out[1:], -1e9), jnp.tanh(out[0])

    def recurrent(params: Any, key: jax.Array, action: jax.Array, state: Any) -> Any:
        del key
        player = state.current_player
        state = jax.vmap(env.step)(state, action)
        logits, value = jax.vmap(evaluate, in_axes=(None, 0))(params, state)
        reward = jnp.take_along_axis(state.rewards, player[:, None], axis=1)[:, 0]
        discount = jnp.where(state.terminated, 0.0, -1.0)
        step = mctx.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value * (discount != 0)
        )
        return step, state

    def search(params: Any, key: jax.Array, state: Any) -> Any:
        logits, value = jax.vmap(evaluate, in_axes=(None, 0))(params, state)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        out = mctx.gumbel_muzero_policy(params, key, root, recurrent, num_simulations=8)
        return out.action, out.action_weights

    state = jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.PRNGKey(0), 4))
    return search, (mlp_params(1, (84, 32, 8)), jax.random.PRNGKey(2), state)


def _gymnax_rollout(name: str, batch: int, steps: int) -> Program:
    """Program that rolls a stochastic perceptron policy out in gymnax environments."""
    import gymnax

    env, env_params = gymnax.make(name)

    def rollout(policy: Any, key: jax.Array, obs: jax.Array, state: Any) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            obs, state = carry
            action_key, step_key = jax.random.split(key)
            logits = mlp_apply(policy, obs.reshape(batch, -1).astype(jnp.float32))
            actions = jax.random.categorical(action_key, logits)
            keys = jax.random.split(step_key, batch)
            obs, state, reward, terminated, truncated, _ = jax.vmap(
                env.step, in_axes=(0, 0, 0, None)
            )(keys, state, actions, env_params)
            return (obs, state), (reward, terminated | truncated)

        (obs, _), history = jax.lax.scan(step, (obs, state), jax.random.split(key, steps))
        return obs, history

    keys = jax.random.split(jax.random.PRNGKey(0), batch)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(keys, env_params)
    policy = mlp_params(1, (obs[0].size, 32, env.num_actions))
    return rollout, (policy, jax.random.PRNGKey(2), obs, as_arrays(state))


def gymnax_cartpole_rollout() -> Program:
    """Policy rollout on a batch of cart poles."""
    return _gymnax_rollout("CartPole-v1", batch=32, steps=32)


def gymnax_breakout_rollout() -> Program:
    """Policy rollout on a batch of miniature breakout games."""
    return _gymnax_rollout("Breakout-MinAtar", batch=8, steps=16)


def _jumanji_rollout(name: str, steps: int) -> Program:
    """Program that takes random valid actions in a batch of jumanji environments."""
    import jumanji

    env = jumanji.make(name)

    def rollout(key: jax.Array, state: Any, mask: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            state, mask = carry
            actions = jax.random.categorical(key, jnp.where(mask, 0.0, -1e9))
            state, timestep = jax.vmap(env.step)(state, actions)
            carry = state, timestep.observation.action_mask
            return carry, (actions, timestep.reward, timestep.discount)

        (_, mask), history = jax.lax.scan(step, (state, mask), jax.random.split(key, steps))
        return mask, history

    keys = jax.random.split(jax.random.PRNGKey(0), 8)
    state, timestep = jax.jit(jax.vmap(env.reset))(keys)
    return rollout, (jax.random.PRNGKey(1), state, timestep.observation.action_mask)


def jumanji_snake_rollout() -> Program:
    """Random valid moves in a batch of snake games."""
    return _jumanji_rollout("Snake-v1", steps=12)


def jumanji_game_2048_rollout() -> Program:
    """Random valid moves in a batch of sliding 2048 boards."""
    return _jumanji_rollout("Game2048-v1", steps=12)


def flashbax_prioritised_cycle() -> Program:
    """Add, sample and re-prioritise with a prioritised trajectory buffer."""
    import flashbax

    buffer = flashbax.make_prioritised_trajectory_buffer(
        add_batch_size=4,
        sample_batch_size=256,
        sample_sequence_length=4,
        period=2,
        min_length_time_axis=8,
        max_length_time_axis=64,
    )

    def cycle(state: Any, key: jax.Array, experience: Any) -> Any:
        state = buffer.add(state, experience)
        batch = buffer.sample(state, key)
        priorities = 0.1 + jnp.abs(batch.experience["reward"]).sum(axis=1)
        state = buffer.set_priorities(state, batch.indices, priorities)
        return batch.experience, batch.indices, state.sum_tree_state.nodes

    state = buffer.init({"obs": jnp.zeros(16), "reward": jnp.zeros(())})
    experience = {"obs": normal(0, 4, 16, 16), "reward": normal(1, 4, 16)}
    return cycle, (as_arrays(state), jax.random.PRNGKey(2), experience)


def rlax_vtrace_actor_critic_grad() -> Program:
    """Gradient of an IMPALA-style actor-critic loss on a batch of trajectories."""
    import rlax

    def loss(params: Any, obs: jax.Array, actions: jax.Array, data: Any) -> jax.Array:
        rewards, discounts, behaviour = data
        out = mlp_apply(params, obs)
        values, logits = out[..., 0], out[:, :-1, 1:]
        rhos = rlax.categorical_importance_sampling_ratios(logits, behaviour, actions)
        vtrace = jax.vmap(rlax.vtrace_td_error_and_advantage)(
            values[:, :-1], values[:, 1:], rewards, discounts, rhos
        )
        weights = jnp.ones_like(rewards)
        policy = jax.vmap(rlax.policy_gradient_loss)(logits, actions, vtrace.pg_advantage, weights)
        entropy = jax.vmap(rlax.entropy_loss)(logits, weights)
        return jnp.mean(0.5 * vtrace.errors**2) + policy.mean() + 0.01 * entropy.mean()

    actions = jax.random.randint(jax.random.PRNGKey(1), (16, 40), 0, 5)
    data = (normal(2, 16, 40), jnp.full((16, 40), 0.99), normal(3, 16, 40, 5))
    args = (mlp_params(4, (12, 32, 6)), normal(0, 16, 41, 12), actions, data)
    return jax.value_and_grad(loss), args


def rlax_categorical_q_grad() -> Program:
    """Gradient of the distributional double Q-learning loss."""
    import rlax

    atoms = jnp.linspace(-5.0, 5.0, 51)

    def loss(params: Any, obs: jax.Array, next_obs: jax.Array, data: Any) -> jax.Array:
        def logits(obs: jax.Array) -> jax.Array:
            return mlp_apply(params, obs).reshape(-1, 4, 51)

        def per_example(before: jax.Array, after: jax.Array, transition: Any) -> jax.Array:
            action, reward, discount = transition
            return rlax.categorical_q_learning(
                atoms, before, action, reward, discount, atoms, after
            )

        return jnp.mean(jax.vmap(per_example)(logits(obs), logits(next_obs), data))

    actions = jax.random.randint(jax.random.PRNGKey(1), (32,), 0, 4)
    data = (actions, normal(2, 32), jnp.full(32, 0.9))
    args = (mlp_params(3, (8, 64, 4 * 51)), normal(4, 32, 8), normal(5, 32, 8), data)
    return jax.value_and_grad(loss), args


def rlax_retrace_targets() -> Program:
    """Retrace errors and lambda returns of a batch of off-policy trajectories."""
    import rlax

    def targets(q: jax.Array, actions: jax.Array, data: Any) -> Any:
        rewards, discounts, behaviour = data
        policy = jax.nn.softmax(q)

        def retrace(q: jax.Array, a: jax.Array, r: jax.Array, *rest: jax.Array) -> jax.Array:
            d, pi, mu = rest
            return rlax.retrace(q[:-1], q[1:], a[:-1], a[1:], r, d, pi[1:], mu[1:], 0.9)

        errors = jax.vmap(retrace)(q, actions, rewards, discounts, policy, behaviour)
        values = jnp.sum(policy * q, axis=-1)[:, 1:]
        returns = jax.vmap(lambda r, d, v: rlax.lambda_returns(r, d, v, 0.95))
        return errors, returns(rewards, discounts, values)

    actions = jax.random.randint(jax.random.PRNGKey(1), (64, 129), 0, 5)
    behaviour = uniform(3, 64, 129) * 0.8 + 0.1
    data = (normal(2, 64, 128), jnp.full((64, 128), 0.99), behaviour)
    return targets, (normal(0, 64, 129, 5), actions, data)


def _brax_steps(name: str, backend: str, steps: int) -> Program:
    """Program that applies a few actions to a batch of brax environments."""
    from brax import envs

    env = envs.get_environment(name, backend=backend)

    def run(state: Any, actions: jax.Array) -> Any:
        def step(state: Any, action: jax.Array) -> Any:
            state = jax.vmap(env.step)(state, action)
            return state, (state.obs, state.reward)

        return jax.lax.scan(step, state, actions)[1]

    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), 4))
    return run, (as_arrays(state), jnp.tanh(normal(1, steps, 4, env.action_size)))


def brax_pendulum_generalized() -> Program:
    """Steps of an inverted pendulum in generalised coordinates."""
    return _brax_steps("inverted_pendulum", "generalized", steps=2)


def brax_hopper_spring() -> Program:
    """Steps of a hopper with spring joints and ground contact."""
    return _brax_steps("hopper", "spring", steps=1)


def brax_reacher_positional() -> Program:
    """Steps of a two-link reacher by position-based dynamics."""
    return _brax_steps("reacher", "positional", steps=2)


def brax_gae() -> Program:
    """Generalised advantage estimation over a batch of truncated trajectories."""
    from brax.training.agents.ppo.losses import compute_gae

    def gae(truncation: jax.Array, termination: jax.Array, *rest: jax.Array) -> Any:
        rewards, values, bootstrap = rest
        return compute_gae(truncation, termination, rewards, values, bootstrap, 0.95, 0.99)

    truncation = (uniform(0, 512, 128) > 0.95).astype(jnp.float32)
    termination = (uniform(1, 512, 128) > 0.95).astype(jnp.float32) * (1 - truncation)
    return gae, (truncation, termination, normal(2, 512, 128), normal(3, 512, 128), normal(4, 128))


WORKLOADS: dict[str, Builder] = {
    "mctx-gumbel-muzero": mctx_gumbel_muzero,
    "mctx-muzero-policy": mctx_muzero_policy,
    "pgx-go-selfplay": pgx_go_selfplay,
    "pgx-chess-selfplay": pgx_chess_selfplay,
    "pgx-backgammon-selfplay": pgx_backgammon_selfplay,
    "pgx-mctx-connect-four": pgx_mctx_connect_four,
    "gymnax-cartpole-rollout": gymnax_cartpole_rollout,
    "gymnax-breakout-rollout": gymnax_breakout_rollout,
    "jumanji-snake-rollout": jumanji_snake_rollout,
    "jumanji-game-2048-rollout": jumanji_game_2048_rollout,
    "flashbax-prioritised-cycle": flashbax_prioritised_cycle,
    "rlax-vtrace-actor-critic-grad": rlax_vtrace_actor_critic_grad,
    "rlax-categorical-q-grad": rlax_categorical_q_grad,
    "rlax-retrace-targets": rlax_retrace_targets,
    "brax-pendulum-generalized": brax_pendulum_generalized,
    "brax-hopper-spring": brax_hopper_spring,
    "brax-reacher-positional": brax_reacher_positional,
    "brax-gae": brax_gae,
}
