"""Sampling, and estimation of hidden states."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree

SAMPLING = Family("sampling-chain")
ESTIMATION = Family("state-estimation")
FAMILIES = (SAMPLING, ESTIMATION)


def _schools(params: Tree, effects: Array, errors: Array) -> Tree:
    """Log density of the eight-schools model, non-centred."""
    mean, log_scale, offsets = params
    scale = jnp.exp(log_scale)
    level = mean + scale * offsets
    prior = -0.5 * (mean / 5.0) ** 2 - 0.5 * jnp.sum(offsets**2) - jnp.log1p((scale / 5.0) ** 2)
    return prior + log_scale - 0.5 * jnp.sum(((effects - level) / errors) ** 2)


@SAMPLING.program(
    "eight_schools_mala",
    "300 smoothed Langevin-adjusted steps on the eight schools",
    gradient=True,
    loops=True,
)
def _eight_schools_mala() -> Built:
    def run(params: Tree, seed: Array, effects: Array, errors: Array) -> Tree:
        def log_density(params: Tree) -> Tree:
            return _schools(params, effects, errors)

        def step(params: Tree, key: Array) -> tuple[Tree, Tree]:
            value, slope = jax.value_and_grad(log_density)(params)
            keys = jax.random.split(key, 3)
            noise = [jax.random.normal(k, p.shape) for k, p in zip(keys, params, strict=True)]
            moves = [p + 0.02 * s + 0.2 * n for p, s, n in zip(params, slope, noise, strict=True)]
            gain = jax.nn.sigmoid(log_density(tuple(moves)) - value)
            params = tuple(p + gain * (m - p) for p, m in zip(params, moves, strict=True))
            return params, (value, gain)

        return lax.scan(step, params, jax.random.split(jax.random.key(seed), 300))

    effects = np.array([28, 8, -3, 7, -1, 1, 18, 12], np.float32)
    errors = np.array([15, 10, 16, 11, 9, 11, 10, 18], np.float32)
    start = (np.float32(0.0), np.float32(0.0), np.zeros(8, np.float32))
    return run, (start, np.uint32(0), effects, errors)


@SAMPLING.program(
    "funnel_leapfrog_chains",
    "32 chains of 100 leapfrog steps on Neal's funnel, f32[32,10]",
    gradient=True,
    loops=True,
)
def _funnel_leapfrog_chains() -> Built:
    draws = Draws(1)

    def log_density(x: Array) -> Array:
        return -(x[0] ** 2) / 18.0 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 4.5 * x[0]

    def run(x: Array, momentum: Array) -> Tree:
        slope = jax.vmap(jax.grad(log_density))

        def step(carry: Tree, _: None) -> tuple[Tree, Array]:
            x, momentum, force = carry
            half = momentum + 0.02 * force
            x = x + 0.04 * half
            force = slope(x)
            momentum = half + 0.02 * force
            energy = 0.5 * jnp.sum(momentum**2, axis=-1) - jax.vmap(log_density)(x)
            return (x, momentum, force), energy

        return lax.scan(step, (x, momentum, slope(x)), length=100)

    return run, (draws.normal(32, 10, scale=0.5), draws.normal(32, 10))


@SAMPLING.program(
    "ising_heat_bath",
    "30 checkerboard sweeps of a mean-field relaxed Ising lattice, f32[64,64]",
    loops=True,
)
def _ising_heat_bath() -> Built:
    def run(spins: Array, seed: Array) -> Tree:
        parity = (jnp.arange(64)[:, None] + jnp.arange(64)[None]) % 2

        def sweep(spins: Array, key: Array) -> tuple[Array, Array]:
            noise = jax.random.uniform(key, (2, 64, 64))
            for colour in (0, 1):
                near = jnp.roll(spins, 1, 0) + jnp.roll(spins, -1, 0)
                near = near + jnp.roll(spins, 1, 1) + jnp.roll(spins, -1, 1)
                chance = jax.nn.sigmoid(0.8 * near)
                fresh = jnp.tanh(4.0 * (chance - noise[colour]))
                spins = jnp.where(parity == colour, fresh, spins)
            return spins, jnp.mean(spins)

        return lax.scan(sweep, spins, jax.random.split(jax.random.key(seed), 30))

    return run, (np.sign(Draws(2).normal(64, 64)), np.uint32(4))


@SAMPLING.program(
    "annealed_importance",
    "60 temperatures, 128 particles, importance weights of a mixture",
    gradient=True,
    loops=True,
)
def _annealed_importance() -> Built:
    def run(x: Array, noise: Array) -> Tree:
        centres = jnp.array([[-2.0, 0.0], [2.0, 1.0], [0.0, -2.0]])

        def target(x: Array) -> Array:
            square = jnp.sum((x[:, None] - centres) ** 2, axis=-1)
            return jax.nn.logsumexp(-2.0 * square, axis=-1)

        def mixed(x: Array, heat: Array) -> Array:
            return (1.0 - heat) * -0.125 * jnp.sum(x**2, axis=-1) + heat * target(x)

        def step(carry: Tree, now: Tree) -> tuple[Tree, Array]:
            x, weight = carry
            heat, before, noise = now
            weight = weight + mixed(x, heat) - mixed(x, before)
            slope = jax.grad(lambda x: jnp.sum(mixed(x, heat)))(x)
            return (x + 0.02 * slope + 0.2 * noise, weight), jax.nn.logsumexp(weight)

        heats = jnp.linspace(0.0, 1.0, 61)
        start = (x, jnp.zeros(x.shape[0]))
        return lax.scan(step, start, (heats[1:], heats[:-1], noise))

    draws = Draws(3)
    return run, (draws.normal(128, 2, scale=2.0), draws.normal(60, 128, 2))


@SAMPLING.program(
    "hierarchical_poisson_grad",
    "log density and gradient of a Poisson regression with 64 groups, f32[4096,6]",
    gradient=True,
)
def _hierarchical_poisson_grad() -> Built:
    draws = Draws(4)

    def log_density(params: Tree, x: Array, groups: Array, counts: Array) -> Tree:
        level, slopes, log_scale, mean = params
        logits = level[groups] + jnp.sum(x * slopes, axis=-1)
        rate = jnp.exp(jnp.clip(logits, -5.0, 5.0))
        likelihood = jnp.sum(counts * logits - rate)
        prior = -0.5 * jnp.sum(((level - mean) / jnp.exp(log_scale)) ** 2) - 64 * log_scale
        return likelihood + prior - 0.5 * jnp.sum(slopes**2) - 0.5 * (log_scale**2 + mean**2)

    params = (draws.normal(64), draws.normal(6, scale=0.2), np.float32(0.1), np.float32(0.5))
    data = (
        draws.normal(4096, 6),
        draws.integers(64, 4096),
        draws.integers(6, 4096).astype(np.float32),
    )
    return jax.value_and_grad(log_density), (params, *data)


@SAMPLING.program(
    "variational_inference_scan",
    "80 reparameterized steps on a Bayesian logistic regression",
    gradient=True,
    loops=True,
)
def _variational_inference_scan() -> Built:
    draws = Draws(5)

    def run(mean: Array, log_scale: Array, x: Array, labels: Array, noise: Array) -> Tree:
        def bound(params: Tree, noise: Array) -> Array:
            mean, log_scale = params
            weights = mean + jnp.exp(log_scale) * noise
            logits = weights @ x.T
            likelihood = jnp.mean(jnp.sum(labels * logits - jax.nn.softplus(logits), axis=-1))
            divergence = 0.5 * jnp.sum(mean**2 + jnp.exp(2 * log_scale) - 2 * log_scale - 1)
            return likelihood - divergence

        def step(params: Tree, noise: Array) -> tuple[Tree, Array]:
            value, slope = jax.value_and_grad(bound)(params, noise)
            return jax.tree.map(lambda p, s: p + 0.01 * s, params, slope), value

        return lax.scan(step, (mean, log_scale), noise)

    labels = draws.integers(2, 96).astype(np.float32)
    args = (
        draws.normal(12, scale=0.1),
        np.full(12, -1.0, np.float32),
        draws.normal(96, 12),
        labels,
    )
    return run, (*args, draws.normal(80, 8, 12))


def _filter(a: Array, c: Array, noise: Array, seen: Array) -> Tree:
    """Kalman filter of f32[T, M] observations by a Joseph-form update."""
    size, outputs = a.shape[0], c.shape[0]

    def step(carry: Tree, y: Array) -> tuple[Tree, Tree]:
        mean, cov = carry
        mean, cov = a @ mean, a @ cov @ a.T + noise[0] * jnp.eye(size)
        spread = c @ cov @ c.T + noise[1] * jnp.eye(outputs)
        (p, q), (r, s) = spread
        det = p * s - q * r
        inverse = jnp.array([[s, -q], [-r, p]]) / det
        gain = cov @ c.T @ inverse
        gap = y - c @ mean
        keep = jnp.eye(size) - gain @ c
        after = (mean + gain @ gap, keep @ cov @ keep.T + noise[1] * gain @ gain.T)
        log_density = -0.5 * (gap @ inverse @ gap + jnp.log(det))
        return after, (after, (mean, cov), log_density)

    return lax.scan(step, (jnp.zeros(size), jnp.eye(size)), seen)[1]


def _tracking(seed: int, steps: int) -> Tree:
    draws = Draws(seed)
    a = np.eye(4, dtype=np.float32) + 0.1 * np.eye(4, k=2, dtype=np.float32)
    c = np.eye(2, 4, dtype=np.float32)
    return a, c, np.array([0.01, 0.1], np.float32), draws.normal(steps, 2)


@ESTIMATION.program(
    "kalman_smoother", "Kalman filter and backward smoother, 4 states, 300 steps", loops=True
)
def _kalman_smoother() -> Built:
    def run(a: Array, c: Array, noise: Array, seen: Array) -> Tree:
        (means, covs), (guess, guess_covs), _ = _filter(a, c, noise, seen)

        def back(carry: Tree, now: Tree) -> tuple[Tree, Tree]:
            late, _ = carry
            mean, cov, ahead, ahead_cov = now
            # A few Newton-Schulz steps in place of a solve: no call to LAPACK.
            inverse = jnp.eye(4) / jnp.trace(ahead_cov)
            for _ in range(8):
                inverse = 2.0 * inverse - inverse @ ahead_cov @ inverse
            gain = cov @ a.T @ inverse
            mean = mean + gain @ (late - ahead)
            return (mean, gain), (mean, jnp.trace(gain))

        late = (means[:-1], covs[:-1], guess[1:], guess_covs[1:])
        return lax.scan(back, (means[-1], jnp.zeros((4, 4))), late, reverse=True)[1]

    return run, _tracking(6, 300)


@ESTIMATION.program(
    "kalman_likelihood_grad",
    "gradient of the filter's likelihood in the noise levels, 80 steps",
    gradient=True,
    loops=True,
)
def _kalman_likelihood_grad() -> Built:
    def loss(logs: Array, a: Array, c: Array, seen: Array) -> Tree:
        return -jnp.sum(_filter(a, c, jnp.exp(logs), seen)[2])

    a, c, noise, seen = _tracking(7, 80)
    return jax.value_and_grad(loss, argnums=(0, 1)), (np.log(noise), a, c, seen)


@ESTIMATION.program(
    "extended_kalman_bearing",
    "extended Kalman filter of bearings and ranges, 200 steps",
    loops=True,
)
def _extended_kalman_bearing() -> Built:
    def run(seen: Array) -> Tree:
        def observe(x: Array) -> Array:
            return jnp.array(
                [jnp.arctan2(x[1] + 3.0, x[0] + 3.0), jnp.hypot(x[0] + 3.0, x[1] + 3.0)]
            )

        a = jnp.eye(4) + 0.05 * jnp.eye(4, k=2)

        def step(carry: Tree, y: Array) -> tuple[Tree, Array]:
            mean, cov = carry
            mean, cov = a @ mean, a @ cov @ a.T + 0.01 * jnp.eye(4)
            c = jax.jacfwd(observe)(mean)
            spread = c @ cov @ c.T + 0.2 * jnp.eye(2)
            det = spread[0, 0] * spread[1, 1] - spread[0, 1] * spread[1, 0]
            inverse = (
                jnp.array([[spread[1, 1], -spread[0, 1]], [-spread[1, 0], spread[0, 0]]]) / det
            )
            gain = cov @ c.T @ inverse
            mean = mean + gain @ (y - observe(mean))
            cov = cov - gain @ spread @ gain.T
            return (0.98 * mean, cov), mean

        return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), seen)

    draws = Draws(8)
    return run, (np.array([0.8, 4.2], np.float32) + draws.normal(200, 2, scale=0.1),)


@ESTIMATION.program(
    "particle_filter_soft",
    "bootstrap filter with 256 particles and soft resampling, 40 steps",
    loops=True,
)
def _particle_filter_soft() -> Built:
    def run(particles: Array, seen: Array, noise: Array) -> Tree:
        def step(particles: Array, now: Tree) -> tuple[Array, Tree]:
            y, noise = now
            moved = 0.9 * particles + jnp.sin(particles) + 0.3 * noise
            weights = jax.nn.softmax(-0.5 * (y - moved) ** 2)
            # The sorted cloud is read at even quantiles with linear interpolation.
            order = jnp.sort(moved)
            sums = jnp.cumsum(jax.nn.softmax(-0.5 * (y - order) ** 2))
            places = (jnp.arange(256) + 0.5) / 256
            return jnp.interp(places, sums, order), jnp.sum(weights * moved)

        return lax.scan(step, particles, (seen, noise))

    draws = Draws(9)
    return run, (draws.normal(256), draws.normal(40), draws.normal(40, 256))


@ESTIMATION.program(
    "hmm_forward_backward",
    "scaled forward and backward passes of 8 chains, 24 states, 120 steps",
    loops=True,
)
def _hmm_forward_backward() -> Built:
    def run(step_logits: Array, emit: Array) -> Tree:
        moves = jax.nn.softmax(step_logits)

        def forward(alpha: Array, likely: Array) -> tuple[Array, Tree]:
            alpha = (alpha @ moves) * likely
            total = jnp.sum(alpha, axis=-1, keepdims=True)
            return alpha / total, (alpha / total, jnp.log(total[:, 0]))

        def backward(beta: Array, likely: Array) -> tuple[Array, Array]:
            fresh = (likely * beta) @ moves.T
            return fresh / jnp.sum(fresh, axis=-1, keepdims=True), beta

        start = jnp.full(emit.shape[1:], 1.0 / emit.shape[-1])
        alphas, logs = lax.scan(forward, start, emit)[1]
        betas = lax.scan(backward, jnp.ones_like(start), emit, reverse=True)[1]
        both = alphas * betas
        return both / jnp.sum(both, axis=-1, keepdims=True), jnp.sum(logs, axis=0)

    draws = Draws(10)
    return run, (draws.normal(24, 24), draws.uniform(120, 8, 24, low=0.05, high=1.0))


@ESTIMATION.program(
    "hmm_baum_welch_grad",
    "three gradient steps on an HMM's likelihood, 12 states, 60 steps",
    gradient=True,
    loops=True,
)
def _hmm_baum_welch_grad() -> Built:
    def run(moves: Array, means: Array, seen: Array) -> Tree:
        def loss(moves: Array, means: Array) -> Array:
            logs = jax.nn.log_softmax(moves)

            def step(alpha: Array, y: Array) -> tuple[Array, None]:
                mixed = jax.nn.logsumexp(alpha[:, None] + logs, axis=0)
                return mixed - 0.5 * (y - means) ** 2, None

            return -jax.nn.logsumexp(lax.scan(step, jnp.zeros(12), seen)[0])

        values = []
        for _ in range(3):
            value, (dm, dv) = jax.value_and_grad(loss, argnums=(0, 1))(moves, means)
            moves, means = moves - 0.1 * dm, means - 0.01 * dv
            values.append(value)
        return moves, means, jnp.stack(values)

    draws = Draws(11)
    return run, (draws.normal(12, 12), draws.normal(12, scale=2.0), draws.normal(60))
