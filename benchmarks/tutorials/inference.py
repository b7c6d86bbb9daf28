"""Samplers, variational inference, state-space models, Gaussian processes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tutorials.common import Builder, Program, normal, uniform


def _logistic_data(n: int, d: int) -> tuple[jax.Array, jax.Array]:
    x = normal(0, n, d)
    w = normal(1, d)
    y = (uniform(2, n) < jax.nn.sigmoid(x @ w)).astype(jnp.float32)
    return x, y


def blackjax_barker_chains() -> Program:
    """Eight Barker-proposal chains on a Bayesian robust linear regression, 100 steps."""
    import blackjax

    x = normal(0, 200, 4)
    y = x @ jnp.array([1.0, -0.5, 2.0, 0.0]) + 0.5 * normal(1, 200)

    def run(key: jax.Array, starts: Any, x: jax.Array, y: jax.Array) -> Any:
        def logdensity(p: Any) -> jax.Array:
            scale = jnp.exp(p["log_scale"])
            resid = (y - x @ p["w"]) / scale
            student = -2.5 * jnp.log1p(resid**2 / 4.0) - p["log_scale"]
            prior = -0.5 * jnp.sum(p["w"] ** 2) / 25.0 - 0.5 * p["log_scale"] ** 2
            return jnp.sum(student) + prior

        barker = blackjax.barker_proposal(logdensity, 0.05)

        def chain(key: jax.Array, start: Any) -> Any:
            def step(state: Any, key: jax.Array) -> Any:
                state, info = barker.step(key, state)
                return state, (state.position, info.acceptance_rate)

            return jax.lax.scan(step, barker.init(start), jax.random.split(key, 100))[1]

        return jax.vmap(chain)(jax.random.split(key, 8), starts)

    starts = {"w": 0.1 * normal(3, 8, 4), "log_scale": 0.1 * normal(4, 8)}
    return run, (jax.random.PRNGKey(0), starts, x, y)


def blackjax_sghmc_logistic() -> Program:
    """Stochastic-gradient HMC on minibatches of a logistic regression, followed by RMH from the end."""
    import blackjax
    from blackjax.sgmcmc.gradients import grad_estimator

    x, y = _logistic_data(1000, 10)

    def logprior(w: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(w**2)

    def loglik(w: jax.Array, batch: Any) -> jax.Array:
        xb, yb = batch
        logit = xb @ w
        return yb * jax.nn.log_sigmoid(logit) + (1 - yb) * jax.nn.log_sigmoid(-logit)

    grad_fn = grad_estimator(logprior, lambda w, b: loglik(w, b), 1000)
    sghmc = blackjax.sghmc(grad_fn, num_integration_steps=5, alpha=0.05)

    def run(key: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        def step(w: jax.Array, key: jax.Array) -> Any:
            k1, k2 = jax.random.split(key)
            index = jax.random.randint(k1, (64,), 0, x.shape[0])
            w = sghmc.step(k2, w, (x[index], y[index]), 1e-4)
            return w, w

        return jax.lax.scan(step, sghmc.init(jnp.zeros(10)), jax.random.split(key, 60))[1]

    return run, (jax.random.PRNGKey(0), x, y)


def numpyro_svi_vae_scan() -> Program:
    """Variational autoencoder of the numpyro examples: 5 SVI steps on 64 binarised images."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO

    hidden, latent, pixels = 100, 20, 784

    def dense(name: str, x: jax.Array, size: int) -> jax.Array:
        w = numpyro.param(f"{name}_w", 0.05 * normal(len(name), x.shape[-1], size))
        b = numpyro.param(f"{name}_b", jnp.zeros(size))
        return x @ w + b

    def model(batch: jax.Array) -> None:
        with numpyro.plate("batch", batch.shape[0]):
            z = numpyro.sample("z", dist.Normal(0, 1).expand([latent]).to_event(1))
            h = jax.nn.softplus(dense("dec1", z, hidden))
            logits = dense("decoder2", h, pixels)
            numpyro.sample("obs", dist.Bernoulli(logits=logits).to_event(1), obs=batch)

    def guide(batch: jax.Array) -> None:
        h = jax.nn.softplus(dense("enc1", batch, hidden))
        loc = dense("encoder_loc", h, latent)
        std = jnp.exp(0.1 * dense("encoder_scale", h, latent))
        with numpyro.plate("batch", batch.shape[0]):
            numpyro.sample("z", dist.Normal(loc, std).to_event(1))

    svi = SVI(model, guide, numpyro.optim.Adam(1e-3), Trace_ELBO())
    data = (uniform(0, 5, 64, pixels) > 0.7).astype(jnp.float32)
    state = svi.init(jax.random.PRNGKey(0), data[0])

    def train(state: Any, data: jax.Array) -> Any:
        state, losses = jax.lax.scan(svi.update, state, data)
        return svi.get_params(state), losses

    return train, (state, data)


def numpyro_nuts_stochastic_volatility_step() -> Program:
    """Hamiltonian transitions on the stochastic volatility model (random-walk latent, 100 returns)."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.hmc import hmc
    from numpyro.infer.util import initialize_model

    returns = 0.02 * normal(0, 100)

    def model(returns: jax.Array) -> None:
        step_size = numpyro.sample("sigma", dist.Exponential(50.0))
        s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step_size, num_steps=100))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)

    info = initialize_model(jax.random.PRNGKey(1), model, model_args=(returns,))
    init_kernel, sample_kernel = hmc(info.potential_fn, algo="HMC")
    state = init_kernel(
        info.param_info,
        num_warmup=0,
        step_size=1e-3,
        trajectory_length=8e-3,
        adapt_step_size=False,
        adapt_mass_matrix=False,
        rng_key=jax.random.PRNGKey(2),
    )

    def run(state: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            state = sample_kernel(state)
            return state, (state.z, state.potential_energy, state.accept_prob)

        return jax.lax.scan(step, state, None, length=20)[1]

    return run, (state,)


def tfp_change_point_switching_poisson_mala() -> Program:
    """Multiple change-point detection: marginal likelihood of a Poisson HMM, sampled with MALA."""
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    counts = jnp.concatenate(
        [
            jax.random.poisson(jax.random.PRNGKey(i), rate, (30,))
            for i, rate in enumerate((40, 3, 20, 50))
        ]
    ).astype(jnp.float32)

    def run(key: jax.Array, start: jax.Array, counts: jax.Array) -> Any:
        def target(log_rates: jax.Array) -> jax.Array:
            stay = 0.95
            transition = jnp.full((4, 4), (1 - stay) / 3).at[jnp.arange(4), jnp.arange(4)].set(stay)
            hmm = tfd.HiddenMarkovModel(
                tfd.Categorical(logits=jnp.zeros(4)),
                tfd.Categorical(probs=transition),
                tfd.Poisson(log_rate=log_rates),
                num_steps=120,
            )
            return hmm.log_prob(counts) + jnp.sum(tfd.Normal(3.0, 2.0).log_prob(log_rates))

        kernel = tfp.mcmc.MetropolisAdjustedLangevinAlgorithm(target, step_size=2e-4)
        return tfp.mcmc.sample_chain(
            8, start, kernel=kernel, seed=key, trace_fn=lambda _, r: r.is_accepted
        )

    return run, (jax.random.PRNGKey(0), jnp.log(jnp.array([35.0, 5.0, 15.0, 45.0])), counts)


def tfp_edward_bnn_dense_flipout_grad() -> Program:
    """Joint distribution of a bayesian mixed-effects regression: ELBO gradient of a mean-field posterior."""
    from tensorflow_probability.substrates import jax as tfp

    tfd, tfb = tfp.distributions, tfp.bijectors
    county = jax.random.randint(jax.random.PRNGKey(5), (400,), 0, 40)
    floor = (uniform(6, 400) > 0.6).astype(jnp.float32)
    radon = 1.0 - 0.6 * floor + 0.3 * normal(7, 40)[county] + 0.7 * normal(8, 400)

    def loss(
        params: Any, key: jax.Array, county: jax.Array, floor: jax.Array, radon: jax.Array
    ) -> Any:
        model = tfd.JointDistributionSequentialAutoBatched(
            [
                tfd.HalfNormal(1.0),
                lambda s: tfd.Sample(tfd.Normal(0.0, s), 40),
                tfd.Normal(0.0, 5.0),
                tfd.Normal(0.0, 5.0),
                tfd.HalfNormal(1.0),
                lambda noise, slope, bias, effect: tfd.Independent(
                    tfd.Normal(effect[county] + slope * floor + bias, noise), 1
                ),
            ]
        )
        bijectors = [tfb.Softplus(), tfb.Identity(), tfb.Identity(), tfb.Identity(), tfb.Softplus()]
        total = 0.0
        draws = []
        for k, (loc, raw), bij in zip(jax.random.split(key, 5), params, bijectors, strict=True):
            base = tfd.Normal(loc, jax.nn.softplus(raw))
            q = bij(tfd.Independent(base, loc.ndim))
            z = q.sample(16, seed=k)
            total = total + q.log_prob(z)
            draws.append(z)

        def joint(*z: Any) -> Any:
            return model.log_prob([*z, radon])

        return jnp.mean(total - jax.vmap(joint)(*draws))

    shapes = [(), (40,), (), (), ()]
    params = [(jnp.zeros(s), jnp.full(s, -1.0)) for s in shapes]
    return jax.value_and_grad(loss), (params, jax.random.PRNGKey(0), county, floor, radon)


def distrax_real_nvp_two_moons_steps() -> Program:
    """Masked-coupling flow with affine conditioners on two moons, 5 Adam steps."""
    import distrax
    import haiku as hk
    import optax

    def flow() -> Any:
        mask = jnp.arange(2) % 2 == 0
        layers = []
        for _ in range(4):

            def conditioner(x: jax.Array) -> jax.Array:
                out = hk.nets.MLP([64, 64], activate_final=True)(x)
                out = hk.Linear(4, w_init=hk.initializers.RandomNormal(0.01))(out)
                return out.reshape(*out.shape[:-1], 2, 2)

            layers.append(
                distrax.MaskedCoupling(
                    mask=mask,
                    bijector=lambda p: distrax.ScalarAffine(
                        shift=p[..., 0], log_scale=jnp.tanh(p[..., 1])
                    ),
                    conditioner=conditioner,
                )
            )
            mask = jnp.logical_not(mask)
        chain = distrax.Inverse(distrax.Chain(layers))
        return distrax.Transformed(distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.ones(2)), chain)

    log_prob = hk.without_apply_rng(hk.transform(lambda x: flow().log_prob(x)))
    angle = jnp.pi * uniform(0, 256)
    upper = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
    lower = jnp.stack([1 - jnp.cos(angle), 0.5 - jnp.sin(angle)], -1)
    data = jnp.where((jnp.arange(256) % 2 == 0)[:, None], upper, lower) + 0.05 * normal(1, 256, 2)
    params = log_prob.init(jax.random.PRNGKey(2), data)
    adam = optax.adam(1e-3)

    def train(params: Any, state: Any, data: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            params, state = carry
            value, grads = jax.value_and_grad(lambda p: -jnp.mean(log_prob.apply(p, data)))(params)
            updates, state = adam.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, state), None, length=5)
        return params, losses

    return train, (params, adam.init(params), data)


def distrax_mixture_em_grad_fit() -> Program:
    """Gaussian mixture (MixtureSameFamily of full covariances by Cholesky) fitted by 20 SGD steps."""
    import distrax
    import optax

    data = jnp.concatenate([normal(0, 150, 2) - 2.0, 0.5 * normal(1, 150, 2) + 2.0])

    def nll(params: Any, data: jax.Array) -> jax.Array:
        scale = jnp.tril(params["scale"], -1) + jax.vmap(jnp.diag)(
            jax.nn.softplus(jnp.diagonal(params["scale"], axis1=-2, axis2=-1))
        )
        mixture = distrax.MixtureSameFamily(
            mixture_distribution=distrax.Categorical(logits=params["logits"]),
            components_distribution=distrax.MultivariateNormalTri(params["loc"], scale),
        )
        return -jnp.mean(mixture.log_prob(data))

    opt = optax.adam(0.05)

    def fit(params: Any, data: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            params, state = carry
            value, grads = jax.value_and_grad(nll)(params, data)
            updates, state = opt.update(grads, state)
            return (optax.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, opt.init(params)), None, length=20)
        return params, losses

    params = {
        "logits": jnp.zeros(3),
        "loc": normal(2, 3, 2),
        "scale": jnp.tile(jnp.eye(2), (3, 1, 1)),
    }
    return fit, (params, data)


def dynamax_lgssm_em() -> Program:
    """EM of a linear Gaussian state-space model tracking 2D positions, 4 iterations."""
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    model = LinearGaussianSSM(4, 2)
    params, props = model.initialize(jax.random.PRNGKey(0), emission_covariance=0.1 * jnp.eye(2))
    series = jnp.cumsum(0.2 * normal(1, 100, 2), axis=0)

    def em(params: Any, series: jax.Array) -> Any:
        m_state = model.initialize_m_step_state(params, props)

        def step(carry: Any, _: None) -> Any:
            params, m_state = carry
            stats, ll = jax.vmap(lambda e: model.e_step(params, e))(series[None])
            params, m_state = model.m_step(params, props, stats, m_state)
            return (params, m_state), jnp.sum(ll)

        (params, _), lls = jax.lax.scan(step, (params, m_state), None, length=4)
        return params, lls

    return em, (params, series)


def dynamax_arhmm_smoother() -> Program:
    """Autoregressive HMM with 5 states: filter, smoother and most likely states of a 2D series."""
    from dynamax.hidden_markov_model import LinearAutoregressiveHMM

    model = LinearAutoregressiveHMM(5, 2, num_lags=2)
    params, _ = model.initialize(jax.random.PRNGKey(0), method="prior")
    series = jnp.cumsum(0.3 * normal(1, 200, 2), axis=0)

    def smooth(params: Any, series: jax.Array) -> Any:
        inputs = model.compute_inputs(series)
        posterior = model.smoother(params, series, inputs)
        states = model.most_likely_states(params, series, inputs)
        return posterior.marginal_loglik, posterior.smoothed_probs, states

    return smooth, (params, series)


def tinygp_mixture_mauna_loa_fit() -> Program:
    """Composite kernel of the Mauna Loa tutorial: 3 Adam steps on 150 points."""
    import optax
    from tinygp import GaussianProcess, kernels

    t = jnp.sort(10.0 * uniform(0, 150))
    y = 0.3 * t + jnp.sin(2 * jnp.pi * t) + 0.1 * normal(1, 150)

    def nll(p: Any, t: jax.Array, y: jax.Array) -> jax.Array:
        e = {k: jnp.exp(v) for k, v in p.items()}
        k1 = e["a1"] * kernels.ExpSquared(e["s1"])
        k2 = (
            e["a2"]
            * kernels.ExpSquared(e["s2"])
            * kernels.ExpSineSquared(scale=e["period"], gamma=e["gamma"])
        )
        k3 = e["a3"] * kernels.RationalQuadratic(alpha=e["alpha"], scale=e["s3"])
        k4 = e["a4"] * kernels.Matern32(e["s4"])
        gp = GaussianProcess(k1 + k2 + k3 + k4, t, diag=e["diag"], mean=jnp.mean(y))
        return -gp.log_probability(y)

    opt = optax.adam(0.05)

    def fit(p: Any, t: jax.Array, y: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            p, state = carry
            value, grads = jax.value_and_grad(nll)(p, t, y)
            updates, state = opt.update(grads, state)
            return (optax.apply_updates(p, updates), state), value

        (p, _), losses = jax.lax.scan(step, (p, opt.init(p)), None, length=3)
        return p, losses

    names = ("a1", "s1", "a2", "s2", "gamma", "a3", "s3", "alpha", "a4", "s4")
    p = {n: jnp.float32(0.1 * i) for i, n in enumerate(names)}
    p |= {"period": jnp.float32(0.0), "diag": jnp.float32(-2.0)}
    return fit, (p, t, y)


def tinygp_two_dim_poisson_counts_laplace() -> Program:
    """Latent GP with Poisson counts: log joint by whitened values, 15 gradient steps to the mode."""
    from tinygp import GaussianProcess, kernels, transforms

    x = 3.0 * uniform(0, 80, 2)
    counts = jax.random.poisson(jax.random.PRNGKey(1), jnp.exp(jnp.sin(x[:, 0]))).astype(
        jnp.float32
    )

    def mode(white: jax.Array, scale: jax.Array, x: jax.Array, counts: jax.Array) -> Any:
        kernel = transforms.Linear(
            1.0 / scale, kernels.Matern52(distance=kernels.distance.L2Distance())
        )
        gp = GaussianProcess(kernel, x, diag=1e-3)

        def loss(white: jax.Array) -> jax.Array:
            log_rate = gp.solver.dot_triangular(white)
            return jnp.sum(jnp.exp(log_rate) - counts * log_rate) + 0.5 * jnp.sum(white**2)

        def step(white: jax.Array, _: None) -> Any:
            value, grad = jax.value_and_grad(loss)(white)
            return white - 0.01 * grad, value

        white, losses = jax.lax.scan(step, white, None, length=15)
        _, conditioned = gp.condition(gp.solver.dot_triangular(white), x[:10] + 0.1)
        return conditioned.loc, conditioned.variance, losses

    return mode, (jnp.zeros(80), jnp.array([0.7, 1.3]), x, counts)


WORKLOADS: dict[str, Builder] = {
    "blackjax-barker-regression": blackjax_barker_chains,
    "blackjax-sghmc-minibatch": blackjax_sghmc_logistic,
    "numpyro-vae-svi-scan": numpyro_svi_vae_scan,
    "numpyro-stochastic-volatility-hmc": numpyro_nuts_stochastic_volatility_step,
    "tfp-mala-change-points": tfp_change_point_switching_poisson_mala,
    "tfp-radon-joint-elbo-grad": tfp_edward_bnn_dense_flipout_grad,
    "distrax-coupling-flow-moons-steps": distrax_real_nvp_two_moons_steps,
    "distrax-mixture-fit-scan": distrax_mixture_em_grad_fit,
    "dynamax-lgssm-em": dynamax_lgssm_em,
    "dynamax-arhmm-smoother": dynamax_arhmm_smoother,
    "tinygp-composite-kernel-fit": tinygp_mixture_mauna_loa_fit,
    "tinygp-poisson-mode-predict": tinygp_two_dim_poisson_counts_laplace,
}
