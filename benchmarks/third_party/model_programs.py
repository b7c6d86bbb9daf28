"""State-space models, samplers, Lie groups, fluids and quantum circuits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .common import Builder, Program, normal


def tfp_hmc() -> Program:
    """Sixty transitions of Hamiltonian Monte Carlo on a logistic regression."""
    from tensorflow_probability.substrates import jax as tfp

    tfd = tfp.distributions
    x = normal(0, 50, 4)
    y = (x[:, 0] > 0).astype(jnp.float32)

    def density(w: jax.Array) -> Any:
        prior = tfd.Normal(0.0, 1.0).log_prob(w).sum()
        return prior + tfd.Bernoulli(logits=x @ w).log_prob(y).sum()

    kernel = tfp.mcmc.HamiltonianMonteCarlo(density, step_size=0.05, num_leapfrog_steps=5)

    def chain(seed: jax.Array) -> Any:
        return tfp.mcmc.sample_chain(
            60, jnp.zeros(4), kernel=kernel, num_burnin_steps=10, trace_fn=None,
            seed=jax.random.PRNGKey(seed),
        )  # fmt: skip

    return chain, (jnp.int32(0),)


def tfp_nuts() -> Program:
    """Twenty transitions of the no-U-turn sampler on a normal distribution."""
    from tensorflow_probability.substrates import jax as tfp

    def density(w: jax.Array) -> Any:
        return tfp.distributions.MultivariateNormalDiag(
            jnp.zeros(5), jnp.arange(1.0, 6.0)
        ).log_prob(w)

    kernel = tfp.mcmc.NoUTurnSampler(density, step_size=0.3, max_tree_depth=5)

    def chain(seed: jax.Array) -> Any:
        return tfp.mcmc.sample_chain(
            20, jnp.zeros(5), kernel=kernel, trace_fn=None, seed=jax.random.PRNGKey(seed)
        )

    return chain, (jnp.int32(0),)


def tfp_gaussian_process() -> Program:
    """Marginal likelihood of a Gaussian process and its gradient."""
    from tensorflow_probability.substrates import jax as tfp

    kernels = tfp.math.psd_kernels
    x = jnp.linspace(0.0, 1.0, 40)[:, None]
    y = jnp.sin(6.0 * x[:, 0])

    def likelihood(a: jax.Array) -> Any:
        kernel = kernels.ExponentiatedQuadratic(a[0], a[1])
        process = tfp.distributions.GaussianProcess(kernel, x, observation_noise_variance=a[2])
        return process.log_prob(y)

    return jax.value_and_grad(likelihood), (jnp.array([1.0, 0.3, 0.1]),)


def tfp_state_space() -> Program:
    """Likelihood of a local linear trend over sixty steps, and its gradient."""
    from tensorflow_probability.substrates import jax as tfp

    diag = tfp.distributions.MultivariateNormalDiag

    def likelihood(y: jax.Array, scale: jax.Array) -> Any:
        model = tfp.distributions.LinearGaussianStateSpaceModel(
            60,
            jnp.array([[1.0, 1.0], [0.0, 1.0]]),
            diag(jnp.zeros(2), jnp.array([scale, 0.1])),
            jnp.array([[1.0, 0.0]]),
            diag(jnp.zeros(1), jnp.array([0.5])),
            diag(jnp.zeros(2), jnp.ones(2)),
        )
        return model.log_prob(y)

    return jax.value_and_grad(likelihood, argnums=1), (normal(0, 60, 1), jnp.float32(0.3))


def dynamax_smoother() -> Program:
    """Kalman smoother of a linear model over fifty steps."""
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    model = LinearGaussianSSM(3, 2)
    params, _ = model.initialize(jax.random.PRNGKey(0))
    _, emissions = model.sample(params, jax.random.PRNGKey(1), 50)
    return lambda seen: model.smoother(params, seen).smoothed_means, (emissions,)


def dynamax_hmm() -> Program:
    """Filter and most likely states of a hidden Markov model over a hundred steps."""
    from dynamax.hidden_markov_model import GaussianHMM

    model = GaussianHMM(4, 2)
    params, _ = model.initialize(jax.random.PRNGKey(0))
    _, emissions = model.sample(params, jax.random.PRNGKey(1), 100)

    def infer(seen: jax.Array) -> Any:
        return model.filter(params, seen).marginal_loglik, model.most_likely_states(params, seen)

    return infer, (emissions,)


def jaxlie_pose_graph() -> Program:
    """Residuals between 32 poses in three dimensions, and their gradient."""
    import jaxlie

    def residuals(tangents: jax.Array) -> Any:
        poses = jax.vmap(jaxlie.SE3.exp)(tangents)
        before = jax.tree.map(lambda x: x[:-1], poses)
        after = jax.tree.map(lambda x: x[1:], poses)
        steps = jax.vmap(lambda a, b: (a.inverse() @ b).log())(before, after)
        return jnp.sum(steps**2)

    return jax.value_and_grad(residuals), (0.3 * normal(0, 32, 6),)


def jax_cfd_steps() -> Program:
    """Five steps of incompressible flow on a grid of 32 x 32."""
    import jax_cfd.base as cfd

    grid = cfd.grids.Grid((32, 32), domain=((0, 6.28), (0, 6.28)))
    velocity = cfd.initial_conditions.filtered_velocity_field(jax.random.PRNGKey(0), grid, 1.0, 2)
    step = cfd.equations.semi_implicit_navier_stokes(
        density=1.0, viscosity=1e-2, dt=0.01, grid=grid
    )
    return cfd.funcutils.repeated(step, steps=5), (velocity,)


def pennylane_circuit() -> Program:
    """Expectation of a circuit of four qubits and three layers, and its gradient."""
    import pennylane as qml

    @qml.qnode(qml.device("default.qubit", wires=4), interface="jax")
    def circuit(weights: jax.Array) -> Any:
        for layer in range(3):
            for wire in range(4):
                qml.RX(weights[layer, wire, 0], wires=wire)
                qml.RY(weights[layer, wire, 1], wires=wire)
            for wire in range(3):
                qml.CNOT(wires=[wire, wire + 1])
        return qml.expval(qml.PauliZ(0))

    return jax.value_and_grad(circuit), (normal(0, 3, 4, 2),)


def netket_local_energy() -> Program:
    """Local energies of 32 samples of an Ising chain under a restricted Boltzmann machine."""
    import netket as nk

    hilbert = nk.hilbert.Spin(0.5, 8)
    hamiltonian = nk.operator.IsingJax(hilbert, nk.graph.Chain(8), h=1.0)
    model = nk.models.RBM(alpha=1, param_dtype=float)
    weights = model.init(jax.random.PRNGKey(0), jnp.ones((1, 8)))

    def energies(samples: jax.Array) -> Any:
        connected, elements = hamiltonian.get_conn_padded(samples)
        ratio = model.apply(weights, connected) - model.apply(weights, samples)[:, None]
        return jnp.sum(elements * jnp.exp(ratio), axis=-1)

    return energies, (jnp.sign(normal(0, 32, 8)),)


WORKLOADS: dict[str, Builder] = {
    "tfp-hmc-logistic": tfp_hmc,
    "tfp-nuts-normal": tfp_nuts,
    "tfp-gaussian-process-grad": tfp_gaussian_process,
    "tfp-state-space-grad": tfp_state_space,
    "dynamax-kalman-smoother": dynamax_smoother,
    "dynamax-hmm": dynamax_hmm,
    "jaxlie-pose-graph-grad": jaxlie_pose_graph,
    "jax-cfd-navier-stokes": jax_cfd_steps,
    "pennylane-circuit-grad": pennylane_circuit,
    "netket-local-energy": netket_local_energy,
}
