"""Differential equations, least squares, estimation, programs and linear systems.

Libraries: diffrax, optimistix, contrax, slsqp_jax and lineax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.sealed.common import Program, normal, uniform

__all__ = ["WORKLOADS"]


def diffrax_latent_dynamics() -> Program:
    """The gradient of a neural differential equation fitted to a batch of decaying spirals."""
    import diffrax
    import equinox as eqx

    network = eqx.nn.MLP(2, 2, 48, 2, jax.nn.softplus, key=jax.random.PRNGKey(0))
    weights, static = eqx.partition(network, eqx.is_array)

    def solve(weights: Any, start: jax.Array, times: jax.Array) -> jax.Array:
        field = eqx.combine(weights, static)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, _: field(y)),
            diffrax.Tsit5(),
            t0=times[0],
            t1=times[-1],
            dt0=0.1,
            y0=start,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.ConstantStepSize(),
            max_steps=64,
        ).ys

    def loss(weights: Any, data: jax.Array, times: jax.Array) -> jax.Array:
        predicted = jax.vmap(solve, (None, 0, None))(weights, data[:, 0], times)
        return jnp.mean((predicted - data) ** 2)

    times = jnp.linspace(0.0, 3.0, 25)
    angle = 2 * jnp.pi * uniform(1, 32, 1) + 2 * times
    data = jnp.exp(-0.2 * times)[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
    return jax.value_and_grad(loss), (weights, data, times)


def optimistix_decay_fits() -> Program:
    """Levenberg-Marquardt fits of two exponentials to the signals of 64 voxels."""
    import optimistix as optx

    solver = optx.LevenbergMarquardt(rtol=1e-5, atol=1e-5)

    def residuals(parameters: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
        times, signal = data
        fast, slow = jnp.exp(parameters[2]), jnp.exp(parameters[3])
        model = parameters[0] * jnp.exp(-fast * times) + parameters[1] * jnp.exp(-slow * times)
        return model - signal

    def fit(times: jax.Array, signals: jax.Array) -> tuple[jax.Array, jax.Array]:
        start = jnp.array([0.5, 0.5, 1.5, -1.0])

        def voxel(signal: jax.Array) -> tuple[jax.Array, jax.Array]:
            arguments = (times, signal)
            found = optx.least_squares(
                residuals, solver, start, arguments, max_steps=40, throw=False
            ).value
            # The fitted curve is well determined where its parameters may not be.
            return residuals(found, arguments) + signal, jnp.sort(found[:2]).sum()

        return jax.vmap(voxel)(signals)

    times = jnp.linspace(0.0, 5.0, 32)
    share, rate = 0.3 + 0.4 * uniform(1, 64, 1), jnp.exp(1.5 + 0.2 * normal(2, 64, 1))
    signals = share * jnp.exp(-rate * times) + (1 - share) * jnp.exp(-0.3 * times)
    return fit, (times, signals + 0.01 * normal(3, 64, 32))


def contrax_radar_tracking() -> Program:
    """Extended Kalman filtering of a turning aircraft that a radar sees by range and bearing."""
    import contrax as cx

    def motion(state: jax.Array, control: jax.Array) -> jax.Array:
        x, y, speed, heading, turn = state
        return jnp.stack(
            [
                x + 0.5 * speed * jnp.cos(heading),
                y + 0.5 * speed * jnp.sin(heading),
                speed + control[0],
                heading + 0.5 * turn,
                0.98 * turn,
            ]
        )

    def radar(state: jax.Array) -> jax.Array:
        return jnp.stack([jnp.hypot(state[0], state[1]), jnp.arctan2(state[1], state[0])])

    def track(log_noise: jax.Array, measured: jax.Array, controls: jax.Array) -> Any:
        result = cx.ekf(
            motion,
            jnp.diag(jnp.exp(log_noise)),
            jnp.diag(jnp.array([0.04, 4e-4])),
            measured,
            controls,
            jnp.array([8.0, 6.0, 1.0, 0.5, 0.1]),
            0.5 * jnp.eye(5),
            observation=radar,
        )
        return result.x_hat, result.P, result.innovations

    controls = 0.02 * normal(1, 24, 1)
    state, states = jnp.array([8.0, 6.5, 1.1, 0.4, 0.1]), []
    for control in controls:
        state = motion(state, control)
        states.append(state)
    measured = jax.vmap(radar)(jnp.stack(states)) + normal(2, 24, 2) * jnp.array([0.2, 0.02])
    return track, (jnp.array([-5.0, -5.0, -4.0, -5.0, -6.0]), measured, controls)


def slsqp_portfolio() -> Program:
    """Sequential quadratic programming of a portfolio of ten assets with a least return."""
    import optimistix as optx
    from slsqp_jax import SLSQP, SLSQPConfig, ToleranceConfig

    def risk(weights: jax.Array, market: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        covariance, _ = market
        return 10.0 * weights @ covariance @ weights, None

    solver = SLSQP(
        eq_constraint_fn=lambda weights, market: jnp.sum(weights, keepdims=True) - 1.0,
        n_eq_constraints=1,
        ineq_constraint_fn=lambda weights, market: market[1] @ weights[:, None] - 0.05,
        n_ineq_constraints=1,
        config=SLSQPConfig(tolerance=ToleranceConfig(rtol=1e-5)),
    )

    def allocate(covariance: jax.Array, returns: jax.Array) -> jax.Array:
        start = jnp.full(10, 0.1)
        market = (covariance, returns)
        solution = optx.minimise(
            risk, solver, start, market, has_aux=True, max_steps=20, throw=False
        )
        return solution.value

    factors = 0.2 * np.asarray(normal(1, 10, 3))
    covariance = jnp.asarray(factors @ factors.T + 0.05 * np.eye(10), jnp.float32)
    return allocate, (covariance, 0.04 + 0.02 * uniform(2, 10))


def lineax_image_inpainting() -> Program:
    """Inpainting of an image with a smoothness prior: conjugate gradients and their gradient."""
    import lineax as lx

    def gradient_norm(image: jax.Array) -> jax.Array:
        return jnp.sum(jnp.diff(image, axis=0) ** 2) + jnp.sum(jnp.diff(image, axis=1) ** 2)

    def error(
        log_weight: jax.Array, image: jax.Array, mask: jax.Array, clean: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        def system(x: jax.Array) -> jax.Array:
            return mask * x + 0.5 * jnp.exp(log_weight) * jax.grad(gradient_norm)(x)

        operator = lx.FunctionLinearOperator(
            system, jax.eval_shape(lambda: image), lx.positive_semidefinite_tag
        )
        solver = lx.CG(rtol=1e-5, atol=1e-5, max_steps=400)
        filled = lx.linear_solve(operator, mask * image, solver, throw=False).value
        return jnp.mean((filled - clean) ** 2), filled

    grid = np.linspace(-1, 1, 32)
    clean = jnp.asarray(np.sin(3 * np.add.outer(grid, grid**2)), jnp.float32)
    mask = (uniform(1, 32, 32) < 0.5).astype(jnp.float32)
    noisy = clean + 0.05 * normal(2, 32, 32)
    weight = jnp.asarray(-2.0, jnp.float32)
    return jax.value_and_grad(error, has_aux=True), (weight, noisy, mask, clean)


WORKLOADS: dict[str, Callable[[], Program]] = {
    "diffrax-latent-dynamics": diffrax_latent_dynamics,
    "optimistix-decay-fits": optimistix_decay_fits,
    "contrax-radar-tracking": contrax_radar_tracking,
    "slsqp-portfolio": slsqp_portfolio,
    "lineax-image-inpainting": lineax_image_inpainting,
}
