"""Updates of agents, search, evolution and simulations of many agents."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tutorials.common import Builder, Program, as_arrays, normal, uniform


def evosax_snes_rastrigin_scan() -> Program:
    """SNES on a Rastrigin function of 20 dimensions, population 64, 30 generations by a scan."""
    from evosax.algorithms import SNES

    strategy = SNES(population_size=64, solution=jnp.zeros(20))
    params = strategy.default_params
    start = strategy.init(jax.random.PRNGKey(0), 2.0 + jnp.zeros(20), params)

    def evolve(state: Any, key: jax.Array) -> Any:
        def generation(state: Any, key: jax.Array) -> Any:
            ask, tell = jax.random.split(key)
            population, state = strategy.ask(ask, state, params)
            fitness = 200.0 + jnp.sum(population**2 - 10 * jnp.cos(2 * jnp.pi * population), -1)
            state, metrics = strategy.tell(tell, population, fitness, state, params)
            return state, metrics["best_fitness"]

        state, best = jax.lax.scan(generation, state, jax.random.split(key, 30))
        return state.mean, best

    return evolve, (as_arrays(start), jax.random.PRNGKey(1))


def evosax_simple_ga_cartpole() -> Program:
    """Genetic algorithm over a small policy of a cart pole: 3 generations of 32 members, 40 steps each."""
    import gymnax
    from evosax.algorithms import SimpleGA

    env, env_params = gymnax.make("CartPole-v1")
    solution = {"w1": jnp.zeros((4, 16)), "b1": jnp.zeros(16), "w2": jnp.zeros((16, 2))}
    strategy = SimpleGA(population_size=32, solution=solution)
    params = strategy.default_params
    population = jax.tree.map(
        lambda x: 0.5 * jax.random.normal(jax.random.PRNGKey(x.size), (32, *x.shape)), solution
    )
    start = strategy.init(jax.random.PRNGKey(0), population, jnp.zeros(32), params)

    def score(policy: Any, key: jax.Array) -> jax.Array:
        obs, state = env.reset(key, env_params)

        def step(carry: Any, key: jax.Array) -> Any:
            obs, state, alive = carry
            action = jnp.argmax(jnp.tanh(obs @ policy["w1"] + policy["b1"]) @ policy["w2"])
            obs, state, reward, *done, _ = env.step(key, state, action, env_params)
            ended = done[0] | done[-1]
            return (obs, state, alive * (1 - ended)), reward * alive

        return -jax.lax.scan(step, (obs, state, 1.0), jax.random.split(key, 40))[1].sum()

    def evolve(state: Any, key: jax.Array) -> Any:
        def generation(state: Any, key: jax.Array) -> Any:
            ask, tell, roll = jax.random.split(key, 3)
            population, state = strategy.ask(ask, state, params)
            fitness = jax.vmap(score, (0, None))(population, roll)
            state, metrics = strategy.tell(tell, population, fitness, state, params)
            return state, (fitness, metrics["best_fitness"])

        state, history = jax.lax.scan(generation, state, jax.random.split(key, 3))
        return state.population, history

    return evolve, (as_arrays(start), jax.random.PRNGKey(1))


def mctx_stochastic_muzero() -> Program:
    """Stochastic MuZero with afterstates and chance outcomes, 10 simulations for 4 roots."""
    import mctx

    actions, chances = 4, 5
    params = {
        "dec": 0.3 * normal(0, 16 + actions, 16),
        "cha": 0.3 * normal(1, 16 + chances, 16),
        "pi": 0.3 * normal(2, 16, actions),
        "v": 0.3 * normal(3, 16, 1),
        "chance": normal(4, 16, chances),
    }

    def decision(params: Any, key: jax.Array, action: jax.Array, state: Any) -> Any:
        h = jnp.tanh(jnp.concatenate([state, jax.nn.one_hot(action, actions)], -1) @ params["dec"])
        return mctx.DecisionRecurrentFnOutput(
            chance_logits=h @ params["chance"], afterstate_value=(h @ params["v"])[:, 0]
        ), h

    def chance(params: Any, key: jax.Array, outcome: jax.Array, after: Any) -> Any:
        h = jnp.tanh(jnp.concatenate([after, jax.nn.one_hot(outcome, chances)], -1) @ params["cha"])
        value = (h @ params["v"])[:, 0]
        return mctx.ChanceRecurrentFnOutput(
            action_logits=h @ params["pi"],
            value=value,
            reward=0.1 * value,
            discount=jnp.full(value.shape, 0.99),
        ), h

    def search(params: Any, key: jax.Array, obs: jax.Array) -> Any:
        root = mctx.RootFnOutput(
            prior_logits=obs @ params["pi"], value=(obs @ params["v"])[:, 0], embedding=obs
        )
        out = mctx.stochastic_muzero_policy(params, key, root, decision, chance, num_simulations=10)
        return out.action, out.action_weights

    return search, (params, jax.random.PRNGKey(5), normal(6, 4, 16))


def rlax_quantile_dqn_step() -> Program:
    """QR-DQN update with a haiku network, 51 quantiles, target network and Adam."""
    import haiku as hk
    import optax
    import rlax

    net = hk.without_apply_rng(
        hk.transform(lambda x: hk.Reshape((51, 4))(hk.nets.MLP([64, 64, 51 * 4])(x)))
    )
    params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, 8)))
    taus = (jnp.arange(51) + 0.5) / 51.0
    opt = optax.adam(1e-3)

    def update(params: Any, target: Any, state: Any, batch: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            q, q_sel, q_t = (
                net.apply(params, batch["s"]),
                net.apply(params, batch["s2"]),
                net.apply(target, batch["s2"]),
            )
            errors = jax.vmap(rlax.quantile_q_learning, (0, None, 0, 0, 0, 0, 0, None))(
                q, taus, batch["a"], batch["r"], batch["d"], q_sel, q_t, 1.0
            )
            return jnp.mean(errors)

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state)
        params = optax.apply_updates(params, updates)
        return params, optax.incremental_update(params, target, 0.01), state, value

    batch = {
        "s": normal(1, 64, 8),
        "s2": normal(2, 64, 8),
        "r": normal(3, 64),
        "d": 0.99 * jnp.ones(64),
        "a": jax.random.randint(jax.random.PRNGKey(4), (64,), 0, 4),
    }
    return update, (params, params, opt.init(params), batch)


def rlax_ddpg_td_lambda_updates() -> Program:
    """DPG actor and TD(lambda) critic with popart-like normalisation over 4 inner updates."""
    import rlax

    def actor(p: Any, s: jax.Array) -> jax.Array:
        return jnp.tanh(jax.nn.relu(s @ p["a1"]) @ p["a2"])

    def critic(p: Any, s: jax.Array, a: jax.Array) -> jax.Array:
        return (jax.nn.elu(jnp.concatenate([s, a], -1) @ p["c1"]) @ p["c2"])[..., 0]

    def run(params: Any, s: jax.Array, r: jax.Array, d: jax.Array, key: jax.Array) -> Any:
        def loss(p: Any, noise: jax.Array) -> jax.Array:
            a = actor(p, s)
            q = critic(p, s, jax.lax.stop_gradient(a + noise))
            td = jax.vmap(rlax.td_lambda, (0, 0, 0, 0, None))(q[:, :-1], r, d, q[:, 1:], 0.9)
            frozen = jax.lax.stop_gradient(p)
            dqda = jax.grad(lambda a: critic(frozen, s, a).sum())(a)
            dpg = jax.vmap(jax.vmap(rlax.dpg_loss, (0, 0, None)), (0, 0, None))(a, dqda, 1.0)
            return jnp.mean(rlax.huber_loss(td)) + jnp.mean(dpg)

        def step(p: Any, key: jax.Array) -> Any:
            noise = rlax.add_gaussian_noise(key, jnp.zeros((*s.shape[:2], 3)), 0.1)
            value, grads = jax.value_and_grad(loss)(p, noise)
            return jax.tree.map(lambda x, g: x - 1e-2 * g, p, grads), value

        return jax.lax.scan(step, params, jax.random.split(key, 4))

    params = {
        "a1": 0.2 * normal(0, 10, 64),
        "a2": 0.2 * normal(1, 64, 3),
        "c1": 0.2 * normal(2, 13, 64),
        "c2": 0.2 * normal(3, 64, 1),
    }
    return run, (
        params,
        normal(4, 16, 21, 10),
        normal(5, 16, 20),
        0.97 * jnp.ones((16, 20)),
        jax.random.PRNGKey(6),
    )


def flashbax_item_buffer_dqn_scan() -> Program:
    """Flat replay buffer fed by a scan and sampled for a linear Q update, 8 cycles."""
    import flashbax as fbx

    buffer = fbx.make_flat_buffer(
        max_length=512, min_length=8, sample_batch_size=32, add_batch_size=16
    )
    state = buffer.init({"obs": jnp.zeros(8), "act": jnp.int32(0), "rew": jnp.float32(0.0)})

    def run(state: Any, w: jax.Array, key: jax.Array) -> Any:
        def cycle(carry: Any, key: jax.Array) -> Any:
            state, w = carry
            k1, k2, k3 = jax.random.split(key, 3)
            obs = jax.random.normal(k1, (16, 8))
            act = jax.random.randint(k2, (16,), 0, 4)
            state = buffer.add(state, {"obs": obs, "act": act, "rew": jnp.sin(obs[:, 0])})
            pair = buffer.sample(state, k3).experience
            first, second = pair.first, pair.second

            def loss(w: jax.Array) -> jax.Array:
                q = jnp.take_along_axis(first["obs"] @ w, first["act"][:, None], 1)[:, 0]
                target = first["rew"] + 0.9 * jnp.max(second["obs"] @ jax.lax.stop_gradient(w), -1)
                return jnp.mean((q - target) ** 2)

            value, grad = jax.value_and_grad(loss)(w)
            return (state, w - 0.05 * grad), value

        (_, w), losses = jax.lax.scan(cycle, (state, w), jax.random.split(key, 8))
        return w, losses

    return run, (as_arrays(state), 0.1 * normal(0, 8, 4), jax.random.PRNGKey(1))


def esquilax_boids_steps() -> Program:
    """Boids of the esquilax examples: spatial interactions of 100 agents on a torus, 6 steps."""
    import esquilax

    def observe(params: Any, a: Any, b: Any) -> Any:
        away = esquilax.utils.shortest_vector(a["x"], b["x"])
        return {"n": 1, "x": b["x"], "v": b["v"], "away": -away / (jnp.sum(away**2) + 1e-3)}

    reduction = esquilax.reductions.Reduction(
        fn={"n": jnp.add, "x": jnp.add, "v": jnp.add, "away": jnp.add},
        id={"n": 0, "x": jnp.zeros(2), "v": jnp.zeros(2), "away": jnp.zeros(2)},
    )

    def run(x: jax.Array, v: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, v = carry
            agents = {"x": x, "v": v}
            seen = esquilax.transforms.spatial(
                observe, reduction=reduction, include_self=False, i_range=0.1
            )(None, agents, agents, pos=x)
            n = jnp.maximum(seen["n"], 1)[:, None]
            turn = 0.1 * (seen["v"] / n - v) + 0.01 * (seen["x"] / n - x) + 1e-5 * seen["away"]
            v = v + jnp.where(seen["n"][:, None] > 0, turn, 0.0)
            v = v / (jnp.linalg.norm(v, axis=-1, keepdims=True) + 1e-6) * 0.02
            x = (x + v) % 1.0
            return (x, v), (x, seen["n"])

        return jax.lax.scan(step, (x, v), None, length=6)[1]

    return run, (uniform(0, 100, 2), 0.02 * normal(1, 100, 2))


def chex_dataclass_kalman_variants() -> Program:
    """A tracker written with chex dataclasses and assertions: filter 24 targets over 40 steps."""
    import chex

    @chex.dataclass
    class Track:
        mean: chex.Array
        cov: chex.Array

    f = jnp.eye(4).at[0, 2].set(0.1).at[1, 3].set(0.1)
    h = jnp.eye(2, 4)

    def run(obs: jax.Array) -> Any:
        chex.assert_rank(obs, 3)
        chex.assert_shape(obs, (24, None, 2))

        def one(obs: jax.Array) -> Any:
            def step(track: Any, z: jax.Array) -> Any:
                mean = f @ track.mean
                cov = f @ track.cov @ f.T + 1e-2 * jnp.eye(4)
                s = h @ cov @ h.T + 0.1 * jnp.eye(2)
                gain = jnp.linalg.solve(s, h @ cov).T
                track = Track(mean=mean + gain @ (z - h @ mean), cov=(jnp.eye(4) - gain @ h) @ cov)
                chex.assert_equal_shape([track.mean, mean])
                return track, track.mean

            return jax.lax.scan(step, Track(mean=jnp.zeros(4), cov=jnp.eye(4)), obs)

        return jax.vmap(one)(obs)

    return run, (jnp.cumsum(0.2 * normal(0, 24, 40, 2), axis=1),)


WORKLOADS: dict[str, Builder] = {
    "evosax-snes-rastrigin-scan": evosax_snes_rastrigin_scan,
    "evosax-genetic-cartpole": evosax_simple_ga_cartpole,
    "mctx-stochastic-muzero": mctx_stochastic_muzero,
    "rlax-quantile-network-update": rlax_quantile_dqn_step,
    "rlax-deterministic-gradient-updates": rlax_ddpg_td_lambda_updates,
    "flashbax-flat-buffer-cycles": flashbax_item_buffer_dqn_scan,
    "esquilax-boids-steps": esquilax_boids_steps,
    "chex-kalman-targets": chex_dataclass_kalman_variants,
}
