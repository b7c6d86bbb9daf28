"""Mixtures, state-space models, histogram likelihoods, flows, sampling and variational inference.

Libraries: gmmx, cuthbert, evermore, distreqx, blackjax and numpyro.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.sealed.common import Program, integers, normal, strong, uniform

__all__ = ["WORKLOADS"]


def gmmx_expectation_maximization() -> Program:
    """Eight iterations of expectation maximization of a mixture of eight normals."""
    from gmmx import EMFitter, GaussianMixtureModelJax

    components, features = 8, 6
    centers = 3.0 * normal(1, components, features)
    data = centers[integers(2, components, 6000)] + normal(3, 6000, features)

    # With no tolerance the number of iterations cannot depend on rounding.
    fitter = EMFitter(tol=0.0, max_iter=8)

    def fit(data: jax.Array, log_weights: jax.Array) -> tuple[jax.Array, ...]:
        start = GaussianMixtureModelJax.from_responsibilities(
            data[:, None, :, None], jax.nn.softmax(log_weights, axis=1), 1e-4
        )
        result = fitter.fit(data, start)
        return result.gmm.means, result.gmm.covariances.values, result.log_likelihood

    distance = ((data[:, None] - centers - 0.5 * normal(4, components, features)) ** 2).sum(-1)
    return fit, (data, -0.2 * distance[..., None, None])


def cuthbert_local_level() -> Program:
    """Parallel square-root filtering and smoothing of a level, trend and season of a series."""
    import cuthbert
    from cuthbert.gaussian import kalman

    season = np.zeros((3, 3))
    season[0], season[1, 0], season[2, 1] = -1.0, 1.0, 1.0
    transition = jax.scipy.linalg.block_diag(jnp.array([[1.0, 1.0], [0.0, 1.0]]), season)
    transition = transition.astype(jnp.float32)
    observed = jnp.array([[1.0, 0.0, 1.0, 0.0, 0.0]])

    def smooth(series: jax.Array, log_scales: jax.Array) -> tuple[jax.Array, ...]:
        scales = jnp.exp(log_scales)
        noise = jnp.diag(jnp.concatenate([scales[:3], jnp.full(2, 1e-3)]))

        def dynamics(index: jax.Array) -> tuple[jax.Array, ...]:
            return transition, jnp.zeros(5), noise

        def observation(index: jax.Array) -> tuple[jax.Array, ...]:
            return observed, jnp.zeros(1), scales[3].reshape(1, 1), series[index - 1]

        steps = jnp.arange(1, series.shape[0] + 1)
        model = kalman.build_filter(jnp.zeros(5), 3.0 * jnp.eye(5), dynamics, observation)
        states = cuthbert.filter(model, steps, model.init_prepare(), parallel=True)
        smoothed = cuthbert.smoother(kalman.build_smoother(dynamics), states, parallel=True)
        return smoothed.mean, states.log_normalizing_constant[-1]

    time = jnp.arange(128.0)
    series = 0.02 * time + jnp.sin(jnp.pi * time / 2) + 0.3 * normal(1, 128)
    return smooth, (series[:, None], jnp.array([-2.0, -4.0, -3.0, -1.0]))


def evermore_template_fit() -> Program:
    """The gradient and Hessian of a binned likelihood of a particle physics analysis."""
    import evermore as evm

    names = ("signal", "top", "boson", "fake")

    def likelihood(values: dict[str, jax.Array], data: dict[str, jax.Array]) -> jax.Array:
        strength = evm.Parameter(value=values["strength"])
        expected = strength.scale()(data["signal"])
        penalty = jnp.zeros(())
        for index, name in enumerate(names):
            norm = evm.NormalParameter(value=values["norm"][index])
            shape = evm.NormalParameter(value=values["shape"][index])
            template = expected if name == "signal" else data[name]
            modify = norm.scale_log_asymmetric(up=jnp.array([1.1]), down=jnp.array([0.9]))
            morph = shape.morphing(
                up_template=template * data["up"], down_template=template / data["up"]
            )
            total = morph(modify(template))
            expected = total if name == "signal" else expected + total
            for parameter in (norm, shape):
                penalty = penalty + parameter.prior.log_prob(parameter.get_value())
        poisson = evm.pdf.PoissonContinuous(lamb=expected).log_prob(data["observed"])
        return -(poisson.sum() + penalty)

    def derivatives(values: Any, data: Any) -> tuple[Any, Any, Any]:
        value, gradient = jax.value_and_grad(likelihood)(values, data)
        return value, gradient, jax.hessian(likelihood)(values, data)

    bins = jnp.linspace(0.0, 1.0, 40)
    data = {"signal": 30.0 * jnp.exp(-50.0 * (bins - 0.6) ** 2), "up": 1.0 + 0.1 * bins}
    for index, name in enumerate(names[1:]):
        data[name] = 40.0 * jnp.exp(-(index + 1.0) * bins) + 1.0
    data["observed"] = sum(data[name] for name in names) + 5.0 * normal(1, 40)
    values = {"strength": jnp.ones(()), "norm": 0.1 * normal(2, 4), "shape": 0.1 * normal(3, 4)}
    return derivatives, (values, data)


def distreqx_mixture_regression() -> Program:
    """An Adam step of a mixture density network with full covariances of two outputs."""
    import equinox as eqx
    import optax
    from distreqx import distributions

    components = 5
    network = eqx.nn.MLP(3, components * 6, 64, 2, jnp.tanh, key=jax.random.PRNGKey(0))
    weights, static = eqx.partition(network, eqx.is_array)
    optimizer = optax.adam(1e-3)

    def log_density(network: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        raw = network(x).reshape(components, 6)
        diagonal = jax.nn.softplus(raw[:, 3:5]) + 1e-2
        factor = jax.vmap(jnp.diag)(diagonal).at[:, 1, 0].set(raw[:, 5])
        densities = jax.vmap(
            lambda mean, scale: distributions.MultivariateNormalTri(mean, scale).log_prob(y)
        )(raw[:, 1:3], factor)
        choice = distributions.Categorical(logits=raw[:, 0])
        return jax.nn.logsumexp(densities + jnp.log(choice.probs))

    def loss(weights: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        network = eqx.combine(weights, static)
        return -jnp.mean(jax.vmap(log_density, (None, 0, 0))(network, x, y))

    def step(weights: Any, state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(weights, x, y)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    x = normal(1, 48, 3)
    y = jnp.stack([jnp.sin(3 * x[:, 0]) + x[:, 1], x[:, 2] ** 2], -1) + 0.1 * normal(2, 48, 2)
    return step, (weights, optimizer.init(weights), x, y)


def blackjax_logistic_mala() -> Program:
    """Twenty Langevin steps of sixteen chains of a hierarchical logistic regression."""
    import blackjax

    def log_density(position: dict[str, jax.Array], data: tuple[jax.Array, ...]) -> jax.Array:
        design, groups, labels = data
        spread = jnp.exp(position["log_spread"])
        logits = design @ position["slopes"] + spread * position["groups"][groups]
        fit = jnp.sum(labels * logits - jnp.logaddexp(0.0, logits))
        prior = sum(0.5 * jnp.sum(value**2) for value in position.values())
        return fit - prior

    def run(key: jax.Array, positions: Any, data: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
        kernel = blackjax.mala(lambda position: log_density(position, data), 1e-3)

        def step(states: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            keys = jax.random.split(key, 16)
            states, information = jax.vmap(kernel.step)(keys, states)
            return states, information.acceptance_rate.mean()

        states = jax.vmap(kernel.init)(positions)
        states, rates = jax.lax.scan(step, states, jax.random.split(key, 20))
        return states.position, rates

    design, groups = normal(1, 300, 6), integers(2, 12, 300)
    labels = (uniform(3, 300) < jax.nn.sigmoid(design @ normal(4, 6))).astype(jnp.float32)
    positions = {
        "slopes": 0.3 * normal(5, 16, 6),
        "groups": normal(6, 16, 12),
        "log_spread": 0.1 * normal(7, 16),
    }
    return run, (jax.random.PRNGKey(0), positions, (design, groups, labels))


def numpyro_eight_schools_svi() -> Program:
    """Six steps of variational inference of a hierarchical model of the scores of schools."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    def model(effects: jax.Array, errors: jax.Array) -> None:
        center = numpyro.sample("center", dist.Normal(0.0, 5.0))
        spread = numpyro.sample("spread", dist.HalfCauchy(5.0))
        with numpyro.plate("schools", effects.shape[0]):
            offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
            numpyro.sample("effects", dist.Normal(center + spread * offset, errors), obs=effects)

    svi = SVI(model, AutoMultivariateNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO(8))
    effects = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    state = strong(svi.init(jax.random.PRNGKey(0), effects, errors))

    def train(state: Any, effects: jax.Array, errors: jax.Array) -> tuple[Any, jax.Array]:
        return jax.lax.scan(lambda s, _: svi.update(s, effects, errors), state, None, length=6)

    return train, (state, effects, errors)


WORKLOADS: dict[str, Callable[[], Program]] = {
    "gmmx-expectation-maximization": gmmx_expectation_maximization,
    "cuthbert-local-level": cuthbert_local_level,
    "evermore-template-fit": evermore_template_fit,
    "distreqx-mixture-regression": distreqx_mixture_regression,
    "blackjax-logistic-mala": blackjax_logistic_mala,
    "numpyro-eight-schools-svi": numpyro_eight_schools_svi,
}
