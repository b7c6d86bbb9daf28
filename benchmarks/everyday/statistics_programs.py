"""Linear algebra and statistics."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.common import Program, Sizes, integers, normal, uniform


def jacobi_rotations(size: int, sweeps: int) -> Program:
    """Eigenvalues and vectors of a symmetric matrix by cyclic rotations."""
    rows, columns = np.triu_indices(size, 1)

    def run(a: jax.Array) -> Any:
        def rotate(state: Any, pair: Any) -> Any:
            a, v = state
            p, q = pair
            theta = 0.5 * jnp.arctan2(2 * a[p, q], a[q, q] - a[p, p])
            c, s = jnp.cos(theta), jnp.sin(theta)
            ap, aq = a[p], a[q]
            a = a.at[p].set(c * ap - s * aq).at[q].set(s * ap + c * aq)
            ap, aq = a[:, p], a[:, q]
            a = a.at[:, p].set(c * ap - s * aq).at[:, q].set(s * ap + c * aq)
            vp, vq = v[:, p], v[:, q]
            return (a, v.at[:, p].set(c * vp - s * vq).at[:, q].set(s * vp + c * vq)), None

        pairs = jnp.asarray(rows), jnp.asarray(columns)
        a, v = lax.fori_loop(
            0, sweeps, lambda _, s: lax.scan(rotate, s, pairs)[0], (a, jnp.eye(size))
        )
        order = jnp.argsort(jnp.diag(a))
        return jnp.diag(a)[order], v[:, order]

    a = normal(size, size)
    return run, (a + a.T,)


def linear_solvers(size: int, steps: int) -> Program:
    """Equations by Gauss-Seidel and by preconditioned conjugate gradients, and the largest eigenvalue."""

    def run(a: jax.Array, b: jax.Array) -> Any:
        d = jnp.diag(a)

        def seidel(x: jax.Array) -> jax.Array:
            return lax.fori_loop(
                0, size, lambda i, x: x.at[i].add((b[i] - jnp.dot(a[i], x)) / d[i]), x
            )

        def cg(state: Any) -> Any:
            x, r, p, rz, count = state
            ap = a @ p
            alpha = rz / jnp.dot(p, ap)
            x, r = x + alpha * p, r - alpha * ap
            z = r / d
            new = jnp.dot(r, z)
            return x, r, z + new / rz * p, new, count + 1

        def power(_: Any, v: jax.Array) -> jax.Array:
            w = a @ v
            return w / jnp.linalg.norm(w)

        slow = lax.fori_loop(0, steps, lambda _, x: seidel(x), jnp.zeros(size))
        start = (jnp.zeros(size), b, b / d, jnp.dot(b, b / d), 0)
        fast, r, *_ = lax.while_loop(
            lambda s: (jnp.dot(s[1], s[1]) > 1e-8) & (s[4] < 100), cg, start
        )
        v = lax.fori_loop(0, 50, power, jnp.ones(size) / size**0.5)
        return slow, fast, jnp.linalg.norm(r), jnp.dot(v, a @ v)

    a = normal(size, size, scale=0.5 * size**-0.5)
    return run, (a @ a.T + 2 * jnp.eye(size), normal(size, seed=1))


def small_solves(count: int, steps: int) -> Program:
    """Many 3x3 systems by Cramer's rule inside damped Gauss-Newton fits of circles."""

    def solve3(a: jax.Array, b: jax.Array) -> jax.Array:
        det = jnp.dot(a[0], jnp.cross(a[1], a[2]))
        adjugate = jnp.stack(
            [jnp.cross(a[1], a[2]), jnp.cross(a[2], a[0]), jnp.cross(a[0], a[1])], axis=1
        )
        return adjugate @ b / det

    def residuals(p: jax.Array, xy: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.sum((xy - p[:2]) ** 2, axis=-1) + 1e-9) - p[2]

    def fit(xy: jax.Array) -> Any:
        def step(p: jax.Array, _: None) -> Any:
            r, j = residuals(p, xy), jax.jacfwd(residuals)(p, xy)
            normal = j.T @ j + 1e-3 * jnp.eye(3)
            return p - solve3(normal, j.T @ r), jnp.sum(r**2)

        return lax.scan(step, jnp.array([*jnp.mean(xy, axis=0), 1.0]), None, length=steps)

    angles = uniform(count, 12, high=6.28)
    circle = jnp.stack([jnp.cos(angles), jnp.sin(angles)], -1) + normal(count, 12, 2, scale=0.05)
    return jax.vmap(fit), (circle,)


def gaussian_process(points: int, features: int) -> Program:
    """Log marginal likelihood with its gradient, and a prediction."""

    def kernel(p: Any, a: jax.Array, b: jax.Array) -> jax.Array:
        scale = jnp.exp(p["scale"])
        squares = jnp.sum(((a[:, None] - b[None]) / scale) ** 2, axis=-1)
        return jnp.exp(2 * p["signal"]) * jnp.exp(-0.5 * squares)

    def nll(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        k = kernel(p, x, x) + (jnp.exp(2 * p["noise"]) + 1e-5) * jnp.eye(points)
        chol = jnp.linalg.cholesky(k)
        alpha = jax.scipy.linalg.cho_solve((chol, True), y)
        return (
            0.5 * jnp.dot(y, alpha)
            + jnp.sum(jnp.log(jnp.diag(chol)))
            + 0.5 * points * jnp.log(2 * jnp.pi)
        )

    def run(p: Any, x: jax.Array, y: jax.Array, new: jax.Array) -> Any:
        value, grads = jax.value_and_grad(nll)(p, x, y)
        k = kernel(p, x, x) + jnp.exp(2 * p["noise"]) * jnp.eye(points)
        cross = kernel(p, x, new)
        mean = cross.T @ jnp.linalg.solve(k, y)
        return value, grads, mean

    p = {
        "scale": jnp.zeros(features, jnp.float32),
        "signal": jnp.float32(0.0),
        "noise": jnp.float32(-1.0),
    }
    x = normal(points, features)
    return run, (p, x, jnp.sin(2 * x[:, 0]), normal(50, features, seed=1))


def densities(points: int, queries: int) -> Program:
    """A kernel density with Scott's bandwidth, Mahalanobis' distances, and principal axes."""

    def run(x: jax.Array, at: jax.Array) -> Any:
        n, d = x.shape
        mean = jnp.mean(x, axis=0)
        centered = x - mean
        cov = centered.T @ centered / (n - 1)
        inverse = jnp.linalg.inv(cov * n ** (-2.0 / (d + 4)))
        delta = at[:, None, :] - x[None, :, :]
        energy = 0.5 * jnp.einsum("qni,ij,qnj->qn", delta, inverse, delta)
        log_density = jax.nn.logsumexp(-energy, axis=1) - jnp.log(n)
        far = jnp.sqrt(jnp.einsum("ni,ij,nj->n", centered, jnp.linalg.inv(cov), centered))
        _, s, axes = jnp.linalg.svd(centered, full_matrices=False)
        std = jnp.sqrt(jnp.diag(cov))
        return (
            log_density,
            far,
            s**2 / jnp.sum(s**2),
            centered @ axes[:2].T,
            cov / jnp.outer(std, std),
        )

    return run, (normal(points, 4) @ normal(4, 4, seed=2), normal(queries, 4, seed=1))


def summaries(count: int, columns: int) -> Program:
    """Quantiles, histogram, ranks, trimmed means, entropies, and means by group."""

    def run(x: jax.Array, group: jax.Array) -> Any:
        q = jnp.quantile(x, jnp.array([0.05, 0.25, 0.5, 0.75, 0.95]), axis=0)
        iqr = q[3] - q[1]
        inside = (x >= q[1] - 1.5 * iqr) & (x <= q[3] + 1.5 * iqr)
        trimmed = jnp.sum(jnp.where(inside, x, 0), axis=0) / jnp.sum(inside, axis=0)
        counts = jax.vmap(lambda c: jnp.histogram(c, bins=32)[0], in_axes=1)(x)
        p = counts / count
        entropy = -jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0)), 0.0), axis=1)
        sizes = jnp.bincount(group, length=20)
        means = jax.ops.segment_sum(x, group, 20) / jnp.maximum(sizes, 1)[:, None]
        spread = jnp.sqrt(
            jax.ops.segment_sum((x - means[group]) ** 2, group, 20)
            / jnp.maximum(sizes - 1, 1)[:, None]
        )
        ranks = jnp.argsort(jnp.argsort(x, axis=0), axis=0).astype(jnp.float32)
        spearman = jnp.corrcoef(ranks.T)
        return (
            q,
            trimmed,
            counts,
            entropy,
            means,
            spread,
            jax.ops.segment_max(x, group, 20),
            spearman,
        )

    return run, (
        normal(count, columns),
        jnp.concatenate([jnp.arange(20, dtype=jnp.int32), integers(20, count - 20)]),
    )


def averages(length: int, series: int) -> Program:
    """Indicators of prices: moving averages, exponential ones by scans of two kinds, drawdown, crossings."""
    window = 20

    def moving(x: jax.Array) -> jax.Array:
        total = jnp.cumsum(jnp.pad(x, ((1, 0), (0, 0))), axis=0)
        return (total[window:] - total[:-window]) / window

    def exponential(x: jax.Array, alpha: float) -> jax.Array:
        def step(mean: jax.Array, value: jax.Array) -> Any:
            mean = alpha * value + (1 - alpha) * mean
            return mean, mean

        return lax.scan(step, x[0], x)[1]

    def associative(x: jax.Array, alpha: float) -> jax.Array:
        decay = jnp.full_like(x, 1 - alpha).at[0].set(0.0)
        inputs = (alpha * x).at[0].set(x[0])
        return lax.associative_scan(
            lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (decay, inputs)
        )[1]

    def run(prices: jax.Array) -> Any:
        mean = moving(prices)
        deviation = jnp.sqrt(jnp.maximum(moving(prices**2) - mean**2, 0.0))
        macd = exponential(prices, 2 / 13) - exponential(prices, 2 / 27)
        signal = associative(macd, 2 / 10)
        change = jnp.diff(prices, axis=0)
        gains = associative(jnp.maximum(change, 0.0), 1 / 14)
        losses = associative(jnp.maximum(-change, 0.0), 1 / 14)
        rsi = 100 - 100 / (1 + gains / (losses + 1e-8))
        drawdown = 1 - prices / lax.cummax(prices, axis=0)
        crossings = jnp.sum(jnp.diff(jnp.sign(macd - signal), axis=0) != 0, axis=0)
        return mean + 2 * deviation, mean - 2 * deviation, rsi, jnp.max(drawdown, axis=0), crossings

    walk = np.cumsum(np.random.default_rng(0).normal(0, 0.01, (length, series)), axis=0)
    return run, (jnp.asarray(np.exp(walk), jnp.float32),)


def bootstrap(count: int, draws: int) -> Program:
    """Intervals of a mean, a slope and a median by resampling."""

    def run(x: jax.Array, y: jax.Array, seed: jax.Array) -> Any:
        def statistic(key: jax.Array) -> Any:
            index = jax.random.choice(key, count, (count,), replace=True)
            a, b = x[index], y[index]
            da, db = a - jnp.mean(a), b - jnp.mean(b)
            return jnp.mean(a), jnp.sum(da * db) / jnp.sum(da**2), jnp.median(b)

        stats = jax.vmap(statistic)(jax.random.split(jax.random.PRNGKey(seed), draws))
        return jax.tree.map(lambda s: jnp.percentile(s, jnp.array([2.5, 50.0, 97.5])), stats)

    x = normal(count)
    return run, (x, 2 * x + normal(count, seed=1), jnp.int32(0))


def gaussian_mixture(points: int, components: int) -> Program:
    """Expectation and maximisation with full covariances."""
    d = 3

    def run(x: jax.Array) -> Any:
        def log_prob(weights: jax.Array, means: jax.Array, covs: jax.Array) -> jax.Array:
            chol = jnp.linalg.cholesky(covs)
            delta = x[None] - means[:, None]
            z = jax.vmap(lambda c, r: jax.scipy.linalg.solve_triangular(c, r.T, lower=True))(
                chol, delta
            )
            half_det = jnp.sum(jnp.log(jnp.diagonal(chol, axis1=1, axis2=2)), axis=1)
            logs = -0.5 * jnp.sum(z**2, axis=1) - half_det[:, None] - 0.5 * d * jnp.log(2 * jnp.pi)
            return (logs + jnp.log(weights)[:, None]).T

        def step(state: Any, _: None) -> Any:
            logs = log_prob(*state)
            total = jax.nn.logsumexp(logs, axis=1, keepdims=True)
            r = jnp.exp(logs - total)
            n = jnp.sum(r, axis=0) + 1e-6
            means = r.T @ x / n[:, None]
            delta = x[:, None] - means[None]
            covs = jnp.einsum("nk,nki,nkj->kij", r, delta, delta) / n[
                :, None, None
            ] + 1e-3 * jnp.eye(d)
            return (n / points, means, covs), jnp.mean(total)

        start = (
            jnp.full(components, 1 / components),
            x[:components],
            jnp.tile(jnp.eye(d), (components, 1, 1)),
        )
        return lax.scan(step, start, None, length=10)

    return run, (normal(points, d) + 4.0 * integers(2, points, d, seed=1),)


def sinkhorn(size: int, steps: int) -> Program:
    """Transport between clouds of points in the log domain, and the gradient of its cost."""

    def cost(x: jax.Array, y: jax.Array) -> jax.Array:
        c = jnp.sum(x**2, 1)[:, None] + jnp.sum(y**2, 1)[None] - 2 * x @ y.T
        eps, log_weight = 0.1, -jnp.log(size)

        def step(state: Any, _: None) -> Any:
            f, g = state
            f = -eps * jax.nn.logsumexp((g[None, :] - c) / eps + log_weight, axis=1)
            g = -eps * jax.nn.logsumexp((f[:, None] - c) / eps + log_weight, axis=0)
            return (f, g), None

        (f, g), _ = lax.scan(step, (jnp.zeros(size), jnp.zeros(size)), None, length=steps)
        plan = jnp.exp((f[:, None] + g[None, :] - c) / eps + 2 * log_weight)
        return jnp.sum(plan * c)

    return jax.value_and_grad(cost), (uniform(size, 3), uniform(size, 3, seed=1) + 0.3)


SIZES: Final[Sizes] = {
    ("jacobi-rotations", jacobi_rotations): ((16, 6), (48, 4)),
    ("linear-solvers", linear_solvers): ((200, 20), (600, 5)),
    ("small-solves", small_solves): ((500, 10), (3_000, 8)),
    ("gaussian-process", gaussian_process): ((100, 3), (400, 3)),
    ("densities", densities): ((1_000, 100), (2_000, 250)),
    ("summaries", summaries): ((1_000, 6), (6_000, 8)),
    ("averages", averages): ((1_000, 16), (5_000, 64)),
    ("bootstrap", bootstrap): ((200, 200), (500, 200)),
    ("gaussian-mixture", gaussian_mixture): ((1_000, 4), (5_000, 8)),
    ("sinkhorn", sinkhorn): ((64, 30), (256, 20)),
}
