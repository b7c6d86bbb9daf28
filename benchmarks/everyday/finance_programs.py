"""Prices of options."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.stats import norm

from benchmarks.everyday.common import Program, Sizes, uniform


def black_scholes(s: Any, k: Any, t: Any, r: Any, sigma: Any) -> Any:
    d1 = (jnp.log(s / k) + (r + 0.5 * sigma**2) * t) / (sigma * jnp.sqrt(t))
    return s * norm.cdf(d1) - k * jnp.exp(-r * t) * norm.cdf(d1 - sigma * jnp.sqrt(t))


def greeks(count: int, steps: int) -> Program:
    """Prices with their Greeks by differentiation, and the volatility implied by each price."""

    def single(s: jax.Array, k: jax.Array, t: jax.Array, sigma: jax.Array) -> Any:
        r = 0.03
        price = black_scholes(s, k, t, r, sigma)
        delta, theta, vega = jax.grad(black_scholes, argnums=(0, 2, 4))(s, k, t, r, sigma)
        gamma = jax.grad(jax.grad(black_scholes))(s, k, t, r, sigma)
        vanna = jax.grad(jax.grad(black_scholes), argnums=4)(s, k, t, r, sigma)

        def newton(_: Any, vol: jax.Array) -> jax.Array:
            value, slope = jax.value_and_grad(black_scholes, argnums=4)(s, k, t, r, vol)
            return jnp.clip(vol - (value - price) / jnp.maximum(slope, 1e-4), 0.01, 2.0)

        return (
            price,
            delta,
            -theta,
            vega,
            gamma,
            vanna,
            lax.fori_loop(0, steps, newton, jnp.full_like(s, 0.5)),
        )

    spot, strike = uniform(count, low=80, high=120), uniform(count, seed=1, low=80, high=120)
    return jax.vmap(single), (
        spot,
        strike,
        uniform(count, seed=2, low=0.2, high=2),
        uniform(count, seed=3, low=0.1, high=0.6),
    )


def asian(paths: int, steps: int) -> Program:
    """An arithmetic Asian option: antithetic paths with a geometric control and a pathwise delta."""

    def price(spot: jax.Array, sigma: jax.Array, seed: jax.Array) -> jax.Array:
        r, strike, dt = 0.05, 100.0, 1.0 / steps
        z = jax.random.normal(jax.random.PRNGKey(seed), (paths // 2, steps))
        z = jnp.concatenate([z, -z])
        logs = jnp.cumsum((r - 0.5 * sigma**2) * dt + sigma * jnp.sqrt(dt) * z, axis=1)
        s = spot * jnp.exp(logs)
        arithmetic = jnp.maximum(jnp.mean(s, axis=1) - strike, 0.0)
        geometric = jnp.maximum(jnp.exp(jnp.mean(jnp.log(s), axis=1)) - strike, 0.0)
        beta = jnp.cov(arithmetic, geometric)[0, 1] / (jnp.var(geometric) + 1e-9)
        mean = (r - 0.5 * sigma**2) * (1 + dt) / 2
        var = sigma**2 * (1 + dt) * (1 + dt / 2) / 3
        forward = spot * jnp.exp(mean + var / 2)
        d1 = (jnp.log(forward / strike) + 0.5 * var) / jnp.sqrt(var)
        exact = forward * norm.cdf(d1) - strike * norm.cdf(d1 - jnp.sqrt(var))
        return jnp.exp(-r) * jnp.mean(arithmetic - lax.stop_gradient(beta) * (geometric - exact))

    return jax.value_and_grad(price, argnums=(0, 1)), (
        jnp.float32(100.0),
        jnp.float32(0.2),
        jnp.int32(0),
    )


def heston(paths: int, steps: int) -> Program:
    """Stochastic volatility with full truncation; a barrier, calls of several strikes."""

    def run(spot: jax.Array, strikes: jax.Array, seed: jax.Array) -> Any:
        kappa, theta, xi, rho, r, dt = 1.5, 0.04, 0.5, -0.7, 0.02, 1.0 / steps

        def step(state: Any, key: jax.Array) -> Any:
            log_s, v, low = state
            z1, z2 = jax.random.normal(key, (2, paths))
            w = rho * z1 + jnp.sqrt(1 - rho**2) * z2
            positive = jnp.maximum(v, 0.0)
            log_s = log_s + (r - 0.5 * positive) * dt + jnp.sqrt(positive * dt) * z1
            v = v + kappa * (theta - positive) * dt + xi * jnp.sqrt(positive * dt) * w
            return (log_s, v, jnp.minimum(low, log_s)), jnp.mean(positive)

        start = (
            jnp.full(paths, jnp.log(spot)),
            jnp.full(paths, 0.04),
            jnp.full(paths, jnp.log(spot)),
        )
        (log_s, _, low), variance = lax.scan(
            step, start, jax.random.split(jax.random.PRNGKey(seed), steps)
        )
        payoff = jnp.maximum(jnp.exp(log_s)[None] - strikes[:, None], 0.0)
        alive = jnp.exp(low) > 0.8 * spot
        discount = jnp.exp(-r)
        return (
            discount * payoff.mean(1),
            discount * jnp.where(alive, payoff, 0.0).mean(1),
            payoff.std(1),
            variance,
        )

    return run, (jnp.float32(100.0), jnp.linspace(80, 120, 9), jnp.int32(0))


def binomial(count: int, steps: int) -> Program:
    """American puts on trees folded backwards, for many strikes."""

    def single(strike: jax.Array, sigma: jax.Array) -> jax.Array:
        r, dt, spot = 0.05, 1.0 / steps, 100.0
        up = jnp.exp(sigma * jnp.sqrt(dt))
        p = (jnp.exp(r * dt) - 1 / up) / (up - 1 / up)
        nodes = jnp.arange(steps + 1)
        discount = jnp.exp(-r * dt)

        def fold(i: Any, values: jax.Array) -> jax.Array:
            level = steps - 1 - i
            s = spot * up ** (2.0 * nodes - level)
            held = discount * (p * jnp.roll(values, -1) + (1 - p) * values)
            return jnp.where(nodes <= level, jnp.maximum(held, strike - s), 0.0)

        final = jnp.maximum(strike - spot * up ** (2.0 * nodes - steps), 0.0)
        return lax.fori_loop(0, steps, fold, final)[0]

    return jax.vmap(single), (
        uniform(count, low=80, high=120),
        uniform(count, seed=1, low=0.1, high=0.4),
    )


SIZES: Final[Sizes] = {
    ("greeks", greeks): ((8_000, 10), (30_000, 10)),
    ("asian", asian): ((2_000, 64), (8_000, 80)),
    ("heston", heston): ((2_000, 50), (12_000, 50)),
    ("binomial", binomial): ((8, 200), (40, 250)),
}
