"""Samplers of posteriors: Metropolis, Hamiltonian, Gibbs, slices, particles."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from benchmarks.everyday.common import Program, Sizes, a_key, integers, labels_of, normal


def logistic_posterior(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    logits = x @ w
    likelihood = jnp.sum(y * jax.nn.log_sigmoid(logits) + (1 - y) * jax.nn.log_sigmoid(-logits))
    return likelihood - 0.5 * jnp.sum(w**2)


def metropolis(size: int, steps: int) -> Program:
    """Random walk Metropolis, many chains on one logistic regression."""
    x = normal(size, 8)

    def chain(key: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        def step(state, key):
            w, logp = state
            k1, k2 = random.split(key)
            proposal = w + 0.1 * random.normal(k1, w.shape)
            new = logistic_posterior(proposal, x, y)
            accept = jnp.log(random.uniform(k2)) < new - logp
            w = jnp.where(accept, proposal, w)
            logp = jnp.where(accept, new, logp)
            return (w, logp), (w, accept)

        w = jnp.zeros(x.shape[1])
        _, (ws, accepted) = lax.scan(
            step, (w, logistic_posterior(w, x, y)), random.split(key, steps)
        )
        return ws, accepted.mean()

    def run(key, x, y):
        return jax.vmap(chain, (0, None, None))(random.split(key, 4), x, y)

    return run, (a_key(), x, labels_of(x))


def hmc(size: int, steps: int) -> Program:
    """Hamiltonian Monte Carlo with ten leapfrog steps."""
    x = normal(size, 10)

    def run(key: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        def potential(w):
            return -logistic_posterior(w, x, y)

        slope = jax.grad(potential)

        def leapfrog(_, state):
            q, p = state
            p = p - 0.5 * 0.05 * slope(q)
            q = q + 0.05 * p
            return q, p - 0.5 * 0.05 * slope(q)

        def step(q, key):
            k1, k2 = random.split(key)
            p = random.normal(k1, q.shape)
            q1, p1 = lax.fori_loop(0, 10, leapfrog, (q, p))
            h0 = potential(q) + 0.5 * jnp.sum(p**2)
            h1 = potential(q1) + 0.5 * jnp.sum(p1**2)
            accept = random.uniform(k2) < jnp.exp(h0 - h1)
            q = lax.select(accept, q1, q)
            return q, q

        _, samples = lax.scan(step, jnp.zeros(x.shape[1]), random.split(key, steps))
        return samples.mean(0), samples.std(0)

    return run, (a_key(), x, labels_of(x))


def uturn(size: int, steps: int) -> Program:
    """Leapfrog until the trajectory turns back, a point of it kept by its weight; vmapped chains."""

    def logp(q, precision):
        return -0.5 * q @ (precision @ q) - 0.1 * jnp.sum(q**4)

    def chain(key: jax.Array, q: jax.Array, precision: jax.Array) -> Any:
        slope = jax.grad(logp)

        def transition(q, key):
            kp, kl = random.split(key)
            p = random.normal(kp, q.shape)

            def energy(q, p):
                return logp(q, precision) - 0.5 * p @ p

            start = energy(q, p)

            def going(state):
                q1, p1, n, *_ = state
                return (jnp.dot(q1 - q, p1) >= 0) & (n < 64)

            def leap(state):
                q1, p1, n, kept, weight, key = state
                p1 = p1 + 0.05 * slope(q1, precision)
                q1 = q1 + 0.1 * p1
                p1 = p1 + 0.05 * slope(q1, precision)
                new = energy(q1, p1) - start
                total = jnp.logaddexp(weight, new)
                key, used = random.split(key)
                take = jnp.log(random.uniform(used)) < new - total
                return q1, p1, n + 1, jnp.where(take, q1, kept), total, key

            out = lax.while_loop(going, leap, (q, p, 0, q, jnp.float32(0.0), kl))
            return out[3], out[2]

        return lax.scan(transition, q, random.split(key, steps))

    def run(key, q, precision):
        return jax.vmap(chain, (0, 0, None))(random.split(key, size), q, precision)

    a = np.asarray(normal(6, 6, seed=1))
    return run, (a_key(), normal(size, 6), jnp.asarray(a @ a.T / 6 + np.eye(6), jnp.float32))


def gibbs_mixture(size: int, steps: int) -> Program:
    """Gibbs' sampler of a mixture of five normals along a line."""
    k = 5

    def run(key: jax.Array, x: jax.Array) -> Any:
        def sweep(state, key):
            mu, pi, _ = state
            kz, km, kp = random.split(key, 3)
            logits = jnp.log(pi) + norm.logpdf(x[:, None], mu, 0.5)
            z = random.categorical(kz, logits)
            hot = jax.nn.one_hot(z, k)
            counts = hot.sum(0)
            sums = hot.T @ x
            variance = 1.0 / (1 / 10.0 + counts / 0.25)
            mu = variance * sums / 0.25 + jnp.sqrt(variance) * random.normal(km, (k,))
            pi = random.dirichlet(kp, 1.0 + counts)
            return (mu, pi, z), mu

        start = (jnp.linspace(-2, 2, k), jnp.full(k, 1 / k), jnp.zeros(x.shape, jnp.int32))
        (_, pi, z), mus = lax.scan(sweep, start, random.split(key, steps))
        return mus, pi, z

    return run, (a_key(), normal(size) * 0.4 + integers(5, size, seed=1) - 2.0)


def slice_sampler(size: int, steps: int) -> Program:
    """Slice sampling with stepping out and shrinking, a chain per row."""

    def logp(x):
        return jnp.logaddexp(norm.logpdf(x, -1.0, 0.5), norm.logpdf(x, 2.0, 1.0))

    def one(x, key):
        k1, k2, k3 = random.split(key, 3)
        level = logp(x) + jnp.log(random.uniform(k1, minval=1e-6))
        left = x - random.uniform(k2)
        right = left + 1.0
        left = lax.while_loop(lambda x: logp(x) > level, lambda x: x - 1.0, left)
        right = lax.while_loop(lambda x: logp(x) > level, lambda x: x + 1.0, right)

        def shrink(state):
            left, right, _, _, key = state
            key, used = random.split(key)
            new = random.uniform(used, minval=left, maxval=right)
            good = logp(new) >= level
            left = jnp.where(~good & (new < x), new, left)
            right = jnp.where(~good & (new >= x), new, right)
            return left, right, new, good, key

        out = lax.while_loop(lambda s: ~s[3], shrink, (left, right, x, False, k3))
        return out[2]

    def run(key: jax.Array, x: jax.Array) -> Any:
        def step(x, key):
            x = jax.vmap(one)(x, random.split(key, size))
            return x, x.mean()

        return lax.scan(step, x, random.split(key, steps))

    return run, (a_key(), normal(size))


def particle_filter(size: int, steps: int) -> Program:
    """Bootstrap filter of the usual nonlinear growth model, systematic resampling."""

    def run(key: jax.Array, ys: jax.Array) -> Any:
        def step(particles, inputs):
            t, y, key = inputs
            k1, k2 = random.split(key)
            x = particles / 2 + 25 * particles / (1 + particles**2) + 8 * jnp.cos(1.2 * t)
            x = x + jnp.sqrt(10.0) * random.normal(k1, x.shape)
            logw = norm.logpdf(y, x**2 / 20, 1.0)
            evidence = logsumexp(logw) - jnp.log(size)
            w = jax.nn.softmax(logw)
            points = (jnp.arange(size) + random.uniform(k2)) / size
            index = jnp.searchsorted(jnp.cumsum(w), points)
            x = x[jnp.clip(index, 0, size - 1)]
            return x, (evidence, jnp.sum(w * x), 1 / jnp.sum(w**2))

        inputs = (jnp.arange(steps, dtype=jnp.float32), ys, random.split(key, steps))
        _, (evidence, means, ess) = lax.scan(step, jnp.zeros(size), inputs)
        return evidence.sum(), means, ess

    return run, (a_key(), jnp.abs(normal(steps)) * 5)


def tempering(size: int, steps: int) -> Program:
    """Parallel tempering of a wavy landscape, neighbours exchanged every step."""

    def energy(x):
        return jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x) + 10, -1)

    def run(key: jax.Array, x: jax.Array) -> Any:
        beta = jnp.geomspace(1.0, 0.01, size)

        def step(carry, i):
            x, e, key = carry
            key, k1, k2, k3 = random.split(key, 4)
            proposal = x + 0.3 / jnp.sqrt(beta)[:, None] * random.normal(k1, x.shape) * 0.3
            e1 = energy(proposal)
            accept = jnp.log(random.uniform(k2, (size,))) < beta * (e - e1)
            x = jnp.where(accept[:, None], proposal, x)
            e = jnp.where(accept, e1, e)
            first = jnp.arange(size) % 2 == i % 2
            partner = jnp.where(first, jnp.arange(size) + 1, jnp.arange(size) - 1)
            partner = jnp.clip(partner, 0, size - 1)
            u = random.uniform(k3, (size,))
            u = jnp.where(first, u, u[partner])
            swap = jnp.log(u) < (beta - beta[partner]) * (e - e[partner])
            order = jnp.where(swap, partner, jnp.arange(size))
            return (x[order], e[order], key), e[0]

        (x, e, _), trace = lax.scan(step, (x, energy(x), key), jnp.arange(steps))
        return x, e, trace

    return run, (a_key(), normal(size, 10))


def abc_epidemic(size: int, steps: int) -> Program:
    """Rejection ABC: simulate a stochastic epidemic per draw of the prior, keep the nearest."""

    def simulate(key, beta, gamma):
        def day(state, key):
            s, i, r = state
            k1, k2 = random.split(key)
            p = 1 - jnp.exp(-beta * i / 1000)
            infected = s * p + jnp.sqrt(s * p * (1 - p) + 1e-6) * random.normal(k1)
            infected = jnp.clip(jnp.round(infected), 0, s)
            recovered = i * gamma + jnp.sqrt(i * gamma * (1 - gamma) + 1e-6) * random.normal(k2)
            recovered = jnp.clip(jnp.round(recovered), 0, i)
            state = (s - infected, i + infected - recovered, r + recovered)
            return state, state[1]

        start = (jnp.float32(990.0), jnp.float32(10.0), jnp.float32(0.0))
        return lax.scan(day, start, random.split(key, steps))[1]

    def run(key: jax.Array, observed: jax.Array) -> Any:
        kb, kg, ks = random.split(key, 3)
        beta = random.uniform(kb, (size,), minval=0.1, maxval=1.0)
        gamma = random.beta(kg, 2.0, 8.0, (size,))
        curves = jax.vmap(simulate)(random.split(ks, size), beta, gamma)
        distance = jnp.sqrt(jnp.mean((curves - observed) ** 2, axis=1))
        _, best = lax.top_k(-distance, size // 10)
        return beta[best].mean(), gamma[best].mean(), distance[best]

    days = np.arange(steps)
    return run, (a_key(), jnp.asarray(300 * np.exp(-((days - 20) ** 2) / 100), jnp.float32))


SIZES: Final[Sizes] = {
    ("metropolis", metropolis): ((100, 500), (1000, 200), (5000, 100)),
    ("hmc", hmc): ((100, 100), (1000, 40), (5000, 20)),
    ("uturn", uturn): ((4, 50), (32, 30), (256, 15)),
    ("gibbs-mixture", gibbs_mixture): ((100, 100), (1000, 50), (8000, 10)),
    ("slice-sampler", slice_sampler): ((16, 100), (256, 50), (4096, 10)),
    ("particle-filter", particle_filter): ((100, 200), (1000, 100), (10_000, 20)),
    ("tempering", tempering): ((8, 500), (64, 300), (512, 100)),
    ("abc-epidemic", abc_epidemic): ((100, 60), (1000, 60), (3000, 60)),
}
