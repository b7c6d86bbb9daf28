"""Samplers and filters; the random numbers are arguments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal


def kalman_likelihood() -> Built:
    """Log likelihood of a long series under a Matérn process, by a Kalman filter with two states.

    After jax-ml/jax#2419: a filter over 50 thousand points, for which Matlab takes 0.1 seconds.
    """
    length = 20_000

    def fn(seen: Any, length_scale: Any, variance: Any, noise: Any) -> Any:
        rate = jnp.sqrt(3.0) / length_scale
        decay = jnp.exp(-rate * 0.1)
        transition = decay * jnp.array([[1 + rate * 0.1, 0.1], [-(rate**2) * 0.1, 1 - rate * 0.1]])
        stationary = jnp.diag(jnp.array([variance, variance * rate**2]))
        process = stationary - transition @ stationary @ transition.T
        observe = jnp.array([[1.0, 0.0]])

        def step(state: Any, y: Any) -> Any:
            mean, cov = state
            mean, cov = transition @ mean, transition @ cov @ transition.T + process
            spread = observe @ cov @ observe.T + noise
            gain = cov @ observe.T / spread
            error = y - observe @ mean
            mean = mean + gain @ error
            cov = cov - gain @ spread @ gain.T
            score = -0.5 * (jnp.log(2 * jnp.pi * spread[0, 0]) + error[0] ** 2 / spread[0, 0])
            return (mean, cov), score

        return jnp.sum(lax.scan(step, (jnp.zeros(2), stationary), seen)[1])

    seen = np.sin(np.arange(length) * 0.05) + 0.3 * generator().standard_normal(length)
    return fn, (
        jnp.asarray(seen, jnp.float32),
        jnp.float32(1.0),
        jnp.float32(1.0),
        jnp.float32(0.1),
    )


def _combined(first: Any, second: Any) -> Any:
    a1, b1, c1, e1, j1 = first
    a2, b2, c2, e2, j2 = second
    eye = jnp.eye(a1.shape[-1])
    turned = jnp.swapaxes(a2, -1, -2)
    left = jnp.linalg.solve(jnp.swapaxes(eye + c1 @ j2, -1, -2), turned)
    left = jnp.swapaxes(left, -1, -2)
    right = jnp.swapaxes(jnp.linalg.solve(jnp.swapaxes(eye + j2 @ c1, -1, -2), a1), -1, -2)
    b = (left @ (b1 + (c1 @ e2[..., None])[..., 0])[..., None])[..., 0] + b2
    c = left @ c1 @ jnp.swapaxes(a2, -1, -2) + c2
    e = (right @ (e2 - (j2 @ b1[..., None])[..., 0])[..., None])[..., 0] + e1
    return left @ a1, b, c, e, right @ j2 @ a1 + j1


def parallel_kalman() -> Built:
    """Kalman filter in parallel form: an associative scan whose combination solves small systems.

    After EEA-sensors/sequential-parallelization-examples#9: very slow on a CPU.
    """
    length, size = 128, 4

    def fn(transition: Any, process: Any, observe: Any, noise: Any, seen: Any) -> Any:
        def element(y: Any) -> Any:
            spread = observe @ process @ observe.T + noise
            gain = jnp.linalg.solve(spread, observe @ process).T
            update = jnp.eye(size) - gain @ observe
            scaled = transition.T @ observe.T @ jnp.linalg.inv(spread)
            return (
                update @ transition,
                gain @ y,
                update @ process,
                scaled @ y,
                scaled @ observe @ transition,
            )

        elements = jax.vmap(element)(seen)
        _, means, covariances, _, _ = lax.associative_scan(_combined, elements)
        return means, covariances

    rng = generator()
    transition = np.eye(size) + 0.1 * np.diag(np.ones(2), 2)
    args = (0.95 * transition, 0.1 * np.eye(size), np.eye(2, size), 0.5 * np.eye(2))
    seen = np.cumsum(rng.standard_normal((length, 2)) * 0.2, 0)
    return fn, (*(jnp.asarray(a, jnp.float32) for a in args), jnp.asarray(seen, jnp.float32))


def hidden_states() -> Built:
    """Log likelihood of a hidden Markov model by pairwise products in log space, as a tree.

    After pyro-ppl/numpyro#1010: 20 times slower than the sequential form.
    """
    length, states = 400, 8

    def product(x: Any, y: Any) -> Any:
        top, left = x.max(-1, keepdims=True), y.max(-2, keepdims=True)
        return jnp.log(jnp.exp(x - top) @ jnp.exp(y - left)) + top + left

    def fn(initial: Any, transition: Any, emitted: Any) -> Any:
        factors = transition[None] + emitted[:, None, :]
        while factors.shape[0] > 1:
            even = factors.shape[0] // 2 * 2
            pairs = factors[:even].reshape(even // 2, 2, states, states)
            joined = product(pairs[:, 0], pairs[:, 1])
            factors = jnp.concatenate([joined, factors[even:]])
        return jax.scipy.special.logsumexp(initial[:, None] + factors[0])

    rng = generator()
    transition = np.log(rng.dirichlet(np.ones(states), states))
    return fn, (
        jnp.full(states, -float(np.log(states))),
        jnp.asarray(transition, jnp.float32),
        normal(rng, length, states) - 1,
    )


def annealed_importance() -> Built:
    """Annealed importance sampling of a density on the line: three nested loops over scalars.

    After jax-ml/jax#1421: slower than Numba for 10 to the 5 Metropolis moves.
    """
    samples, levels, moves = 40, 15, 10

    def target(x: Any) -> Any:
        return jnp.logaddexp(-((x - 3) ** 2), -0.5 * (x + 2) ** 2)

    def energy(x: Any, beta: Any) -> Any:
        return (1 - beta) * (-0.5 * x**2) + beta * target(x)

    def fn(starts: Any, proposals: Any, luck: Any) -> Any:
        betas = jnp.linspace(0.0, 1.0, levels + 1)

        def sample(i: Any, out: Any) -> Any:
            def level(n: Any, state: Any) -> Any:
                x, weight = state

                def metropolis(t: Any, x: Any) -> Any:
                    new = x + proposals[i, n, t]
                    gain = energy(new, betas[n]) - energy(x, betas[n])
                    return jnp.where(luck[i, n, t] < gain, new, x)

                x = lax.fori_loop(0, moves, metropolis, x)
                return x, weight + energy(x, betas[n + 1]) - energy(x, betas[n])

            x, weight = lax.fori_loop(0, levels, level, (starts[i], jnp.float32(0)))
            return out.at[i].set(jnp.stack([x, weight]))

        return lax.fori_loop(0, samples, sample, jnp.zeros((samples, 2)))

    rng = generator()
    luck = jnp.asarray(np.log(rng.uniform(size=(samples, levels, moves))), jnp.float32)
    return fn, (normal(rng, samples), normal(rng, samples, levels, moves), luck)


def _regression_density(w: Any, x: Any, y: Any) -> Any:
    error = (y - x @ w[:-1]) / jnp.exp(w[-1])
    return -0.5 * jnp.sum(error**2) - y.size * w[-1] - 0.5 * jnp.sum(w**2)


def _leaps(w: Any, p: Any, size: Any, x: Any, y: Any) -> Any:
    """Eight leapfrog steps, with a step size for each coordinate."""
    slope = jax.grad(_regression_density)

    def leap(_: Any, point: Any) -> Any:
        w, p = point
        p = p + 0.5 * size * slope(w, x, y)
        w = w + size * p
        return w, p + 0.5 * size * slope(w, x, y)

    return lax.fori_loop(0, 8, leap, (w, p))


def step_adaptation() -> Built:
    """Warm-up of Hamiltonian Monte Carlo for a regression: step size and scales adapt per draw.

    After blackjax-devs/blackjax#746: the regression benchmark takes twice as long after an upgrade.
    """
    draws, count, size = 30, 200, 4

    def fn(x: Any, y: Any, momenta: Any, luck: Any) -> Any:
        def draw(state: Any, inputs: Any) -> Any:
            w, log_step, log_mean, bias, mean, square, t = state
            noise, log_uniform = inputs
            new, p = _leaps(w, noise, jnp.exp(log_step) * jnp.sqrt(square / t + 1e-3), x, y)
            gain = _regression_density(new, x, y) - _regression_density(w, x, y)
            gain = gain - 0.5 * jnp.sum(p**2 - noise**2)
            w = jnp.where(log_uniform < gain, new, w)
            chance = jnp.exp(jnp.minimum(gain, 0.0))
            bias = (1 - 1 / (t + 10)) * bias + (0.8 - chance) / (t + 10)
            log_step = -3.0 - jnp.sqrt(t) / 0.5 * bias
            log_mean = t**-0.75 * log_step + (1 - t**-0.75) * log_mean
            change = w - mean
            mean = mean + change / t
            square = square + change * (w - mean)
            return (w, log_step, log_mean, bias, mean, square, t + 1), w

        zero = jnp.zeros(size + 1)
        number = [jnp.float32(v) for v in (-3.0, -3.0, 0.0)]
        start = (zero, *number, zero, jnp.full(size + 1, 0.01), jnp.float32(1))
        state, path = lax.scan(draw, start, (momenta, luck))
        return path, state[2]

    rng = generator()
    x = rng.standard_normal((count, size))
    y = x @ np.array([1.0, -0.5, 0.2, 0.0]) + 0.5 * rng.standard_normal(count)
    luck = jnp.asarray(np.log(rng.uniform(size=draws)), jnp.float32)
    return fn, (jnp.asarray(x), jnp.asarray(y), normal(rng, draws, size + 1), luck)


def spin_flips() -> Built:
    """Metropolis walks over spins whose density is a complex restricted Boltzmann machine.

    After netket/netket#396: the sampler is several times slower than the C++ one.
    """
    chains, spins, sweeps = 16, 20, 12

    def fn(a: Any, b: Any, w: Any, start: Any, sites: Any, luck: Any) -> Any:
        def amplitude(sigma: Any) -> Any:
            return sigma @ a + jnp.sum(jnp.log(jnp.cosh(sigma @ w + b)), -1)

        def flip(t: Any, state: Any) -> Any:
            sigma, value = state
            site = sites[t]
            new = jax.vmap(lambda s, i: s.at[i].multiply(-1))(sigma, site)
            proposed = amplitude(new)
            taken = luck[t] < 2 * jnp.real(proposed - value)
            return jnp.where(taken[:, None], new, sigma), jnp.where(taken, proposed, value)

        def sweep(state: Any, k: Any) -> Any:
            sigma = state
            value = amplitude(sigma)
            turns = (k * spins, (k + 1) * spins)
            sigma, value = lax.fori_loop(*turns, flip, (sigma, value))
            return sigma, (jnp.mean(sigma), jnp.mean(jnp.real(value)))

        return lax.scan(sweep, start, jnp.arange(sweeps))

    rng = generator()

    def weights(*shape: int) -> Any:
        values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        return jnp.asarray(0.1 * values, jnp.complex64)

    start = jnp.asarray(rng.choice([-1.0, 1.0], (chains, spins)), jnp.float32)
    sites = jnp.asarray(rng.integers(0, spins, (sweeps * spins, chains)), jnp.int32)
    luck = jnp.asarray(np.log(rng.uniform(size=(sweeps * spins, chains))), jnp.float32)
    return fn, (weights(spins), weights(spins), weights(spins, spins), start, sites, luck)


REPORTS: tuple[Reported, ...] = (
    Reported("kalman_likelihood", "jax-ml/jax#2419", kalman_likelihood),
    Reported(
        "parallel_kalman", "EEA-sensors/sequential-parallelization-examples#9", parallel_kalman
    ),
    Reported("hidden_states", "pyro-ppl/numpyro#1010", hidden_states),
    Reported("annealed_importance", "jax-ml/jax#1421", annealed_importance),
    Reported("step_adaptation", "blackjax-devs/blackjax#746", step_adaptation),
    Reported("spin_flips", "netket/netket#396", spin_flips),
)
"""The programs of this family."""
