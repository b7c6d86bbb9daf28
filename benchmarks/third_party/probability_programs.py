"""Sampling, variational inference, densities, Gaussian processes and evolution strategies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, as_arrays, mlp_apply, mlp_params, normal, uniform


def _logistic_data(rows: int, columns: int) -> tuple[jax.Array, jax.Array]:
    """Design matrix and binary labels of a logistic regression."""
    x = normal(0, rows, columns)
    labels = (x @ normal(1, columns) + normal(2, rows) > 0).astype(jnp.float32)
    return x, labels


def _logistic_logdensity(weights: jax.Array, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Log posterior of logistic regression weights under a standard normal prior."""
    logits = x @ weights
    log_likelihood = jnp.sum(labels * logits - jax.nn.softplus(logits))
    return log_likelihood - 0.5 * jnp.sum(weights**2)


def blackjax_nuts_logistic() -> Program:
    """Three transitions of the no-U-turn sampler on a logistic regression."""
    import blackjax

    def sample(key: jax.Array, position: jax.Array, x: jax.Array, labels: jax.Array) -> Any:
        def logdensity(weights: jax.Array) -> jax.Array:
            return _logistic_logdensity(weights, x, labels)

        nuts = blackjax.nuts(logdensity, 0.1, jnp.ones(position.shape), max_num_doublings=4)

        def step(state: Any, key: jax.Array) -> Any:
            state, info = nuts.step(key, state)
            return state, (state.position, info.num_integration_steps, info.acceptance_rate)

        return jax.lax.scan(step, nuts.init(position), jax.random.split(key, 3))

    return sample, (jax.random.PRNGKey(3), 0.1 * normal(4, 8), *_logistic_data(100, 8))


def blackjax_mclmc_gaussian() -> Program:
    """Ten transitions of microcanonical Langevin Monte Carlo on a correlated Gaussian."""
    import blackjax

    def sample(key: jax.Array, position: jax.Array, precision: jax.Array) -> Any:
        def logdensity(x: jax.Array) -> jax.Array:
            return -0.5 * x @ precision @ x

        mclmc = blackjax.mclmc(logdensity, L=2.0, step_size=0.2)
        init_key, step_key = jax.random.split(key)

        def step(state: Any, key: jax.Array) -> Any:
            state, info = mclmc.step(key, state)
            return state, (state.position, info.logdensity)

        return jax.lax.scan(step, mclmc.init(position, init_key), jax.random.split(step_key, 10))

    factor = normal(5, 16, 16) / 8.0
    return sample, (jax.random.PRNGKey(6), normal(7, 16), factor @ factor.T + jnp.eye(16))


def blackjax_tempered_smc() -> Program:
    """One tempering step of sequential Monte Carlo with Hamiltonian moves and resampling."""
    import blackjax
    import blackjax.smc.resampling as resampling
    from blackjax.smc import extend_params

    def log_likelihood(x: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(-0.5 * jnp.array([jnp.sum((x - 1) ** 2), jnp.sum((x + 1) ** 2)]))

    smc = blackjax.tempered_smc(
        lambda x: -0.5 * jnp.sum(x**2),
        log_likelihood,
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        extend_params(
            {"step_size": 0.2, "inverse_mass_matrix": jnp.eye(2), "num_integration_steps": 4}
        ),
        resampling.systematic,
        num_mcmc_steps=2,
    )

    def step(key: jax.Array, state: Any) -> Any:
        state, info = smc.step(key, state, 0.3)
        return state, info.log_likelihood_increment

    return step, (jax.random.PRNGKey(8), as_arrays(smc.init(normal(9, 512, 2))))


def _schools_model(sigma: jax.Array, effects: jax.Array | None = None) -> None:
    """Non-centred hierarchical model of treatment effects in several schools."""
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", sigma.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
        numpyro.sample("effects", dist.Normal(mu + tau * theta, sigma), obs=effects)


def _schools_data() -> tuple[jax.Array, jax.Array]:
    """Standard errors and observed effects of the eight schools."""
    sigma = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    return sigma, jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def numpyro_logdensity_grad() -> Program:
    """Log density and its gradient for a hierarchical Poisson regression, batched."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import log_density

    def model(x: jax.Array, group: jax.Array, counts: jax.Array) -> None:
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        slope = numpyro.sample("slope", dist.StudentT(4.0, 0.0, 1.0).expand([x.shape[1]]))
        with numpyro.plate("groups", 6):
            offset = numpyro.sample("offset", dist.Normal(0.0, scale))
        rate = jnp.exp(x @ slope + offset[group])
        numpyro.sample("counts", dist.NegativeBinomial2(rate, 2.0), obs=counts)

    def value_and_grad(params: Any, *data: jax.Array) -> Any:
        return jax.vmap(jax.value_and_grad(lambda p: log_density(model, data, {}, p)[0]))(params)

    params = {
        "scale": jnp.exp(0.3 * normal(0, 64)),
        "slope": 0.5 * normal(1, 64, 4),
        "offset": 0.5 * normal(2, 64, 6),
    }
    group = jnp.arange(60) % 6
    counts = jax.random.poisson(jax.random.PRNGKey(4), 2.0, (60,))
    return value_and_grad, (params, normal(3, 60, 4), group, counts)


def numpyro_svi_update() -> Program:
    """Four Adam updates of a multivariate normal guide under the importance-weighted bound."""
    from numpyro.infer import SVI, RenyiELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal
    from numpyro.optim import Adam

    svi = SVI(
        _schools_model, AutoMultivariateNormal(_schools_model), Adam(1e-2), RenyiELBO(0.0, 32)
    )
    data = _schools_data()
    state = svi.init(jax.random.PRNGKey(0), *data)

    def update(state: Any, *data: jax.Array) -> Any:
        state, losses = jax.lax.scan(lambda state, _: svi.update(state, *data), state, length=4)
        return svi.get_params(state), losses

    return update, (as_arrays(state), *data)


def numpyro_hmc_sample() -> Program:
    """Twelve adapting Hamiltonian Monte Carlo transitions with a fixed number of steps."""
    from numpyro.infer import HMC

    data = _schools_data()
    kernel = HMC(
        _schools_model, step_size=0.05, num_steps=16, trajectory_length=None, dense_mass=True
    )
    state = kernel.init(jax.random.PRNGKey(1), 20, None, data, {})

    def sample(state: Any, *data: jax.Array) -> Any:
        def step(state: Any, _: None) -> Any:
            state = kernel.sample(state, data, {})
            return state, (state.z, state.potential_energy, state.accept_prob)

        return jax.lax.scan(step, state, length=12)[1]

    return sample, (as_arrays(state), *data)


def distrax_spline_flow_grad() -> Program:
    """Gradient of the log density of a masked-coupling rational-quadratic spline flow."""
    import distrax

    def log_prob(params: Any, x: jax.Array) -> jax.Array:
        layers = []
        for index, layer_params in enumerate(params):

            def conditioner(x: jax.Array, layer_params: Any = layer_params) -> jax.Array:
                return mlp_apply(layer_params, x).reshape(*x.shape[:-1], 4, 19)

            layers.append(
                distrax.MaskedCoupling(
                    mask=jnp.arange(4) % 2 == index % 2,
                    bijector=lambda p: distrax.RationalQuadraticSpline(p, -4.0, 4.0),
                    conditioner=conditioner,
                )
            )
        base = distrax.MultivariateNormalDiag(jnp.zeros(4), jnp.ones(4))
        flow = distrax.Transformed(base, distrax.Inverse(distrax.Chain(layers)))
        return -flow.log_prob(x).mean()

    params = [mlp_params(seed, (4, 32, 4 * 19)) for seed in (0, 10)]
    return jax.value_and_grad(log_prob), (params, normal(20, 64, 4))


def distrax_hmm_forward_backward() -> Program:
    """Forward-backward smoothing and Viterbi decoding of a Gaussian hidden Markov model."""
    import distrax

    def infer(init: jax.Array, trans: jax.Array, means: jax.Array, obs: jax.Array) -> Any:
        hmm = distrax.HMM(
            init_dist=distrax.Categorical(logits=init),
            trans_dist=distrax.Categorical(logits=trans),
            obs_dist=distrax.Normal(means, 1.0),
        )
        alphas, betas, marginals, log_prob = hmm.forward_backward(obs)
        return alphas, betas, marginals, log_prob, hmm.viterbi(obs)

    return infer, (normal(0, 12), normal(1, 12, 12), 3.0 * normal(2, 12), 2.0 * normal(3, 256))


def tinygp_dense_grad() -> Program:
    """Gradient of a dense Gaussian process likelihood with respect to its hyperparameters."""
    import tinygp

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        kernel = jnp.exp(params["amplitude"]) * tinygp.kernels.Matern52(jnp.exp(params["scale"]))
        kernel += tinygp.kernels.ExpSineSquared(scale=jnp.exp(params["period"]), gamma=0.5)
        gp = tinygp.GaussianProcess(kernel, x, diag=jnp.exp(params["noise"]))
        return -gp.log_probability(y)

    params = as_arrays({"amplitude": 0.1, "scale": -0.2, "period": 0.3, "noise": -1.0})
    x = jnp.sort(5.0 * uniform(0, 96))
    return jax.value_and_grad(loss), (params, x, jnp.sin(3.0 * x) + 0.2 * normal(1, 96))


def tinygp_quasisep_predict() -> Program:
    """Likelihood and conditional mean of a quasiseparable Gaussian process."""
    import tinygp

    def predict(omega: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        kernel = tinygp.kernels.quasisep.SHO(omega=omega, quality=2.0)
        gp = tinygp.GaussianProcess(kernel, x, diag=0.1, assume_sorted=True)
        log_prob, conditioned = gp.condition(y)
        return log_prob, conditioned.loc

    x = jnp.sort(100.0 * uniform(2, 1024))
    return predict, (jnp.float32(2.0), x, jnp.sin(2.0 * x) + 0.2 * normal(3, 1024))


def _evolve(algorithm: Any, params: Any, generations: int) -> Any:
    """Function that runs some generations of an evosax algorithm on a quadratic bowl."""

    def run(key: jax.Array, state: Any, target: jax.Array) -> Any:
        def generation(state: Any, key: jax.Array) -> Any:
            ask_key, tell_key = jax.random.split(key)
            population, state = algorithm.ask(ask_key, state, params)
            fitness = jnp.sum((population - target) ** 2, axis=-1)
            state, _ = algorithm.tell(tell_key, population, fitness, state, params)
            return state, fitness.min()

        return jax.lax.scan(generation, state, jax.random.split(key, generations))

    return run


def evosax_cma_es() -> Program:
    """One generation of covariance matrix adaptation, from a state with a general covariance."""
    from evosax.algorithms import CMA_ES

    algorithm = CMA_ES(population_size=64, solution=jnp.zeros(32))
    params = algorithm.default_params
    run = _evolve(algorithm, params, 1)
    target = normal(2, 32)
    state = as_arrays(algorithm.init(jax.random.PRNGKey(0), jnp.ones(32), params))
    state, _ = jax.jit(_evolve(algorithm, params, 20))(jax.random.PRNGKey(1), state, target)
    return run, (jax.random.PRNGKey(4), state, target)


def evosax_differential_evolution() -> Program:
    """Four generations of differential evolution."""
    from evosax.algorithms import DifferentialEvolution

    algorithm = DifferentialEvolution(population_size=32, solution=jnp.zeros(10))
    params = algorithm.default_params
    target = normal(2, 10)
    population = normal(3, 32, 10)
    fitness = jnp.sum((population - target) ** 2, axis=-1)
    state = algorithm.init(jax.random.PRNGKey(0), population, fitness, params)
    return _evolve(algorithm, params, 4), (jax.random.PRNGKey(1), as_arrays(state), target)


WORKLOADS: dict[str, Builder] = {
    "blackjax-nuts-logistic": blackjax_nuts_logistic,
    "blackjax-mclmc-gaussian": blackjax_mclmc_gaussian,
    "blackjax-tempered-smc": blackjax_tempered_smc,
    "numpyro-logdensity-grad": numpyro_logdensity_grad,
    "numpyro-svi-update": numpyro_svi_update,
    "numpyro-hmc-sample": numpyro_hmc_sample,
    "distrax-spline-flow-grad": distrax_spline_flow_grad,
    "distrax-hmm-forward-backward": distrax_hmm_forward_backward,
    "tinygp-dense-grad": tinygp_dense_grad,
    "tinygp-quasisep-predict": tinygp_quasisep_predict,
    "evosax-cma-es": evosax_cma_es,
    "evosax-differential-evolution": evosax_differential_evolution,
}
