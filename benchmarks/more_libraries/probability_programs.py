"""Distributions, samplers, filters and fits of TensorFlow Probability."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def tfp_hmc_logistic_regression() -> Program:
    """Twenty Hamiltonian Monte Carlo transitions of eight chains on a logistic regression."""
    from tensorflow_probability.substrates import jax as tfp

    tfd, tfm = tfp.distributions, tfp.mcmc
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(500, 12)), jnp.float32)
    y = jnp.asarray(rng.random(500) < 0.5, jnp.float32)

    def run(key, x, y):
        def logp(w):
            return tfd.Normal(0.0, 1.0).log_prob(w).sum(-1) + tfd.Bernoulli(
                logits=w @ x.T
            ).log_prob(y).sum(-1)

        kernel = tfm.HamiltonianMonteCarlo(logp, step_size=0.02, num_leapfrog_steps=4)
        return tfm.sample_chain(
            20,
            jnp.zeros((8, 12)),
            kernel=kernel,
            seed=key,
            trace_fn=lambda _, k: k.accepted_results.target_log_prob,
        )

    return run, (jax.random.PRNGKey(1), x, y)


def tfp_nuts_eight_schools() -> Program:
    """Five transitions of the no-U-turn sampler on the eight-schools model, four chains."""
    from tensorflow_probability.substrates import jax as tfp

    tfd, tfm = tfp.distributions, tfp.mcmc
    y = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    sigma = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def run(key, y, sigma):
        model = tfd.JointDistributionSequential(
            [
                tfd.Normal(0.0, 10.0),
                tfd.Normal(5.0, 1.0),
                tfd.Independent(tfd.Normal(jnp.zeros(8), jnp.ones(8)), 1),
                lambda th, lt, mu: tfd.Independent(
                    tfd.Normal(mu[..., None] + jnp.exp(lt[..., None]) * th, sigma), 1
                ),
            ]
        )
        kernel = tfm.NoUTurnSampler(
            lambda mu, lt, th: model.log_prob(mu, lt, th, y), step_size=0.1, max_tree_depth=4
        )
        return tfm.sample_chain(
            5,
            [jnp.zeros(4), jnp.zeros(4), jnp.zeros((4, 8))],
            kernel=kernel,
            trace_fn=None,
            seed=key,
        )

    return run, (jax.random.PRNGKey(2), y, sigma)


def tfp_lgssm_kalman_loglik_grad() -> Program:
    """Likelihood of a linear Gaussian state space model, and its gradient in the noise scales."""
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    y = jnp.asarray(np.cumsum(np.random.default_rng(3).normal(size=(100, 2)), 0), jnp.float32)

    def run(theta, y):
        def nll(t):
            m = tfd.LinearGaussianStateSpaceModel(
                num_timesteps=100,
                transition_matrix=jnp.array(
                    [[1.0, 1.0, 0, 0], [0, 0.9, 0, 0], [0, 0, 1.0, 1.0], [0, 0, 0, 0.9]]
                ),
                transition_noise=tfd.MultivariateNormalDiag(scale_diag=jnp.exp(t[0]) * jnp.ones(4)),
                observation_matrix=jnp.array([[1.0, 0, 0, 0], [0, 0, 1.0, 0]]),
                observation_noise=tfd.MultivariateNormalDiag(
                    scale_diag=jnp.exp(t[1]) * jnp.ones(2)
                ),
                initial_state_prior=tfd.MultivariateNormalDiag(scale_diag=jnp.ones(4)),
            )
            return -m.log_prob(y)

        return jax.value_and_grad(nll)(theta)

    return run, (jnp.array([0.1, -0.3]), y)


def tfp_hmm_smoother() -> Program:
    """Smoothed state probabilities and likelihood of a hidden Markov model, sixteen series."""
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    y = jnp.asarray(np.random.default_rng(4).normal(size=(16, 200)), jnp.float32)

    def run(logits, locs, y):
        hmm = tfd.HiddenMarkovModel(
            tfd.Categorical(logits=jnp.zeros(5)),
            tfd.Categorical(logits=logits),
            tfd.Normal(locs, 0.7),
            num_steps=200,
        )
        return hmm.posterior_marginals(y).logits, hmm.log_prob(y)

    return run, (jnp.eye(5) * 2.0, jnp.linspace(-2.0, 2.0, 5), y)


def tfp_gp_regression_marginal() -> Program:
    """Marginal likelihood of a Matern Gaussian process on 700 points, and its gradient."""
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    rng = np.random.default_rng(5)
    x = jnp.asarray(rng.uniform(-3, 3, (700, 2)), jnp.float32)
    y = jnp.sin(x[:, 0]) * jnp.cos(x[:, 1])

    def run(p, x, y):
        def loss(p):
            k = tfp.math.psd_kernels.MaternFiveHalves(jnp.exp(p[0]), jnp.exp(p[1]))
            return -tfd.GaussianProcess(k, x, observation_noise_variance=jnp.exp(p[2])).log_prob(y)

        return jax.value_and_grad(loss)(p)

    return run, (jnp.array([0.0, 0.0, -2.0]), x, y)


def tfp_sts_decompose_forecast() -> Program:
    """Kalman filter of a monthly series with a trend and a season."""
    from tensorflow_probability.substrates import jax as tfp

    sts = tfp.sts
    t = np.arange(120)
    y = jnp.asarray(
        0.05 * t + np.sin(2 * np.pi * t / 12) + 0.1 * np.random.default_rng(6).normal(size=120),
        jnp.float32,
    )

    def run(y, ls, ss, ns):
        trend = sts.LocalLinearTrend(observed_time_series=y)
        seas = sts.Seasonal(num_seasons=12, observed_time_series=y)
        model = sts.Sum([trend, seas], observed_time_series=y)
        ssm = model.make_state_space_model(120, param_vals=[ns, ls, ls * 0.1, ss])
        ll, fm, _, _, _, om, _ = ssm.forward_filter(y[:, None])
        return ll, fm, om

    return run, (y, jnp.float32(0.1), jnp.float32(0.05), jnp.float32(0.2))


def tfp_bijector_real_nvp_logprob() -> Program:
    """Loss and gradient of a normalizing flow of four coupling layers."""
    from tensorflow_probability.substrates import jax as tfp

    tfd, tfb = tfp.distributions, tfp.bijectors
    x = jnp.asarray(np.random.default_rng(7).normal(size=(256, 8)), jnp.float32)
    ks = jax.random.split(jax.random.PRNGKey(7), 4)
    weights = [
        (jax.random.normal(k, (4, 32)) * 0.3, jax.random.normal(k, (32, 8)) * 0.1) for k in ks
    ]

    def run(weights, x):
        def nll(weights):
            bijectors = []
            for w1, w2 in weights:

                def shift_and_scale(h, n, w1=w1, w2=w2, **kw):
                    o = jnp.tanh(h @ w1) @ w2
                    return o[..., :4], jnp.tanh(o[..., 4:])

                bijectors += [
                    tfb.RealNVP(4, shift_and_log_scale_fn=shift_and_scale),
                    tfb.Permute(jnp.arange(7, -1, -1)),
                ]
            d = tfd.TransformedDistribution(
                tfd.MultivariateNormalDiag(jnp.zeros(8), jnp.ones(8)), tfb.Chain(bijectors)
            )
            return -d.log_prob(x).mean()

        return jax.value_and_grad(nll)(weights)

    return run, (weights, x)


def tfp_distributions_special_logprob() -> Program:
    """Log densities of distributions that need special functions."""
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    rng = np.random.default_rng(8)
    x = jnp.asarray(rng.uniform(0.05, 0.95, 400))
    a = jnp.asarray(rng.uniform(0.5, 5, 400))

    def run(x, a):
        return (
            tfd.Beta(a, a + 1).log_prob(x),
            tfd.StudentT(a + 1, 0.0, 1.0).log_prob(x),
            tfd.Gamma(a, 2.0).cdf(x),
            tfd.VonMises(0.0, a).log_prob(x),
            tfd.InverseGaussian(a, 2.0).log_prob(x),
            tfp.math.lambertw(x),
            tfd.Kumaraswamy(a, 2.0).log_prob(x),
            tfd.SinhArcsinh(0.0, 1.0, skewness=0.3, tailweight=a).log_prob(x),
        )

    return run, (x, a)


def tfp_replica_exchange_mixture() -> Program:
    """Parallel tempering at five temperatures on a mixture of four normals, 64 chains."""
    from tensorflow_probability.substrates import jax as tfp

    tfd, tfm = tfp.distributions, tfp.mcmc

    def run(key, loc):
        t = tfd.MixtureSameFamily(
            tfd.Categorical(logits=jnp.zeros(4)),
            tfd.MultivariateNormalDiag(loc, 0.3 * jnp.ones((4, 2))),
        )
        k = tfm.ReplicaExchangeMC(
            t.log_prob,
            inverse_temperatures=0.6 ** jnp.arange(5.0),
            make_kernel_fn=lambda f: tfm.HamiltonianMonteCarlo(
                f, step_size=0.1, num_leapfrog_steps=3
            ),
        )
        return tfm.sample_chain(30, jnp.zeros((64, 2)), kernel=k, seed=key, trace_fn=None)

    return run, (
        jax.random.PRNGKey(130),
        jnp.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]),
    )


def tfp_particle_filter_stochvol() -> Program:
    """A particle filter of 5000 particles for a stochastic volatility model."""
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    y = jnp.asarray(np.random.default_rng(131).normal(size=12), jnp.float32)

    def run(y, key, phi):
        return tfp.experimental.mcmc.particle_filter(
            y,
            initial_state_prior=tfd.Normal(0.0, 1.0),
            transition_fn=lambda t, x: tfd.Normal(phi * x, 0.3),
            observation_fn=lambda t, x: tfd.Normal(0.0, jnp.exp(x / 2)),
            num_particles=5000,
            seed=key,
            trace_fn=lambda s, r: (
                tfp.math.reduce_logmeanexp(s.log_weights),
                (s.particles * jax.nn.softmax(s.log_weights)).sum(),
            ),
            trace_criterion_fn=lambda *a: True,
        )

    return run, (y, jax.random.PRNGKey(131), jnp.float32(0.9))


def tfp_advi_hierarchical_fit() -> Program:
    """A hundred steps of variational inference for a regression with twenty groups."""
    import optax
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    rng = np.random.default_rng(132)
    g = jnp.asarray(rng.integers(0, 20, 1000))
    x = jnp.asarray(rng.normal(size=1000), jnp.float32)
    y = 1.0 + 0.5 * x + jnp.asarray(rng.normal(size=1000), jnp.float32)
    optimizer = optax.adam(1e-2)

    def run(p, x, g, y, key):
        def elbo(p, k):
            q = tfd.MultivariateNormalDiag(p["m"], jax.nn.softplus(p["s"]))
            z = q.sample(16, seed=k)
            mu, b, ls, a = z[:, 0], z[:, 1], z[:, 2], z[:, 3:]
            lp = tfd.Normal(0.0, 2.0).log_prob(z[:, :3]).sum(-1) + tfd.Normal(
                mu[:, None], jnp.exp(ls)[:, None]
            ).log_prob(a).sum(-1)
            lp += tfd.StudentT(4.0, a[:, g] + b[:, None] * x, 1.0).log_prob(y).sum(-1)
            return (q.log_prob(z) - lp).mean()

        def step(c, k):
            p, opt_state = c
            value, gr = jax.value_and_grad(elbo)(p, k)
            updates, opt_state = optimizer.update(gr, opt_state)
            return (optax.apply_updates(p, updates), opt_state), value

        (p, _), value = jax.lax.scan(step, (p, optimizer.init(p)), jax.random.split(key, 100))
        return p, value

    return run, ({"m": jnp.zeros(23), "s": jnp.zeros(23) - 1}, x, g, y, jax.random.PRNGKey(132))


WORKLOADS: dict[str, Builder] = {
    "tfp-hmc-logistic-regression": tfp_hmc_logistic_regression,
    "tfp-nuts-eight-schools": tfp_nuts_eight_schools,
    "tfp-lgssm-kalman-loglik-grad": tfp_lgssm_kalman_loglik_grad,
    "tfp-hmm-smoother": tfp_hmm_smoother,
    "tfp-gp-regression-marginal": tfp_gp_regression_marginal,
    "tfp-sts-decompose-forecast": tfp_sts_decompose_forecast,
    "tfp-bijector-real-nvp-logprob": tfp_bijector_real_nvp_logprob,
    "tfp-replica-exchange-mixture": tfp_replica_exchange_mixture,
    "tfp-particle-filter-stochvol": tfp_particle_filter_stochvol,
    "tfp-advi-hierarchical-fit": tfp_advi_hierarchical_fit,
}

WORKLOADS_X64: dict[str, Builder] = {
    "tfp-distributions-special-logprob": tfp_distributions_special_logprob,
}
