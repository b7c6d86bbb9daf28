"""Stochastic gradient samplers, diffusions, Bayesian optimisation and a flow of surjections."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def _logistic_data(seed):
    """Inputs and labels of a logistic regression with 2000 rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2000, 10))
    y = rng.random(2000) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 10)))
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32)


def _logistic_grad(theta, x, y):
    """Gradient of the log posterior that a minibatch of a logistic regression estimates."""

    def log_posterior(theta):
        fit = -jax.nn.softplus((1.0 - 2.0 * y) * (x @ theta))
        return -0.05 * theta @ theta + 2000 * fit.mean()

    return jax.grad(log_posterior)(theta)


def sgmcmcjax_sgld_logistic_ksd() -> Program:
    """Two hundred stochastic gradient Langevin steps and the Stein discrepancy of the samples."""
    from sgmcmcjax.diffusions import sgld
    from sgmcmcjax.gradient_estimation import build_gradient_estimation_fn
    from sgmcmcjax.ksd import imq_KSD

    x, y = _logistic_data(218)

    def run(key, theta, dt, x, y):
        init, update, get_params = sgld(dt)
        estimate, start = build_gradient_estimation_fn(_logistic_grad, (x, y), 100)
        grad, svrg = start(key, theta)

        def step(carry, ik):
            state, grad, svrg = carry
            i, key = ik
            first, second = jax.random.split(key)
            state = update(i, first, grad, state)
            grad, svrg = estimate(i, second, get_params(state), svrg)
            return (state, grad, svrg), get_params(state)

        keys = jax.random.split(key, 200)
        _, samples = jax.lax.scan(step, (init(theta), grad, svrg), (jnp.arange(200), keys))
        grads = jax.vmap(_logistic_grad, (0, None, None))(samples, x, y)
        return samples, imq_KSD(samples, grads)

    return run, (jax.random.PRNGKey(219), jnp.zeros(10), jnp.float32(1e-4), x, y)


def sgmcmcjax_baoab_control_variates() -> Program:
    """Two hundred underdamped Langevin steps with control variates around a mode, eight chains."""
    from sgmcmcjax.diffusions import baoab
    from sgmcmcjax.gradient_estimation import build_gradient_estimation_fn_CV

    x, y = _logistic_data(220)

    def run(keys, theta, mode, x, y):
        init, (before, after), get_params = baoab(1e-2, gamma=5.0)
        estimate, start = build_gradient_estimation_fn_CV(_logistic_grad, (x, y), 50, mode)

        def chain(key, theta):
            grad, svrg = start(key, theta)

            def step(carry, ik):
                state, grad, svrg = carry
                i, key = ik
                first, second = jax.random.split(key)
                state = before(i, first, grad, state)
                grad, svrg = estimate(i, second, get_params(state), svrg)
                state = after(i, first, grad, state)
                return (state, grad, svrg), get_params(state)

            keys = jax.random.split(key, 200)
            return jax.lax.scan(step, (init(theta), grad, svrg), (jnp.arange(200), keys))[1]

        return jax.vmap(chain)(keys, theta)

    mode = jnp.linspace(-1, 1, 10)
    theta = mode + 0.1 * jax.random.normal(jax.random.PRNGKey(221), (8, 10))
    return run, (jax.random.split(jax.random.PRNGKey(222), 8), theta, mode, x, y)


def thermox_ou_path_log_prob() -> Program:
    """An exact path of a twelve-dimensional Ornstein-Uhlenbeck process and its density."""
    import thermox

    rng = np.random.default_rng(223)
    drift = jnp.asarray(2.0 * np.eye(12) + 0.2 * rng.normal(size=(12, 12)), jnp.float32)
    root = np.eye(12) + 0.1 * rng.normal(size=(12, 12))
    processed = thermox.preprocess(drift, jnp.asarray(root @ root.T, jnp.float32))

    def run(key, ts, x0, b, processed):
        drift, diffusion = processed
        xs = thermox.sample(key, ts, x0, drift, b, diffusion)
        return xs, thermox.log_prob(ts, xs, drift, b, diffusion)

    ts = jnp.linspace(0.0, 10.0, 256)
    key = jax.random.PRNGKey(224)
    return run, (key, ts, jnp.zeros(12), jnp.linspace(-1, 1, 12), processed)


def boax_gp_fit_log_ei() -> Program:
    """Twenty fitting steps of a Gaussian process of boax, then log expected improvement."""
    import optax
    from boax.acquisitions.functions import analytic
    from boax.core import models, objectives
    from boax.core.distributions import multivariate_normal

    rng = np.random.default_rng(225)
    x = jnp.asarray(rng.uniform(0.0, 1.0, (60, 2)), jnp.float32)
    y = -jnp.sin(5.0 * x[:, 0]) * jnp.cos(4.0 * x[:, 1])
    candidates = jnp.asarray(rng.uniform(0.0, 1.0, (400, 1, 2)), jnp.float32)
    optimizer = optax.adam(0.02)
    nll = objectives.negative_log_likelihood(multivariate_normal.logpdf)

    def process(params, *observed):
        return models.gaussian_process.exact(
            models.means.constant(params["mean"]),
            models.kernels.transformations.scaled(
                models.kernels.rbf(jnp.exp(params["length_scale"])), jnp.exp(params["amplitude"])
            ),
            models.likelihoods.gaussian(jnp.exp(params["noise"])),
            *observed,
            jitter=1e-2,
        )

    def run(params, x, y, candidates):
        def step(carry, _):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(lambda p: nll(process(p)(x), y))(params)
            updates, opt_state = optimizer.update(grads, opt_state)
            return (optax.apply_updates(params, updates), opt_state), loss

        (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), None, 20)
        normal = analytic.mean_and_sigma(process(params, x, y)(candidates))
        return params, losses, analytic.lei(normal, best=y.max()), normal.loc

    params = {
        "mean": jnp.float32(0.0),
        "length_scale": jnp.full(2, -1.0),
        "amplitude": jnp.float32(0.0),
        "noise": jnp.float32(-3.0),
    }
    return run, (params, x, y, candidates)


def surjectors_funnel_train_step() -> Program:
    """One Adam step of a flow of surjectors that halves the dimension twice."""
    import distrax
    import haiku as hk
    import optax
    import surjectors as sj
    from surjectors.nn import MADE, make_mlp
    from surjectors.util import unstack

    def decoder(n_dim):
        net = make_mlp((32, 32, n_dim * 2))

        def apply(z):
            mean, log_scale = jnp.split(net(z), 2, -1)
            return distrax.Independent(distrax.Normal(mean, jnp.exp(log_scale)))

        return apply

    def affine(params):
        shift, log_scale = unstack(params, -1)
        return distrax.ScalarAffine(shift, jnp.exp(log_scale))

    def density(y):
        layers = [
            sj.AffineMaskedAutoregressiveInferenceFunnel(10, decoder(10), MADE(10, (32, 32), 2)),
            sj.MaskedAutoregressive(MADE(10, (32, 32), 2), affine),
            sj.AffineMaskedAutoregressiveInferenceFunnel(5, decoder(5), MADE(5, (32, 32), 2)),
        ]
        base = distrax.Independent(distrax.Normal(jnp.zeros(5), jnp.ones(5)), 1)
        return sj.TransformedDistribution(base, sj.Chain(layers)).log_prob(y)

    flow = hk.without_apply_rng(hk.transform(density))
    optimizer = optax.adam(1e-4)
    y = jax.random.normal(jax.random.PRNGKey(226), (128, 20))
    params = flow.init(jax.random.PRNGKey(227), y)

    def run(params, opt_state, y):
        loss, grads = jax.value_and_grad(lambda p: -flow.apply(p, y).mean())(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return loss, optax.apply_updates(params, updates), opt_state

    return run, (params, optimizer.init(params), y)


WORKLOADS: dict[str, Builder] = {
    "sgmcmcjax-sgld-logistic-ksd": sgmcmcjax_sgld_logistic_ksd,
    "sgmcmcjax-baoab-control-variates": sgmcmcjax_baoab_control_variates,
    "thermox-ou-path-log-prob": thermox_ou_path_log_prob,
    "boax-gp-fit-log-ei": boax_gp_fit_log_ei,
    "surjectors-funnel-train-step": surjectors_funnel_train_step,
}
