"""Finance: option pricing by trees, grids and simulation, and calibration to quotes and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.sealed.common import Program, normal

__all__ = ["WORKLOADS"]


def american_puts() -> Program:
    """American puts of several strikes on a binomial tree, with their deltas."""
    steps = 128

    def put(spot: Any, strike: Any, vol: Any, rate: Any) -> Any:
        dt = 1.0 / steps
        up = jnp.exp(vol * jnp.sqrt(dt))
        chance = (jnp.exp(rate * dt) - 1 / up) / (up - 1 / up)
        discount = jnp.exp(-rate * dt)
        nodes = jnp.arange(steps + 1)

        def back(k: Any, value: Any) -> Any:
            level = steps - 1 - k
            held = discount * (chance * jnp.roll(value, -1) + (1 - chance) * value)
            price = spot * up ** (2 * nodes - level)
            return jnp.maximum(held, strike - price)

        ends = jnp.maximum(strike - spot * up ** (2 * nodes - steps), 0.0)
        return lax.fori_loop(0, steps, back, ends)[0]

    def fn(spot: Any, strikes: Any, vol: Any, rate: Any) -> Any:
        values = jax.vmap(put, (None, 0, None, None))
        return jax.jvp(lambda s: values(s, strikes, vol, rate), (spot,), (jnp.ones_like(spot),))

    strikes = jnp.linspace(90.0, 112.0, 8)
    return fn, (jnp.asarray(100.0), strikes, jnp.asarray(0.25), jnp.asarray(0.03))


def _nelson_siegel(theta: Any, times: Any) -> Any:
    level, slope, curve, log_decay = theta
    x = times / jnp.exp(log_decay)
    hump = -jnp.expm1(-x) / x
    return level + slope * hump + curve * (hump - jnp.exp(-x))


def curve_fit() -> Program:
    """A Nelson-Siegel yield curve fitted to coupon bonds by damped Gauss-Newton."""

    def fn(theta: Any, flows: Any, times: Any, prices: Any) -> Any:
        def misfit(theta: Any) -> Any:
            discount = jnp.exp(-_nelson_siegel(theta, times) * times)
            return (flows @ discount - prices) / 100

        def step(theta: Any, _: Any) -> Any:
            jacobian = jax.jacfwd(misfit)(theta)
            normal_matrix = jacobian.T @ jacobian + 3e-3 * jnp.eye(4)
            change = jnp.linalg.solve(normal_matrix, jacobian.T @ misfit(theta))
            return theta - change, jnp.sum(misfit(theta) ** 2)

        theta, history = lax.scan(step, theta, None, length=8)
        return theta, history, _nelson_siegel(theta, times)

    bonds, dates = 24, 40
    times = np.arange(1, dates + 1) / 2
    maturity = np.linspace(1, dates - 1, bonds).astype(int)
    coupons = 1 + 3 * np.random.default_rng(2).uniform(size=bonds)
    flows = np.where(np.arange(dates) <= maturity[:, None], coupons[:, None] / 2, 0.0)
    flows[np.arange(bonds), maturity] += 100
    truth = jnp.asarray([0.04, -0.02, 0.01, 0.5])
    prices = jnp.asarray(flows) @ jnp.exp(-_nelson_siegel(truth, times) * times)
    start = jnp.asarray([0.03, -0.01, 0.0, 0.3])
    return fn, (start, jnp.asarray(flows), jnp.asarray(times), prices + 0.1 * normal(3, bonds))


def _tridiagonal(lower: Any, main: Any, upper: Any, right: Any) -> Any:
    """Solution of a tridiagonal system by elimination and back substitution."""

    def eliminate(carry: Any, row: Any) -> Any:
        c, d = carry
        a, b, u, r = row
        scale = 1 / (b - a * c)
        new = (u * scale, (r - a * d) * scale)
        return new, new

    zero = jnp.zeros((), right.dtype)
    _, (c, d) = lax.scan(eliminate, (zero, zero), (lower, main, upper, right))

    def substitute(x: Any, row: Any) -> Any:
        x = row[1] - row[0] * x
        return x, x

    return lax.scan(substitute, zero, (c, d), reverse=True)[1]


def barrier_grid() -> Program:
    """A knock-out call under local volatility on a grid, by Crank-Nicolson in time."""
    cells, steps = 200, 100

    def fn(strike: Any, rate: Any, smile: Any) -> Any:
        spots = jnp.linspace(60.0, 150.0, cells + 2)[1:-1]
        width = 90.0 / (cells + 1)
        vol = smile[0] + smile[1] * (spots / 100 - 1) + smile[2] * (spots / 100 - 1) ** 2
        diffusion = 0.5 * (vol * spots / width) ** 2
        drift = 0.5 * rate * spots / width
        lower, upper = diffusion - drift, diffusion + drift
        main = -2 * diffusion - rate
        dt = 0.5 / steps

        def back(value: Any, _: Any) -> Any:
            padded = jnp.pad(value, 1)
            change = lower * padded[:-2] + main * value + upper * padded[2:]
            right = value + 0.5 * dt * change
            solved = _tridiagonal(-0.5 * dt * lower, 1 - 0.5 * dt * main, -0.5 * dt * upper, right)
            return solved, solved[cells // 2]

        value, middle = lax.scan(back, jnp.maximum(spots - strike, 0.0), None, length=steps)
        return value, jnp.gradient(value, width), middle

    return fn, (jnp.asarray(100.0), jnp.asarray(0.03), jnp.asarray([0.25, -0.1, 0.2]))


def early_exercise() -> Program:
    """A Bermudan put by simulation and regression, exercised at random near the boundary."""
    paths, dates = 8192, 40

    def fn(shocks: Any, spot: Any, strike: Any, rate: Any, vol: Any) -> Any:
        dt = 1.0 / dates
        moves = (rate - 0.5 * vol**2) * dt + vol * jnp.sqrt(dt) * shocks
        prices = spot * jnp.exp(jnp.cumsum(moves, axis=0))
        discount = jnp.exp(-rate * dt)

        def back(cash: Any, price: Any) -> Any:
            cash = cash * discount
            x = price / strike
            gain = jnp.maximum(strike - price, 0.0)
            inside = (gain > 0).astype(price.dtype)
            basis = jnp.stack([jnp.ones_like(x), x - 0.9, (x - 0.9) ** 2], axis=1)
            weighted = basis * inside[:, None]
            gram = weighted.T @ basis + jnp.eye(3)
            coefficients = jnp.linalg.solve(gram, weighted.T @ cash)
            chosen = inside * jax.nn.sigmoid((gain - basis @ coefficients) / 0.5)
            return chosen * gain + (1 - chosen) * cash, jnp.mean(chosen)

        last = jnp.maximum(strike - prices[-1], 0.0)
        cash, share = lax.scan(back, last, prices[:-1], reverse=True)
        return discount * cash.mean(), cash.std() / jnp.sqrt(paths), share

    numbers = [jnp.asarray(v) for v in (100.0, 102.0, 0.04, 0.3)]
    return fn, (normal(4, dates, paths), *numbers)


def _garch_loss(theta: Any, returns: Any) -> Any:
    """Negative mean log likelihood of a GARCH(1, 1) with a leverage term."""
    omega = jnp.exp(theta[0])
    alpha, gamma, beta = jax.nn.softmax(jnp.append(theta[1:], 0.0))[:3]

    def day(variance: Any, r: Any) -> Any:
        score = 0.5 * (jnp.log(variance) + r**2 / variance)
        shock = alpha + jnp.where(r < 0, gamma, 0.0)
        return omega + shock * r**2 + beta * variance, score

    return lax.scan(day, jnp.var(returns), returns)[1].mean()


def garch_fit() -> Program:
    """A GARCH model fitted to several assets by gradient descent with momentum."""

    def fit(theta: Any, returns: Any) -> Any:
        def descend(carry: Any, _: Any) -> Any:
            theta, speed = carry
            loss, slope = jax.value_and_grad(_garch_loss)(theta, returns)
            speed = 0.8 * speed - 0.05 * slope
            return (theta + speed, speed), loss

        (theta, _), losses = lax.scan(descend, (theta, jnp.zeros_like(theta)), None, length=80)
        return theta, losses

    def fn(theta: Any, returns: Any) -> Any:
        return jax.vmap(fit)(theta, returns)

    theta = jnp.asarray([-2.0, -1.0, -2.0, 2.0]) + 0.1 * normal(5, 6, 4)
    level = 1 + 0.5 * jnp.sin(jnp.arange(1000) / 40.0)
    return fn, (theta, level * normal(6, 6, 1000))


WORKLOADS: dict[str, Callable[[], Program]] = {
    "american-puts": american_puts,
    "curve-fit": curve_fit,
    "barrier-grid": barrier_grid,
    "early-exercise": early_exercise,
    "garch-fit": garch_fit,
}
