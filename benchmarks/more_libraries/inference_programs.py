"""Normalizing flows, Gaussian processes, random fields and stochastic linear algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def _flow(kind, dim=6, **kw):
    """Parameters and static rest of a normalizing flow of the given kind."""
    import equinox as eqx
    from flowjax import bijections as b
    from flowjax import distributions as d
    from flowjax import flows

    base = d.Normal(jnp.zeros(dim))
    if kind == "maf":
        f = flows.masked_autoregressive_flow(jax.random.PRNGKey(10), base_dist=base, **kw)
    elif kind == "spline":
        f = flows.coupling_flow(
            jax.random.PRNGKey(11),
            base_dist=base,
            transformer=b.RationalQuadraticSpline(knots=8, interval=4),
            **kw,
        )
    else:
        f = flows.block_neural_autoregressive_flow(jax.random.PRNGKey(12), base_dist=base, **kw)
    return eqx.partition(f, eqx.is_inexact_array)


def flowjax_maf_train_step() -> Program:
    """One Adam step of a masked autoregressive flow by maximum likelihood."""
    import equinox as eqx
    import optax
    import paramax

    params, static = _flow("maf", flow_layers=4)
    optimizer = optax.adam(1e-3)
    x = jnp.asarray(np.random.default_rng(10).normal(size=(256, 6)), jnp.float32)

    def run(params, opt_state, x):
        def loss(params):
            return -paramax.unwrap(eqx.combine(params, static)).log_prob(x).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return eqx.apply_updates(params, updates), opt_state, value

    return run, (params, optimizer.init(params), x)


def flowjax_spline_coupling_sample_logprob() -> Program:
    """Two thousand samples of a spline coupling flow with their log densities."""
    import equinox as eqx
    import paramax

    params, static = _flow("spline", flow_layers=4)

    def run(params, k):
        return paramax.unwrap(eqx.combine(params, static)).sample_and_log_prob(k, (2000,))

    return run, (params, jax.random.key(13))


def flowjax_bnaf_vi_elbo_grad() -> Program:
    """Variational bound of a block neural autoregressive flow, and its gradient."""
    import equinox as eqx
    import paramax

    params, static = _flow("bnaf", dim=3, invert=False)

    def run(params, k):
        def elbo(params):
            f = paramax.unwrap(eqx.combine(params, static))
            x, lq = f.sample_and_log_prob(k, (128,))
            lp = -(x[:, 0] ** 2 / 2 + (x[:, 1] - x[:, 0] ** 2) ** 2 + x[:, 2] ** 2 / 8)
            return (lq - lp).mean()

        return jax.value_and_grad(elbo)(params)

    return run, (params, jax.random.key(14))


def flowjax_maf_epoch_scan() -> Program:
    """One epoch of ten batches for a larger masked autoregressive flow."""
    import equinox as eqx
    import optax
    import paramax

    params, static = _flow("maf", flow_layers=6, nn_width=64)
    optimizer = optax.adam(1e-3)
    x = jnp.asarray(np.random.default_rng(133).normal(size=(10, 512, 6)), jnp.float32)

    def run(params, opt_state, x):
        def step(c, b):
            params, opt_state = c
            value, grads = jax.value_and_grad(
                lambda params: -paramax.unwrap(eqx.combine(params, static)).log_prob(b).mean()
            )(params)
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return (eqx.apply_updates(params, updates), opt_state), value

        return jax.lax.scan(step, (params, opt_state), x)

    return run, (params, optimizer.init(params), x)


def _gp(n):
    """Noisy observations of a wave at random places."""
    rng = np.random.default_rng(20)
    x = jnp.asarray(np.sort(rng.uniform(-3, 3, (n, 1)), 0))
    y = jnp.sin(4 * x) + jnp.cos(2 * x) + 0.1 * jnp.asarray(rng.normal(size=(n, 1)))
    return x, y


def gpjax_exact_mll_grad() -> Program:
    """Marginal likelihood of an exact Gaussian process on 200 points, and its gradient."""
    import gpjax as gpx
    from flax import nnx

    x, y = _gp(200)
    post = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Zero(),
        kernel=gpx.kernels.Matern52() + gpx.kernels.Periodic(),
    ) * gpx.likelihoods.Gaussian(num_datapoints=200)
    graph, state = nnx.split(post)

    def run(state, x, y):
        def loss(state):
            return -gpx.objectives.conjugate_mll(nnx.merge(graph, state), gpx.Dataset(x, y))

        return jax.value_and_grad(loss)(state)

    return run, (state, x, y)


def gpjax_exact_predict() -> Program:
    """Mean and variance that an exact Gaussian process predicts at 300 points."""
    import gpjax as gpx

    x, y = _gp(150)
    xt = jnp.linspace(-3.5, 3.5, 300)[:, None]
    post = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Zero(), kernel=gpx.kernels.RBF(lengthscale=0.5)
    ) * gpx.likelihoods.Gaussian(num_datapoints=150)

    def run(x, y, xt, ls):
        d = post.predict(xt, train_data=gpx.Dataset(x, y))
        return d.mean * ls, jnp.diag(d.covariance())

    return run, (x, y, xt, jnp.array(1.0))


def gpjax_svgp_elbo_grad() -> Program:
    """Variational bound of a sparse Gaussian process on 6000 points, and its gradient."""
    import gpjax as gpx
    from flax import nnx

    x, y = _gp(6000)
    post = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Zero(), kernel=gpx.kernels.RBF()
    ) * gpx.likelihoods.Gaussian(num_datapoints=6000)
    q = gpx.variational_families.VariationalGaussian(
        posterior=post, inducing_inputs=jnp.linspace(-3, 3, 60)[:, None]
    )
    graph, state = nnx.split(q)

    def run(state, x, y):
        def loss(state):
            return -gpx.objectives.elbo(nnx.merge(graph, state), gpx.Dataset(x, y))

        return jax.value_and_grad(loss)(state)

    return run, (state, x, y)


def gpjax_exact_gp_large_train_scan() -> Program:
    """Five Adam steps on the hyperparameters of an exact Gaussian process on 500 points."""
    import gpjax as gpx
    import optax
    from flax import nnx

    x, y = _gp(500)
    post = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Constant(),
        kernel=gpx.kernels.RBF() * gpx.kernels.Periodic() + gpx.kernels.Matern32(),
    ) * gpx.likelihoods.Gaussian(num_datapoints=500)
    graph, state = nnx.split(post)
    optimizer = optax.adam(1e-2)

    def run(state, x, y):
        def loss(state):
            return -gpx.objectives.conjugate_mll(nnx.merge(graph, state), gpx.Dataset(x, y))

        def step(c, _):
            state, opt_state = c
            value, grads = jax.value_and_grad(loss)(state)
            updates, opt_state = optimizer.update(grads, opt_state)
            return (optax.apply_updates(state, updates), opt_state), value

        (state, _), value = jax.lax.scan(step, (state, optimizer.init(state)), None, 5)
        return state, value

    return run, (state, x, y)


def matfree_slq_logdet_grad() -> Program:
    """Log determinant by stochastic Lanczos quadrature, and its gradient."""
    from matfree import decomp, funm, stochtrace

    A = np.random.default_rng(30).normal(size=(300, 300))
    A = jnp.asarray(A @ A.T / 300 + np.eye(300), jnp.float32)

    def run(A, key):
        tri = decomp.tridiag_sym(15)
        prob = funm.monte_carlo_funm_sym_logdet(tri)
        sampler = stochtrace.sampler_signs(jnp.ones(300), num=20)
        est = stochtrace.estimator_monte_carlo(prob, sampler)
        return jax.value_and_grad(lambda A: est(lambda v, A: A @ v, key, A))(A)

    return run, (A, jax.random.PRNGKey(30))


def matfree_hutchinson_trace_diag() -> Program:
    """Trace and diagonal of a Jacobian, estimated from 500 random vectors."""
    from matfree import stochtrace

    w1 = jnp.asarray(np.random.default_rng(31).normal(size=(64, 128)) * 0.1, jnp.float32)

    def run(w1, key):
        def f(x):
            return jnp.tanh(x @ w1) @ w1.T

        _, jvp = jax.linearize(f, jnp.ones(64))
        sampler = stochtrace.sampler_normal(jnp.ones(64), num=500)
        return stochtrace.estimator_monte_carlo(
            stochtrace.monte_carlo_trace_and_diagonal(), sampler
        )(jvp, key)

    return run, (w1, jax.random.PRNGKey(31))


def matfree_lanczos_expm_action() -> Program:
    """Exponential of a Laplacian applied to a vector, by the Lanczos method."""
    from matfree import decomp, funm

    def run(u):
        def lap(v):
            v = v.reshape(64, 64)
            return (
                0.2
                * (
                    jnp.roll(v, 1, 0)
                    + jnp.roll(v, -1, 0)
                    + jnp.roll(v, 1, 1)
                    + jnp.roll(v, -1, 1)
                    - 4 * v
                )
            ).reshape(-1)

        dense = funm.dense_funm_sym_eigh(jnp.exp)
        return funm.funm_lanczos_sym(dense, decomp.tridiag_sym(20))(lap, u)

    return run, (jnp.asarray(np.random.default_rng(32).normal(size=4096), jnp.float32),)


def _cf(n):
    """A correlated field with a power-law spectrum on an n by n grid."""
    import nifty.re as jft

    cf = jft.CorrelatedFieldMaker("cf")
    cf.set_amplitude_total_offset(offset_mean=2.0, offset_std=(1e-1, 3e-2))
    cf.add_fluctuations(
        (n, n),
        distances=1.0 / n,
        fluctuations=(1.0, 0.5),
        loglogavgslope=(-3.0, 0.2),
        flexibility=(1.0, 0.5),
        asperity=(0.5, 0.1),
        prefix="ax",
    )
    return cf.finalize()


def nifty_correlated_field_poisson_grad() -> Program:
    """Poisson likelihood of counts under a log-normal random field, and its gradient."""
    import nifty.re as jft

    cf = _cf(512)
    pos = jft.random_like(jax.random.PRNGKey(60), cf.domain)
    data = jnp.asarray(np.random.default_rng(60).poisson(8.0, (512, 512)), jnp.int32)
    lh = jft.Poissonian(data).amend(lambda x: jnp.exp(cf(x)), domain=cf.domain)

    def run(pos):
        return jax.value_and_grad(lambda p: lh(p))(pos)

    return run, (pos,)


def nifty_metric_cg_solve() -> Program:
    """Twelve conjugate gradient steps with the Fisher metric of a random field."""
    import nifty.re as jft

    cf = _cf(64)
    pos = jft.random_like(jax.random.PRNGKey(61), cf.domain)
    b = jft.random_like(jax.random.PRNGKey(62), cf.domain)
    data = jnp.asarray(np.random.default_rng(61).normal(2.0, 1.0, (64, 64)), jnp.float32)

    def run(pos, b, data):
        lh = jft.Gaussian(data, lambda x: x / 0.25).amend(cf)

        def mat(t):
            return jft.Vector(lh.metric(pos, t)) + jft.Vector(t)

        r = jft.static_cg(lambda t: mat(t.tree), jft.Vector(b), maxiter=12, absdelta=1e-12)
        return r[0].tree

    return run, (pos, b, data)


def nifty_ornstein_uhlenbeck_path_grad() -> Program:
    """A path of an Ornstein-Uhlenbeck process and the gradient of its mean square."""
    import nifty.re as jft

    ou = jft.OrnsteinUhlenbeckProcess(
        x0=jft.NormalPrior(0.0, 1.0, name="x0"),
        sigma=0.5,
        gamma=0.3,
        dt=0.1,
        N_steps=2000,
        name="ou",
    )
    pos = jft.random_like(jax.random.PRNGKey(63), ou.domain)

    def run(pos):
        return jax.value_and_grad(lambda p: (ou(p) ** 2).mean())(pos)

    return run, (pos,)


def nifty_hmc_chain_correlated_field() -> Program:
    """Ten Hamiltonian trajectories over the parameters of a random field."""
    import nifty.re as jft

    cf = _cf(32)
    pos = jft.random_like(jax.random.PRNGKey(138), cf.domain)
    data = jnp.asarray(np.random.default_rng(138).normal(2.0, 1.0, (32, 32)), jnp.float32)

    def run(pos, data, keys):
        lh = jft.Gaussian(data, lambda x: x / 0.25).amend(cf)

        def logp(p):
            return lh(p) + 0.5 * sum((v**2).sum() for v in jax.tree.leaves(p))

        def step(p, k):
            def leap(c, _):
                p, m = c
                m = jax.tree.map(lambda m, g: m - 5e-4 * g, m, jax.grad(logp)(p))
                p = jax.tree.map(lambda p, m: p + 1e-3 * m, p, m)
                return (p, m), None

            m = jft.random_like(k, p)
            (p, m), _ = jax.lax.scan(leap, (p, m), None, 10)
            return p, logp(p)

        return jax.lax.scan(step, pos, keys)

    return run, (pos, data, jax.random.split(jax.random.PRNGKey(139), 10))


WORKLOADS: dict[str, Builder] = {
    "flowjax-maf-train-step": flowjax_maf_train_step,
    "flowjax-spline-coupling-sample-logprob": flowjax_spline_coupling_sample_logprob,
    "flowjax-bnaf-vi-elbo-grad": flowjax_bnaf_vi_elbo_grad,
    "flowjax-maf-epoch-scan": flowjax_maf_epoch_scan,
    "matfree-slq-logdet-grad": matfree_slq_logdet_grad,
    "matfree-hutchinson-trace-diag": matfree_hutchinson_trace_diag,
    "matfree-lanczos-expm-action": matfree_lanczos_expm_action,
    "nifty-correlated-field-poisson-grad": nifty_correlated_field_poisson_grad,
    "nifty-metric-cg-solve": nifty_metric_cg_solve,
    "nifty-ornstein-uhlenbeck-path-grad": nifty_ornstein_uhlenbeck_path_grad,
    "nifty-hmc-chain-correlated-field": nifty_hmc_chain_correlated_field,
}

WORKLOADS_X64: dict[str, Builder] = {
    "gpjax-exact-mll-grad": gpjax_exact_mll_grad,
    "gpjax-exact-predict": gpjax_exact_predict,
    "gpjax-svgp-elbo-grad": gpjax_svgp_elbo_grad,
    "gpjax-exact-gp-large-train-scan": gpjax_exact_gp_large_train_scan,
}
