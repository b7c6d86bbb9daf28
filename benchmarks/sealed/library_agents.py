"""Reinforcement learning, search and evolution, with the environment in the same program.

Libraries: gymnax, flashbax, pgx, mctx, jumanji, evosax, brax, distrax, rlax, equinox and optax.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.sealed.common import Program, integers, normal, strong, uniform

__all__ = ["WORKLOADS"]

Weights = dict[str, jax.Array]


def perceptron(seed: int, *sizes: int) -> Weights:
    """Weights of a perceptron."""
    pairs = enumerate(pairwise(sizes))
    return {f"w{i}": normal(seed + i, n, m) / n**0.5 for i, (n, m) in pairs}


def apply(weights: Weights, x: jax.Array) -> jax.Array:
    """The outputs of a perceptron."""
    for index in range(len(weights) - 1):
        x = jnp.tanh(x @ weights[f"w{index}"])
    return x @ weights[f"w{len(weights) - 1}"]


def actor_critic(weights: Any, x: jax.Array) -> tuple[Any, jax.Array]:
    """The policy and the value of observations."""
    import distrax

    policy = distrax.Categorical(logits=apply(weights["actor"], x))
    return policy, apply(weights["critic"], x)[..., 0]


def cartpole_rollout(weights: Any, key: jax.Array) -> tuple[jax.Array, ...]:
    """Observations, actions, their log probabilities, advantages and returns of 32 games."""
    import gymnax
    import rlax

    environment, constants = gymnax.make("CartPole-v1")

    def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        observed, state = carry
        act, move = jax.random.split(key)
        policy, value = actor_critic(weights, observed)
        action, log_prob = policy.sample_and_log_prob(seed=act)
        following = jax.vmap(environment.step, (0, 0, 0, None))
        out = following(jax.random.split(move, 32), state, action, constants)
        return out[:2], (observed, action, log_prob, value, out[2], out[3])

    start, steps = jax.random.split(key)
    carry = jax.vmap(environment.reset, (0, None))(jax.random.split(start, 32), constants)
    carry, batch = jax.lax.scan(step, carry, jax.random.split(steps, 128))
    values = jnp.concatenate([batch[3], actor_critic(weights, carry[0])[1][None]])
    discounts = 0.99 * (1.0 - batch[5].astype(jnp.float32))
    estimate = jax.vmap(rlax.truncated_generalized_advantage_estimation, (1, 1, None, 1), 1)
    advantages = estimate(batch[4], discounts, 0.95, values)
    return (*batch[:3], advantages, advantages + batch[3])


def proximal_policy_cartpole() -> Program:
    """A rollout of CartPole in gymnax and an epoch of clipped policy updates on it."""
    import optax
    import rlax

    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-4))

    def loss(weights: Any, batch: tuple[jax.Array, ...]) -> jax.Array:
        observed, action, old, advantages, returns = batch
        policy, value = actor_critic(weights, observed)
        ratios = jnp.exp(policy.log_prob(action) - old)
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        surrogate = rlax.clipped_surrogate_pg_loss(ratios, scaled, 0.2)
        return surrogate + 0.5 * jnp.mean((value - returns) ** 2) - 0.01 * policy.entropy().mean()

    def update(carry: Any, batch: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
        weights, state = carry
        value, gradient = jax.value_and_grad(loss)(weights, batch)
        updates, state = optimizer.update(gradient, state, weights)
        return (optax.apply_updates(weights, updates), state), value

    def train(weights: Any, state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        roll, shuffle = jax.random.split(key)

        def minibatches(x: jax.Array) -> jax.Array:
            x = jax.random.permutation(shuffle, x.reshape(4096, *x.shape[2:]))
            return x.reshape(4, 1024, *x.shape[1:])

        batch = jax.tree.map(minibatches, cartpole_rollout(weights, roll))
        return jax.lax.scan(update, (weights, state), batch)

    weights = {"actor": perceptron(1, 4, 64, 64, 2), "critic": perceptron(5, 4, 64, 64, 1)}
    return train, (weights, optimizer.init(weights), jax.random.PRNGKey(0))


def double_q_loss(weights: Weights, target: Weights, sample: Any) -> jax.Array:
    """The loss of double Q-learning on a sample of pairs of steps."""
    import rlax

    first, second = sample.first, sample.second
    errors = jax.vmap(rlax.double_q_learning)(
        apply(weights, first["seen"]),
        first["action"],
        first["reward"],
        0.99 * (1.0 - first["done"].astype(jnp.float32)),
        apply(target, second["seen"]),
        apply(weights, second["seen"]),
    )
    return jnp.mean(rlax.huber_loss(errors))


def filled(buffer: Any, seen: jax.Array) -> Any:
    """A memory of 24 random steps of as many games as there are observations."""
    add = jax.jit(lambda memory, record: buffer.add(memory, record))
    memory, games = None, seen.shape[0]
    for index in range(24):
        record = {"seen": uniform(index, *seen.shape), "action": integers(index, 3, games)}
        record |= {"reward": normal(index, games), "done": jnp.zeros(games, bool)}
        if memory is None:
            memory = buffer.init(jax.tree.map(lambda x: x[0], record))
        memory = add(memory, record)
    return memory


def replay_q_learning() -> Program:
    """One step of Catch in gymnax, into a flashbax buffer, and a double Q-learning update."""
    import flashbax
    import gymnax
    import optax
    import rlax

    environment, constants = gymnax.make("Catch-bsuite")
    optimizer = optax.adam(5e-4, eps=1e-3)
    buffer = flashbax.make_flat_buffer(512, 32, 16, add_batch_size=4)
    choices = rlax.epsilon_greedy(0.1).sample

    def step(
        learner: tuple[Weights, Weights, Any], memory: Any, world: Any, key: jax.Array
    ) -> tuple[Any, ...]:
        weights, target, state = learner
        seen, inner = world
        explore, move, draw = jax.random.split(key, 3)
        action = jax.vmap(choices)(jax.random.split(explore, 4), apply(weights, seen))
        keys = jax.random.split(move, 4)
        out = jax.vmap(environment.step, (0, 0, 0, None))(keys, inner, action, constants)
        record = {"seen": seen, "action": action, "reward": out[2], "done": out[3]}
        memory = buffer.add(memory, record)
        sample = buffer.sample(memory, draw).experience
        value, gradient = jax.value_and_grad(double_q_loss)(weights, target, sample)
        updates, state = optimizer.update(gradient, state, weights)
        weights = optax.apply_updates(weights, updates)
        target = optax.incremental_update(weights, target, 0.01)
        return (weights, target, state), memory, (out[0].reshape(4, -1), out[1]), value

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    seen, inner = jax.vmap(environment.reset, (0, None))(keys, constants)
    seen = seen.reshape(4, -1)
    weights, target = (perceptron(seed, seen.shape[1], 32, 32, 3) for seed in (3, 7))
    learner = (weights, target, optimizer.init(weights))
    return step, strong((learner, filled(buffer, seen), (seen, inner), jax.random.PRNGKey(1)))


def opened(environment: Any) -> Any:
    """The states of 32 games after six random moves."""
    state = jax.vmap(environment.init)(jax.random.split(jax.random.PRNGKey(0), 32))
    advance = jax.jit(jax.vmap(environment.step))
    for move in range(6):
        state = advance(state, integers(move, 7, 32))
    return state


def evaluate(weights: Weights, state: Any) -> tuple[jax.Array, jax.Array]:
    """The logits of the moves and the value of boards of Connect Four."""
    board = state.observation.reshape(state.observation.shape[0], -1).astype(jnp.float32)
    out = apply(weights, board)
    logits = jnp.where(state.legal_action_mask, out[:, :7], -1e9)
    return logits, jnp.tanh(out[:, 7])


def search_connect_four() -> Program:
    """A Gumbel search of 32 simulations in 32 games of Connect Four of pgx by mctx."""
    import mctx
    import pgx

    environment = pgx.make("connect_four")

    def recurrent(weights: Weights, key: jax.Array, action: jax.Array, state: Any) -> Any:
        player = state.current_player
        state = jax.vmap(environment.step)(state, action)
        logits, value = evaluate(weights, state)
        output = mctx.RecurrentFnOutput(
            reward=jnp.take_along_axis(state.rewards, player[:, None], 1)[:, 0],
            discount=jnp.where(state.terminated, 0.0, -1.0),
            prior_logits=logits,
            value=jnp.where(state.terminated, 0.0, value),
        )
        return output, state

    def play(weights: Weights, key: jax.Array, state: Any) -> tuple[jax.Array, ...]:
        logits, value = evaluate(weights, state)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        policy = mctx.gumbel_muzero_policy(
            weights,
            key,
            root,
            recurrent,
            num_simulations=32,
            invalid_actions=~state.legal_action_mask,
            max_num_considered_actions=7,
        )
        following = jax.vmap(environment.step)(state, policy.action)
        return policy.action, policy.action_weights, following.observation

    weights = perceptron(1, 84, 64, 64, 8)
    return play, (weights, jax.random.PRNGKey(1), opened(environment))


def jumanji_knapsack_rollout() -> Program:
    """Policy gradient of a scorer of items over eight whole episodes of jumanji's Knapsack."""
    import jumanji

    environment = jumanji.make("Knapsack-v1")

    def logits(weights: Weights, observed: Any) -> jax.Array:
        items = jnp.stack(
            [observed.weights, observed.values, observed.values / (observed.weights + 0.1)], -1
        )
        scores = apply(weights, items)[:, 0]
        return jnp.where(observed.action_mask, scores, -1e9)

    def episode(weights: Weights, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            state, timestep = carry
            scores = logits(weights, timestep.observation)
            action = jax.random.categorical(key, scores)
            live = timestep.observation.action_mask.any()
            chosen = jnp.where(live, jax.nn.log_softmax(scores)[action], 0.0)
            carry = environment.step(state, action)
            return carry, (jnp.where(live, carry[1].reward, 0.0), chosen)

        first, rest = jax.random.split(key)
        carry = environment.reset(first)
        rewards, chosen = jax.lax.scan(step, carry, jax.random.split(rest, 40))[1]
        return rewards.sum(), chosen.sum()

    def loss(weights: Weights, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        rewards, chosen = jax.vmap(episode, (None, 0))(weights, jax.random.split(key, 8))
        advantage = jax.lax.stop_gradient(rewards - rewards.mean())
        return -jnp.mean(advantage * chosen), rewards

    return jax.value_and_grad(loss, has_aux=True), (
        perceptron(1, 3, 32, 32, 1),
        jax.random.PRNGKey(0),
    )


def evolution_pendulum() -> Program:
    """A generation of natural evolution of 128 policies on Pendulum in gymnax, of 100 steps."""
    import gymnax
    from evosax.algorithms import SNES

    environment, constants = gymnax.make("Pendulum-v1")
    weights = perceptron(1, 3, 16, 1)
    strategy = SNES(population_size=128, solution=weights)
    parameters = strategy.default_params

    def episode(weights: Weights, key: jax.Array) -> jax.Array:
        def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            observed, state = carry
            action = 2.0 * jnp.tanh(apply(weights, observed))
            out = environment.step(key, state, action, constants)
            return out[:2], out[2]

        first, rest = jax.random.split(key)
        carry = environment.reset(first, constants)
        return -jax.lax.scan(step, carry, jax.random.split(rest, 100))[1].mean()

    def generation(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        ask, play, tell = jax.random.split(key, 3)
        population, state = strategy.ask(ask, state, parameters)
        fitness = jax.vmap(episode, (0, None))(population, play)
        return strategy.tell(tell, population, fitness, state, parameters)[0], fitness

    state = strong(jax.jit(strategy.init)(jax.random.PRNGKey(0), weights, parameters))
    return generation, (state, jax.random.PRNGKey(1))


def brax_random_search() -> Program:
    """A step of augmented random search of a linear policy of brax's inverted pendulum."""
    from brax import envs

    environment = envs.get_environment("inverted_pendulum", backend="spring")

    def cost(policy: jax.Array, start: Any) -> jax.Array:
        def step(state: Any, _: None) -> tuple[Any, jax.Array]:
            state = environment.step(state, jnp.tanh(state.obs @ policy))
            return state, state.obs[1] ** 2 + 0.1 * state.obs[3] ** 2

        return jax.lax.scan(step, start, None, length=20)[1].mean()

    def search(policy: jax.Array, key: jax.Array, start: Any) -> tuple[jax.Array, jax.Array]:
        directions = jax.random.normal(key, (16, *policy.shape))
        candidates = jnp.concatenate([policy + 0.1 * directions, policy - 0.1 * directions])
        plus, minus = jax.vmap(cost, (0, None))(candidates, start).reshape(2, 16)
        spread = jnp.concatenate([plus, minus]).std() + 1e-3
        update = jnp.einsum("k,kij->ij", plus - minus, directions) / (16 * spread)
        return policy - 0.05 * update, jnp.stack([plus, minus])

    start = strong(jax.jit(environment.reset)(jax.random.PRNGKey(0)))
    return search, (0.3 * normal(1, 4, 1), jax.random.PRNGKey(1), start)


WORKLOADS: dict[str, Callable[[], Program]] = {
    "proximal-policy-cartpole": proximal_policy_cartpole,
    "replay-q-learning": replay_q_learning,
    "search-connect-four": search_connect_four,
    "jumanji-knapsack-rollout": jumanji_knapsack_rollout,
    "evolution-pendulum": evolution_pendulum,
    "brax-random-search": brax_random_search,
}
