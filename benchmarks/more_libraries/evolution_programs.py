"""Cellular automata, quality diversity, neuroevolution and environments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def cax_lenia_steps() -> Program:
    """Twelve steps of the continuous cellular automaton Lenia."""
    from cax.cs.lenia import Lenia, LeniaGrowthParams, LeniaKernelParams, LeniaRuleParams
    from flax import nnx

    rp = LeniaRuleParams(
        channel_source=jnp.array([0, 0]),
        channel_target=jnp.array([0, 0]),
        weight=jnp.array([1.0, 0.8]),
        kernel_params=LeniaKernelParams(
            r=jnp.array([1.0, 0.7]), beta=jnp.array([[1.0, jnp.nan], [0.5, 1.0]])
        ),
        growth_params=LeniaGrowthParams(mean=jnp.array([0.15, 0.2]), std=jnp.array([0.02, 0.03])),
    )
    cs = Lenia(spatial_dims=(256, 256), channel_size=1, R=12, T=10, rule_params=rp)
    graph, state = nnx.split(cs)

    def run(state, x):
        c = nnx.merge(graph, state)
        return jax.lax.scan(lambda x, _: (c._step(x), None), x, None, 12)[0]

    x = np.zeros((256, 256, 1), np.float32)
    x[40:90, 40:90] = np.random.default_rng(84).random((50, 50, 1))
    return run, (state, jnp.asarray(x))


def cax_nca_train_step() -> Program:
    """One Adam step of a neural cellular automaton that grows an image."""
    import optax
    from cax.core.perceive import ConvPerceive
    from cax.core.update import NCAUpdate
    from flax import nnx

    rngs = nnx.Rngs(0)

    class Model(nnx.Module):
        def __init__(self):
            self.p = ConvPerceive(
                channel_size=8, perception_size=24, rngs=rngs, feature_group_count=8
            )
            self.u = NCAUpdate(
                channel_size=8, perception_size=24, hidden_layer_sizes=(32,), rngs=rngs
            )

    graph, state, rest = nnx.split(Model(), nnx.Param, ...)
    optimizer = optax.adam(1e-3)
    x = np.zeros((2, 24, 24, 8), np.float32)
    x[:, 12, 12, 3:] = 1
    tgt = jnp.asarray(np.random.default_rng(85).random((24, 24, 4)), jnp.float32)

    def run(state, opt_state, x, tgt):
        def loss(state):
            m = nnx.merge(graph, state, rest)

            def one(x):
                for _ in range(8):
                    x = m.u(x, m.p(x), None)
                return x

            return jnp.mean((jax.vmap(one)(x)[..., :4] - tgt) ** 2)

        value, grads = jax.value_and_grad(loss)(state)
        updates, opt_state = optimizer.update(grads, opt_state, state)
        return optax.apply_updates(state, updates), opt_state, value

    return run, (state, optimizer.init(state), jnp.asarray(x), tgt)


def cax_particle_life_steps() -> Program:
    """Five steps of 400 particles that attract and repel by kind."""
    from cax.cs.particle_life import ParticleLife, ParticleLifeState

    rng = np.random.default_rng(86)
    A = jnp.asarray(rng.uniform(-1, 1, (4, 4)), jnp.float32)
    s0 = ParticleLifeState(
        class_id=jnp.asarray(rng.integers(0, 4, 400)),
        position=jnp.asarray(rng.random((400, 2)), jnp.float32),
        velocity=jnp.zeros((400, 2)),
    )

    def run(A, s):
        cs = ParticleLife(num_classes=4, velocity_half_life=0.04, attraction_matrix=A)
        return jax.lax.scan(lambda s, _: (cs._step(s), None), s, None, 5)[0]

    return run, (A, s0)


def cax_reaction_diffusion() -> Program:
    """Forty steps of a Gray-Scott reaction."""
    from cax.cs.reaction_diffusion import ReactionDiffusion

    cs = ReactionDiffusion(feed_rate=0.037, kill_rate=0.06)
    x = np.zeros((128, 128, 2), np.float32)
    x[..., 0] = 1
    x[54:74, 54:74, 1] = 0.5

    def run(x):
        return jax.lax.scan(lambda x, _: (cs._step(x), None), x, None, 40)[0]

    return run, (jnp.asarray(x),)


def qdax_map_elites_arm() -> Program:
    """Eight iterations of MAP-Elites on the reach of a robot arm."""
    import functools

    from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
    from qdax.core.emitters.mutation_operators import isoline_variation
    from qdax.core.emitters.standard_emitters import MixingEmitter
    from qdax.core.map_elites import MAPElites
    from qdax.tasks.arm import arm_scoring_function
    from qdax.utils.metrics import default_qd_metrics

    emitter = MixingEmitter(
        mutation_fn=lambda x, k: (x, k),
        variation_fn=functools.partial(
            isoline_variation, iso_sigma=0.01, line_sigma=0.1, minval=0.0, maxval=1.0
        ),
        variation_percentage=1.0,
        batch_size=256,
    )
    elites = MAPElites(
        arm_scoring_function, emitter, functools.partial(default_qd_metrics, qd_offset=1.0)
    )
    centroids = compute_euclidean_centroids((24, 24), minval=0.0, maxval=1.0)
    x0 = jax.random.uniform(jax.random.PRNGKey(87), (256, 16))

    def run(x0, centroids, k):
        rep, es, _ = elites.init(x0, centroids, k)

        def body(c, k):
            rep, es = c
            rep, es, m = elites.update(rep, es, k)
            return (rep, es), m

        (rep, es), m = jax.lax.scan(body, (rep, es), jax.random.split(k, 8))
        # Empty cells hold -inf and nan.
        ok = jnp.isfinite(rep.fitnesses)
        return jnp.where(ok, rep.fitnesses, 0.0), jnp.nan_to_num(rep.descriptors), m

    return run, (x0, centroids, jax.random.PRNGKey(88))


def evojax_waterworld_population_rollout() -> Program:
    """Twenty steps of Waterworld for 64 policies."""
    import logging

    from evojax.policy.mlp import MLPPolicy
    from evojax.task.waterworld import WaterWorld

    logger = logging.getLogger("x")
    task = WaterWorld(num_items=40, max_steps=50)
    policy = MLPPolicy(task.obs_shape[0], [32], 4, output_act_fn="softmax", logger=logger)
    params = jax.random.normal(jax.random.PRNGKey(89), (64, policy.num_params)) * 0.1

    def run(params, keys):
        s = task.reset(keys)

        def step(s, _):
            a, _ = policy.get_actions(s, params, None)
            s, r, _ = task.step(s, a)
            return s, r

        s, r = jax.lax.scan(step, s, None, 20)
        return r.sum(0), s.obs

    return run, (params, jax.random.split(jax.random.PRNGKey(90), 64))


def evojax_cartpole_swingup_rollout() -> Program:
    """Thirty steps of a cart-pole swing-up for 512 policies."""
    import logging

    from evojax.policy.mlp import MLPPolicy
    from evojax.task.cartpole import CartPoleSwingUp

    task = CartPoleSwingUp(max_steps=50)
    policy = MLPPolicy(
        task.obs_shape[0], [32, 32], task.act_shape[0], logger=logging.getLogger("x")
    )
    params = jax.random.normal(jax.random.PRNGKey(91), (512, policy.num_params)) * 0.1

    def run(params, keys):
        s = task.reset(keys)

        def step(s, _):
            s, r, _ = task.step(s, policy.get_actions(s, params, None)[0])
            return s, r

        s, r = jax.lax.scan(step, s, None, 30)
        return r.sum(0), s.obs

    return run, (params, jax.random.split(jax.random.PRNGKey(92), 512))


def evojax_flocking_rollout() -> Program:
    """Ten steps of eight flocks of birds."""
    from evojax.task.flocking import FlockingTask

    task = FlockingTask(max_steps=50)

    def run(keys):
        s = task.reset(keys)

        def step(s, _):
            s, r, _ = task.step(s, jnp.zeros((keys.shape[0], s.state.shape[1], 1)))
            return s, r

        s, r = jax.lax.scan(step, s, None, 10)
        return r, s.state

    return run, (jax.random.split(jax.random.PRNGKey(93), 8),)


def foragax_vmap_random_rollout() -> Program:
    """Forty random moves in 64 foraging worlds."""
    from foragax.env import ForagaxEnv
    from foragax.registry import make

    # Newer gymnax asks for it; the env never ends.
    ForagaxEnv.is_terminated = lambda self, state, params: jnp.array(False)
    env = make("ForagaxTwoBiomeLarge-v1")
    env_params = env.default_params

    def run(keys):
        def one(k):
            _, s = env.reset(k, env_params)

            def step(s, k):
                a = jax.random.randint(k, (), 0, 4)
                obs, s, r, _, _ = env.step(k, s, a, env_params)
                return s, (r, jax.tree.leaves(obs)[0].astype(jnp.float32).sum())

            return jax.lax.scan(step, s, jax.random.split(k, 40))[1]

        return jax.vmap(one)(keys)

    return run, (jax.random.split(jax.random.PRNGKey(94), 64),)


WORKLOADS: dict[str, Builder] = {
    "cax-lenia-steps": cax_lenia_steps,
    "cax-nca-train-step": cax_nca_train_step,
    "cax-particle-life-steps": cax_particle_life_steps,
    "cax-reaction-diffusion": cax_reaction_diffusion,
    "qdax-map-elites-arm": qdax_map_elites_arm,
    "evojax-waterworld-population-rollout": evojax_waterworld_population_rollout,
    "evojax-cartpole-swingup-rollout": evojax_cartpole_swingup_rollout,
    "evojax-flocking-rollout": evojax_flocking_rollout,
    "foragax-vmap-random-rollout": foragax_vmap_random_rollout,
}
