"""Option prices, Monte Carlo, and models of returns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from graphopt.corpus.inputs import Draws
from graphopt.corpus.program import Built
from graphopt.corpus.programs._common import Family, Tree, mlp

FINANCE = Family("finance")
FAMILIES = (FINANCE,)


def _call_price(spot: Array, strike: Array, time: Array, rate: Array, spread: Array) -> Array:
    """Black-Scholes price of a European call; all arguments broadcast."""
    root = spread * jnp.sqrt(time)
    d1 = (jnp.log(spot / strike) + (rate + 0.5 * spread**2) * time) / root
    cdf = jax.scipy.stats.norm.cdf
    return spot * cdf(d1) - strike * jnp.exp(-rate * time) * cdf(d1 - root)


def _options(seed: int, count: int) -> Tree:
    draws = Draws(seed)
    ranges = ((80.0, 120.0), (80.0, 120.0), (0.2, 2.0), (0.01, 0.05), (0.1, 0.5))
    return tuple(draws.uniform(count, low=low, high=high) for low, high in ranges)


@FINANCE.program("black_scholes", "prices of 262144 European calls and puts")
def _black_scholes() -> Built:
    def run(spot: Array, strike: Array, time: Array, rate: Array, spread: Array) -> Tree:
        call = _call_price(spot, strike, time, rate, spread)
        return call, call - spot + strike * jnp.exp(-rate * time)

    return run, _options(12, 1 << 18)


@FINANCE.program(
    "black_scholes_greeks", "first and second derivatives of 32768 call prices", gradient=True
)
def _black_scholes_greeks() -> Built:
    def run(*market: Array) -> Tree:
        def total(*market: Array) -> Array:
            return jnp.sum(_call_price(*market))

        first = jax.grad(total, argnums=(0, 2, 3, 4))(*market)
        gamma = jax.grad(lambda spot: jnp.sum(jax.grad(total)(spot, *market[1:])))(market[0])
        return *first, gamma

    return run, _options(13, 1 << 15)


@FINANCE.program(
    "implied_volatility_newton",
    "eight Newton steps for 16384 implied volatilities",
    gradient=True,
    loops=True,
)
def _implied_volatility_newton() -> Built:
    def run(spot: Array, strike: Array, time: Array, rate: Array, spread: Array) -> Array:
        goal = _call_price(spot, strike, time, rate, spread)

        def step(_: Array, guess: Array) -> Array:
            price, vega = jax.jvp(
                lambda s: _call_price(spot, strike, time, rate, s),
                (guess,),
                (jnp.ones_like(guess),),
            )
            return jnp.clip(guess - (price - goal) / (vega + 1.0), 0.05, 1.0)

        out: Array = lax.fori_loop(0, 8, step, jnp.full_like(spread, 0.3))
        return out

    return run, _options(14, 1 << 14)


@FINANCE.program(
    "heston_monte_carlo",
    "100 full-truncation steps of 1024 Heston paths with threefry noise",
    loops=True,
)
def _heston_monte_carlo() -> Built:
    def run(seed: Array, strike: Array) -> Array:
        def step(carry: Tree, key: Array) -> tuple[Tree, None]:
            log_spot, variance, total = carry
            z = jax.random.normal(key, (2, 1024))
            root = jnp.sqrt(jnp.maximum(variance, 0.0) * 0.01)
            log_spot = log_spot - 0.005 * jnp.maximum(variance, 0.0) + root * z[0]
            other = -0.7 * z[0] + 0.714 * z[1]
            variance = variance + 0.02 * (0.04 - jnp.maximum(variance, 0.0)) + 0.3 * root * other
            return (log_spot, variance, total + jnp.exp(log_spot)), None

        keys = jax.random.split(jax.random.key(seed), 100)
        start = (jnp.zeros(1024), jnp.full(1024, 0.04), jnp.zeros(1024))
        (log_spot, _, total), _ = lax.scan(step, start, keys)
        european = jnp.mean(jnp.maximum(jnp.exp(log_spot) - strike, 0.0))
        return jnp.stack([european, jnp.mean(jnp.maximum(total / 100.0 - strike, 0.0))])

    return run, (np.uint32(5), np.float32(1.0))


@FINANCE.program("american_binomial", "256-step binomial tree of 32 American puts", loops=True)
def _american_binomial() -> Built:
    def run(spot: Array, strike: Array) -> Tree:
        up, steps = jnp.exp(0.2 * jnp.sqrt(1.0 / 256)), 256
        chance = (jnp.exp(0.03 / steps) - 1.0 / up) / (up - 1.0 / up)
        place = 2.0 * jnp.arange(steps + 1.0) - steps
        leaves = jnp.maximum(strike[:, None] - spot[:, None] * up**place, 0.0)

        def back(level: Array, values: Array) -> Array:
            held = jnp.exp(-0.03 / steps) * (
                chance * jnp.roll(values, -1, 1) + (1 - chance) * values
            )
            power = place + (1.0 + level.astype(jnp.float32))
            return jnp.maximum(held, strike[:, None] - spot[:, None] * up**power)

        return lax.fori_loop(0, steps, back, leaves)[:, 0]

    draws = Draws(15)
    return run, (draws.uniform(32, low=90.0, high=110.0), draws.uniform(32, low=90.0, high=110.0))


@FINANCE.program(
    "garch_likelihood_grad",
    "gradient of a GARCH(1,1) likelihood over 8 series of 500 returns",
    gradient=True,
    loops=True,
)
def _garch_likelihood_grad() -> Built:
    def loss(params: Array, returns: Array) -> Tree:
        omega, alpha, beta = jax.nn.sigmoid(params)

        def step(carry: Tree, r: Array) -> tuple[Tree, Array]:
            variance, before = carry
            variance = 0.1 * omega + 0.3 * alpha * before**2 + 0.6 * beta * variance
            return (variance, r), jnp.log(variance) + r**2 / variance

        start = (jnp.ones(returns.shape[1]), jnp.zeros(returns.shape[1]))
        return jnp.mean(lax.scan(step, start, returns)[1])

    return jax.value_and_grad(loss), (Draws(16).normal(3, 8), Draws(17).normal(500, 8))


@FINANCE.program(
    "deep_hedging_grad",
    "hedging network over 20 dates and 256 paths: gradient of the tail risk",
    gradient=True,
    loops=True,
)
def _deep_hedging_grad() -> Built:
    draws = Draws(18)

    def loss(params: Tree, moves: Array) -> Array:
        def step(carry: Tree, move: Array) -> tuple[Tree, None]:
            price, held, wealth = carry
            seen = jnp.stack([jnp.log(price), held], axis=-1)
            fresh = jax.nn.sigmoid(mlp(params, seen, jnp.tanh)[:, 0])
            after = price * jnp.exp(0.05 * move - 0.00125)
            wealth = wealth + fresh * (after - price) - 0.001 * price * jnp.abs(fresh - held)
            return (after, fresh, wealth), None

        ones = jnp.ones(moves.shape[1])
        (price, _, wealth), _ = lax.scan(step, (ones, 0.5 * ones, 0.0 * ones), moves)
        return jax.nn.logsumexp(-20.0 * (wealth - jnp.maximum(price - 1.0, 0.0))) / 20.0

    return jax.value_and_grad(loss), (draws.layers(2, 16, 1), draws.normal(20, 256))
