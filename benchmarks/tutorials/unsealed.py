"""Programs that were sealed until somebody looked for the reasons of their times."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.stats import norm

from benchmarks.tutorials.common import Builder, Program


def _normal(seed: int, *shape: int) -> jax.Array:
    """Standard normal numbers, as the sealed programs draw them."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def _uniform(seed: int, *shape: int) -> jax.Array:
    """Numbers between zero and one, likewise."""
    return jnp.asarray(np.random.default_rng(seed).uniform(size=shape))


def black_scholes(spot: Any, strike: Any, expiry: Any, rate: Any, vol: Any) -> Any:
    """The value of a European call."""
    spread = vol * jnp.sqrt(expiry)
    d1 = (jnp.log(spot / strike) + (rate + 0.5 * vol**2) * expiry) / spread
    return spot * norm.cdf(d1) - strike * jnp.exp(-rate * expiry) * norm.cdf(d1 - spread)


def implied_volatility() -> Program:
    """Implied volatilities of a surface of quotes by Newton's method, until all have converged."""

    def fn(price: Any, spot: Any, strike: Any, expiry: Any, rate: Any) -> Any:
        value = jax.vmap(black_scholes, (None, 0, 0, None, 0))
        vega = jax.vmap(jax.grad(black_scholes, argnums=4), (None, 0, 0, None, 0))

        def improve(carry: Any) -> Any:
            vol, _, count = carry
            error = value(spot, strike, expiry, rate, vol) - price
            step = error / jnp.maximum(vega(spot, strike, expiry, rate, vol), 1e-3)
            vol = jnp.clip(vol - step, 0.02, 2.0)
            return vol, jnp.max(jnp.abs(step)), count + 1

        start = (jnp.full_like(price, 0.3), jnp.inf, 0)
        vol, *_ = lax.while_loop(lambda c: (c[1] > 1e-4) & (c[2] < 30), improve, start)
        return vol, vega(spot, strike, expiry, rate, vol)

    strike = jnp.tile(jnp.linspace(85.0, 120.0, 16), 12)
    expiry = jnp.repeat(jnp.linspace(0.3, 2.0, 12), 16)
    vol = 0.2 + 0.1 * jnp.log(strike / 100) ** 2 + 0.05 * _uniform(1, 192)
    spot, rate = jnp.asarray(100.0), jnp.asarray(0.02)
    return fn, (black_scholes(spot, strike, expiry, rate, vol), spot, strike, expiry, rate)


def windy_grid() -> Program:
    """Soft values of a maze with wind and slipping, iterated until they settle."""
    size = 16

    def fn(walls: Any, reward: Any, wind: Any, slip: Any, gamma: Any) -> Any:
        rows, columns = jnp.meshgrid(jnp.arange(size), jnp.arange(size), indexing="ij")
        moves = jnp.array([[-1, 0], [0, 1], [1, 0], [0, -1]])

        def target(move: Any) -> Any:
            to_row = jnp.clip(rows + move[0] - wind[None, :], 0, size - 1)
            to_column = jnp.clip(columns + move[1], 0, size - 1)
            blocked = walls[to_row, to_column]
            return jnp.where(blocked, rows, to_row), jnp.where(blocked, columns, to_column)

        to_rows, to_columns = jax.vmap(target)(moves)

        def sweep(carry: Any) -> Any:
            value, _, count = carry
            arrived = value[to_rows, to_columns]
            quality = (1 - slip) * arrived + slip * arrived.mean(0)
            new = reward + gamma * 0.1 * jax.nn.logsumexp(quality / 0.1, axis=0)
            return new, jnp.max(jnp.abs(new - value)), count + 1

        start = (jnp.zeros((size, size)), jnp.inf, 0)
        value, _, _ = lax.while_loop(lambda c: (c[1] > 1e-3) & (c[2] < 300), sweep, start)
        policy = jax.nn.softmax(value[to_rows, to_columns] / 0.1, axis=0)
        return value, policy

    walls = _uniform(10, size, size) < 0.2
    reward = -0.05 - 0.1 * _uniform(11, size, size)
    reward = reward.at[size - 2, size - 3].set(2.0)
    wind = jnp.where(jnp.arange(size) % 6 == 4, 1, 0)
    return fn, (walls, reward, wind, jnp.asarray(0.1), jnp.asarray(0.93))


def ott_color_transfer() -> Program:
    """The Sinkhorn divergence of two palettes of colours and its gradient."""
    from ott.geometry import costs, pointcloud
    from ott.tools import sinkhorn_divergence

    def divergence(colors: jax.Array, palette: jax.Array, weights: jax.Array) -> jax.Array:
        value, _ = sinkhorn_divergence.sinkhorn_divergence(
            pointcloud.PointCloud,
            x=colors,
            y=palette,
            a=jax.nn.softmax(weights),
            cost_fn=costs.SqEuclidean(),
            epsilon=0.05,
            solve_kwargs={"min_iterations": 40, "max_iterations": 40, "use_danskin": True},
        )
        return value

    arrays = (_uniform(1, 240, 3), _uniform(2, 200, 3) ** 2, 0.2 * _normal(3, 240))
    return jax.value_and_grad(divergence, argnums=(0, 2)), arrays


WORKLOADS: dict[str, Builder] = {
    "implied-volatility": implied_volatility,
    "windy-grid": windy_grid,
    "ott-color-transfer": ott_color_transfer,
}
