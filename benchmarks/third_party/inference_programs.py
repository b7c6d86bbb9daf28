"""Samplers, filters and variational inference: many small kernels in loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, as_arrays, normal, uniform


def _steps(step: Any, state: Any, key: jax.Array, count: int) -> Any:
    """Positions that ``step(key, state)`` visits in so many transitions."""

    def move(state: Any, key: jax.Array) -> Any:
        state, _ = step(key, state)
        return state, state.position

    return jax.lax.scan(move, state, jax.random.split(key, count))[1]


def blackjax_elliptical_slice() -> Program:
    """Elliptical slice sampling of a latent Gaussian process under a Poisson likelihood."""
    import blackjax

    points = jnp.linspace(0.0, 1.0, 48)
    covariance = jnp.exp(-0.5 * (points[:, None] - points) ** 2 / 0.1**2) + 1e-4 * jnp.eye(48)

    def sample(counts: jax.Array, covariance: jax.Array, latent: jax.Array, key: jax.Array) -> Any:
        def loglikelihood(f: jax.Array) -> jax.Array:
            return jnp.sum(counts * f - jnp.exp(f))

        kernel = blackjax.elliptical_slice(loglikelihood, mean=jnp.zeros(48), cov=covariance)
        return _steps(kernel.step, kernel.init(latent), key, 40)

    counts = jax.random.poisson(jax.random.PRNGKey(0), 2.0, (48,)).astype(jnp.float32)
    return sample, (counts, covariance, 0.1 * normal(1, 48), jax.random.PRNGKey(2))


def blackjax_mala_chains() -> Program:
    """Sixteen Langevin chains on a banana-shaped density."""
    import blackjax

    def logdensity(x: jax.Array) -> jax.Array:
        return -0.5 * (x[0] ** 2 / 4 + jnp.sum((x[1:] - x[0] ** 2 / 4) ** 2))

    kernel = blackjax.mala(logdensity, 0.1)

    def sample(start: jax.Array, key: jax.Array) -> Any:
        def chain(x: jax.Array, key: jax.Array) -> Any:
            return _steps(kernel.step, kernel.init(x), key, 100)

        return jax.vmap(chain)(start, jax.random.split(key, 16))

    return sample, (normal(0, 16, 5), jax.random.PRNGKey(1))


def blackjax_window_adaptation() -> Program:
    """Warm-up of a Hamiltonian sampler: dual averaging and windows of mass matrix estimates."""
    import blackjax

    def warm(x: jax.Array, y: jax.Array, start: jax.Array, key: jax.Array) -> Any:
        def logdensity(beta: jax.Array) -> jax.Array:
            logits = x @ beta
            return jnp.sum(y * logits - jax.nn.softplus(logits)) - 0.5 * beta @ beta

        adaptation = blackjax.window_adaptation(blackjax.hmc, logdensity, num_integration_steps=3)
        (state, parameters), _ = adaptation.run(key, start, num_steps=25)
        return state.position, parameters["step_size"], parameters["inverse_mass_matrix"]

    x = normal(0, 120, 7)
    y = (uniform(1, 120) < jax.nn.sigmoid(x @ normal(2, 7))).astype(jnp.float32)
    return warm, (x, y, jnp.zeros(7), jax.random.PRNGKey(3))


def blackjax_svgd() -> Program:
    """Ten steps of Stein variational gradient descent on a mixture of two normals."""
    import blackjax
    import optax

    def logdensity(x: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(-0.5 * jnp.sum((x - jnp.array([[-2.0], [2.0]])) ** 2, axis=-1))

    kernel = blackjax.svgd(jax.grad(logdensity), optax.adam(0.05))

    def flow(particles: jax.Array) -> jax.Array:
        state = kernel.init(particles)
        return jax.lax.fori_loop(0, 10, lambda _, s: kernel.step(s), state).particles

    return flow, (normal(0, 96, 3),)


def blackjax_pathfinder() -> Program:
    """Normal approximation along the path of an optimizer, and draws from it."""
    import blackjax

    def approximate(scale: jax.Array, start: jax.Array, key: jax.Array) -> Any:
        def logdensity(x: jax.Array) -> jax.Array:
            return -0.5 * jnp.sum((x / scale) ** 2) - 0.1 * jnp.sum(x**4)

        fit, draw = jax.random.split(key)
        state, _ = blackjax.vi.pathfinder.approximate(
            fit, logdensity, start, num_samples=32, maxiter=12
        )
        samples, logq = blackjax.vi.pathfinder.sample(draw, state, num_samples=64)
        return state.elbo, samples, logq

    return approximate, (0.5 + uniform(0, 20), normal(1, 20), jax.random.PRNGKey(2))


def numpyro_gibbs_mixture() -> Program:
    """Gibbs updates of discrete assignments within Hamiltonian moves of a mixture's parameters."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS, DiscreteHMCGibbs

    def model(data: jax.Array) -> None:
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("components", 3):
            centre = numpyro.sample("centre", dist.Normal(0.0, 3.0))
        with numpyro.plate("data", data.shape[0]):
            which = numpyro.sample("which", dist.Categorical(weights))
            numpyro.sample("obs", dist.Normal(centre[which], 0.7), obs=data)

    data = 3 * jnp.sign(normal(0, 10)) + normal(1, 10)
    kernel = DiscreteHMCGibbs(NUTS(model, max_tree_depth=4), modified=True)
    state = kernel.init(jax.random.PRNGKey(2), 10, None, (data,), {})

    def sample(state: Any, data: jax.Array) -> Any:
        def step(state: Any, _: None) -> Any:
            state = kernel.sample(state, (data,), {})
            return state, (state.z["centre"], state.z["which"])

        return jax.lax.scan(step, state, length=3)[1]

    return sample, (as_arrays(state), data)


def numpyro_ensemble() -> Program:
    """An affine-invariant ensemble of thirty walkers on a regression with outliers."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import AIES

    def model(x: jax.Array, y: jax.Array) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
        offset = numpyro.sample("offset", dist.Normal(0.0, 2.0))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("obs", dist.StudentT(3.0, slope * x + offset, scale), obs=y)

    x = jnp.linspace(-1.0, 1.0, 90)
    y = 1.5 * x + 0.3 + 0.2 * normal(0, 90)
    kernel = AIES(model, moves={AIES.DEMove(): 0.5, AIES.StretchMove(): 0.5})
    keys = jax.random.split(jax.random.PRNGKey(1), 30)
    state = kernel.init(keys, 20, None, (x, y), {})

    def sample(state: Any, x: jax.Array, y: jax.Array) -> Any:
        def step(state: Any, _: None) -> Any:
            state = kernel.sample(state, (x, y), {})
            return state, state.z

        return jax.lax.scan(step, state, length=20)[1]

    return sample, (as_arrays(state), x, y)


def numpyro_flow_guide() -> Program:
    """Three updates of a guide made of inverse autoregressive flows, on a funnel."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoIAFNormal
    from numpyro.optim import ClippedAdam

    def model() -> None:
        y = numpyro.sample("y", dist.Normal(0.0, 3.0))
        numpyro.sample("x", dist.Normal(jnp.zeros(9), jnp.exp(y / 2)).to_event(1))

    guide = AutoIAFNormal(model, hidden_dims=[24, 24])
    svi = SVI(model, guide, ClippedAdam(1e-3), Trace_ELBO(num_particles=16))
    state = svi.init(jax.random.PRNGKey(0))

    def update(state: Any) -> Any:
        return jax.lax.scan(lambda state, _: svi.update(state), state, length=3)

    return update, (as_arrays(state),)


def tfp_replica_exchange() -> Program:
    """Parallel tempering: six temperatures, Hamiltonian moves, swaps of neighbours."""
    from tensorflow_probability.substrates import jax as tfp

    def logdensity(x: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(
            -0.5 * jnp.sum((x[..., None, :] - jnp.array([[-3.0], [3.0]])) ** 2, axis=-1), axis=-1
        )

    def inner(target: Any) -> Any:
        return tfp.mcmc.HamiltonianMonteCarlo(target, step_size=0.3, num_leapfrog_steps=3)

    kernel = tfp.mcmc.ReplicaExchangeMC(logdensity, 0.6 ** jnp.arange(6.0), inner)

    def sample(start: jax.Array, key: jax.Array) -> jax.Array:
        return tfp.mcmc.sample_chain(
            40, start, kernel=kernel, num_burnin_steps=5, trace_fn=None, seed=key
        )

    return sample, (normal(0, 8, 4), jax.random.PRNGKey(1))


def tfp_particle_filter() -> Program:
    """A bootstrap particle filter with systematic resampling for stochastic volatility."""
    from tensorflow_probability.substrates import jax as tfp

    dist = tfp.distributions

    def run(observed: jax.Array, key: jax.Array) -> Any:
        particles, weights, _, increments = tfp.experimental.mcmc.particle_filter(
            observed,
            initial_state_prior=dist.Normal(0.0, 1.0),
            transition_fn=lambda _, x: dist.Normal(0.95 * x, 0.3),
            observation_fn=lambda _, x: dist.Normal(0.0, jnp.exp(0.5 * x)),
            num_particles=200,
            seed=key,
        )
        return particles, weights, increments

    return run, (normal(0, 60), jax.random.PRNGKey(1))


def tfp_slice_sampler() -> Program:
    """Slice sampling with doubling of intervals, eight chains on a correlated normal."""
    from tensorflow_probability.substrates import jax as tfp

    def sample(precision: jax.Array, start: jax.Array, key: jax.Array) -> jax.Array:
        def logdensity(x: jax.Array) -> jax.Array:
            return -0.5 * jnp.einsum("...i,ij,...j", x, precision, x)

        kernel = tfp.mcmc.SliceSampler(logdensity, step_size=1.0, max_doublings=4)
        return tfp.mcmc.sample_chain(25, start, kernel=kernel, trace_fn=None, seed=key)

    factor = normal(0, 6, 6)
    precision = factor @ factor.T / 6 + jnp.eye(6)
    return sample, (precision, normal(1, 8, 6), jax.random.PRNGKey(2))


def dynamax_nonlinear_filters() -> Program:
    """Extended and unscented Kalman filters of a noisy pendulum, and a smoother."""
    from dynamax.nonlinear_gaussian_ssm import (
        ParamsNLGSSM,
        UKFHyperParams,
        extended_kalman_smoother,
        unscented_kalman_filter,
    )

    params = ParamsNLGSSM(
        initial_mean=jnp.array([1.5, 0.0]),
        initial_covariance=0.1 * jnp.eye(2),
        dynamics_function=lambda x: jnp.array([x[0] + 0.02 * x[1], x[1] - 0.196 * jnp.sin(x[0])]),
        dynamics_covariance=1e-3 * jnp.eye(2),
        emission_function=lambda x: jnp.sin(x[:1]),
        emission_covariance=0.1 * jnp.eye(1),
    )

    def run(observed: jax.Array) -> Any:
        smoothed = extended_kalman_smoother(params, observed)
        filtered = unscented_kalman_filter(params, observed, UKFHyperParams())
        return smoothed.smoothed_means, filtered.marginal_loglik, filtered.filtered_means

    return run, (jnp.sin(1.5 * jnp.cos(jnp.arange(150) * 0.06))[:, None] + 0.3 * normal(0, 150, 1),)


def dynamax_em() -> Program:
    """Three steps of expectation maximisation of a hidden Markov model over three sequences."""
    from dynamax.hidden_markov_model import GaussianHMM

    hmm = GaussianHMM(num_states=5, emission_dim=2)
    data = normal(0, 3, 80, 2) + 3 * jnp.sign(normal(1, 3, 80, 1))
    params, properties = hmm.initialize(jax.random.PRNGKey(2))

    def fit(params: Any, data: jax.Array) -> Any:
        states = hmm.initialize_m_step_state(params, properties)
        scores = []
        for _ in range(3):
            stats, loglik = jax.vmap(hmm.e_step, (None, 0))(params, data)
            params, states = hmm.m_step(params, properties, stats, states)
            scores.append(loglik.sum())
        return params, jnp.stack(scores)

    return fit, (as_arrays(params), data)


def tinygp_kernel_search() -> Program:
    """Gradients of sixteen hyperparameter settings of a Gaussian process with a product kernel."""
    from tinygp import GaussianProcess, kernels

    def loss(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        scale = jnp.exp(theta)
        kernel = scale[0] * kernels.Matern52(scale[1]) * kernels.ExpSineSquared(
            scale=scale[2], gamma=scale[3]
        ) + kernels.RationalQuadratic(scale=scale[4], alpha=1.5)
        gp = GaussianProcess(kernel, x, diag=0.01 + 0.05 * scale[5])
        return -gp.log_probability(y)

    def search(theta: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        return jax.vmap(jax.value_and_grad(loss), (0, None, None))(theta, x, y)

    x = jnp.sort(6 * uniform(0, 70))
    return search, (0.3 * normal(1, 16, 6), x, jnp.sin(3 * x) + 0.1 * normal(2, 70))


WORKLOADS: dict[str, Builder] = {
    "blackjax-elliptical-slice": blackjax_elliptical_slice,
    "blackjax-mala-chains": blackjax_mala_chains,
    "blackjax-window-adaptation": blackjax_window_adaptation,
    "blackjax-svgd": blackjax_svgd,
    "blackjax-pathfinder": blackjax_pathfinder,
    "numpyro-gibbs-mixture": numpyro_gibbs_mixture,
    "numpyro-ensemble": numpyro_ensemble,
    "numpyro-flow-guide": numpyro_flow_guide,
    "tfp-replica-exchange": tfp_replica_exchange,
    "tfp-particle-filter": tfp_particle_filter,
    "tfp-slice-sampler": tfp_slice_sampler,
    "dynamax-nonlinear-filters": dynamax_nonlinear_filters,
    "dynamax-gaussian-hmm-em": dynamax_em,
    "tinygp-kernel-search": tinygp_kernel_search,
}
