"""Small factorisations, solves and products, in batches and loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.trackers.common import Built, Reported, generator, normal, uniform


def process_moments() -> Built:
    """Means and variances of sparse Gaussian processes, by Python loops over trials and latents.

    After jax-ml/jax#20326: nested loops over small Cholesky solves are much slower than NumPy.
    """
    trials, latents, points, spikes = 3, 2, 9, 60

    def fn(mean: Any, covariance: Any, factor: Any, cross: Any) -> Any:
        out = []
        for r in range(trials):
            mus, variances = jnp.zeros((spikes, latents)), jnp.zeros((spikes, latents))
            for k in range(latents):
                lower = (factor[k, r], True)
                weights = jax.scipy.linalg.cho_solve(lower, mean[k, r])
                mus = mus.at[:, k].set(cross[r, k] @ weights)
                b = jax.scipy.linalg.cho_solve(lower, cross[r, k].T)
                change = covariance[k, r] @ b - cross[r, k].T
                variances = variances.at[:, k].set(1.0 + jnp.sum(b * change, 0))
            out.append((mus, variances))
        return out

    rng = generator()
    t, z = rng.uniform(0, 1, (trials, latents, spikes)), np.linspace(0, 1, points)
    kernel = np.exp(-0.5 * (z[:, None] - z[None]) ** 2 / 0.04) + 1e-3 * np.eye(points)
    factor = jnp.asarray(np.tile(np.linalg.cholesky(kernel), (latents, trials, 1, 1)))
    cross = jnp.asarray(np.exp(-0.5 * (t[..., None] - z) ** 2 / 0.04))
    covariance = jnp.asarray(np.tile(0.1 * np.eye(points), (latents, trials, 1, 1)))
    return fn, (normal(rng, latents, trials, points), covariance, factor, cross)


def matrix_exponentials() -> Built:
    """Exponentials of a batch of small matrices by vmap, which computes every Padé approximant.

    After jax-ml/jax#15195: under vmap it is slower than the reporter expects.
    """
    return jax.vmap(jax.scipy.linalg.expm), (normal(generator(), 24, 8, 8, scale=0.3),)


def batched_orthogonalisation() -> Built:
    """Orthogonal bases of many tall matrices by QR under vmap, and their coefficients.

    After jax-ml/jax#15803: batched orthogonal decompositions are a slow loop.
    """

    def fn(a: Any, b: Any) -> Any:
        q, r = jnp.linalg.qr(a)
        return jax.scipy.linalg.solve_triangular(r, q.T @ b), jnp.abs(jnp.diagonal(r))

    rng = generator()
    return jax.vmap(fn), (normal(rng, 150, 64, 16), normal(rng, 150, 64))


def krylov_solve() -> Built:
    """Twenty-four Arnoldi steps and the small least squares of GMRES.

    After jax-ml/jax#9259: GMRES is much slower than SciPy's on a CPU.
    """
    size, steps = 200, 24

    def fn(a: Any, b: Any) -> Any:
        norm = jnp.sqrt(jnp.sum(b * b))
        basis = jnp.zeros((steps + 1, size)).at[0].set(b / norm)
        entries = jnp.zeros((steps, steps + 1))

        def step(k: Any, state: Any) -> Any:
            basis, entries = state
            w = a @ basis[k]
            first = basis @ w
            w = w - first @ basis
            second = basis @ w
            w = w - second @ basis
            length = jnp.sqrt(jnp.sum(w * w))
            column = (first + second).at[k + 1].set(length)
            return basis.at[k + 1].set(w / length), entries.at[k].set(column)

        basis, entries = lax.fori_loop(0, steps, step, (basis, entries))
        q, r = jnp.linalg.qr(entries.T)
        y = jax.scipy.linalg.solve_triangular(r, q[0] * norm)
        x = y @ basis[:steps]
        return x, jnp.sqrt(jnp.sum((b - a @ x) ** 2))

    rng = generator()
    a = np.diag(np.linspace(1, 40, size)) + 0.2 * rng.standard_normal((size, size))
    return fn, (jnp.asarray(a), normal(rng, size))


def newton_roots() -> Built:
    """Newton steps for a coupled system of equations, with the whole Jacobian at each step.

    After patrick-kidger/optimistix#17: slower than calls of SciPy's root finder.
    """
    size = 48

    def fn(start: Any, b: Any) -> Any:
        def residual(y: Any) -> Any:
            return (y - b) ** 2 + 0.1 * jnp.roll(y, 1) - 0.5

        def step(_: Any, y: Any) -> Any:
            jacobian = jax.jacfwd(residual)(y)
            return y - jnp.linalg.solve(jacobian, residual(y))

        return lax.fori_loop(0, 6, step, start)

    rng = generator()
    b = uniform(rng, size)
    return fn, (b + 1.0, b)


def celerite_factor() -> Built:
    """Factor and log likelihood of a Gaussian process with twelve damped oscillations, in one scan.

    After dfm/tinygp#190: for sums of many terms slower than celerite2.
    """
    length, terms = 400, 12

    def fn(t: Any, y: Any, a: Any, c: Any, d: Any) -> Any:
        phase = d * t[:, None]
        u = jnp.concatenate([a * jnp.cos(phase), a * jnp.sin(phase)], 1)
        v = jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], 1)
        decay = jnp.exp(-c * jnp.diff(t, prepend=t[:1])[:, None])
        decay = jnp.concatenate([decay, decay], 1)
        diagonal = jnp.sum(a) + 0.1

        def step(state: Any, one: Any) -> Any:
            s, f, d_old, w_old, z_old = state
            u, v, p, y = one
            s = p[:, None] * (s + d_old * w_old[:, None] * w_old) * p
            f = p * (f + w_old * z_old)
            left = u @ s
            d_new = diagonal - left @ u
            w_new = (v - left) / d_new
            z_new = y - u @ f
            return (s, f, d_new, w_new, z_new), (jnp.log(d_new) + z_new**2 / d_new)

        zero = jnp.zeros(2 * terms)
        start = (jnp.zeros((2 * terms, 2 * terms)), zero, jnp.asarray(0.0), zero, jnp.asarray(0.0))
        return -0.5 * jnp.sum(lax.scan(step, start, (u, v, decay, y))[1])

    rng = generator()
    t = jnp.asarray(np.sort(rng.uniform(0, 40, length)))
    a = uniform(rng, terms, low=0.1, high=0.5)
    c, d = uniform(rng, terms, low=0.1, high=1.0), uniform(rng, terms, low=0.5, high=5.0)
    return fn, (t, normal(rng, length), a, c, d)


def tensor_grid() -> Built:
    """Contraction of a grid of three by four small tensors in one einsum of many operands.

    After jax-ml/jax#7413: five times slower than the same contraction without jit.
    """
    rows, columns, bond = 3, 4, 8

    def fn(*tensors: Any) -> Any:
        return jnp.einsum(",".join(names), *tensors, optimize="greedy")

    letters = iter("abcdefghijklmnopqrstuvwxyz")
    edges: dict[tuple[int, int, int], str] = {}
    names = []
    for i in range(rows):
        for j in range(columns):
            around = [(i, j, 0), (i, j, 1), (i, j - 1, 0), (i - 1, j, 1)]
            inside = [j < columns - 1, i < rows - 1, j > 0, i > 0]
            kept = [edge for edge, ok in zip(around, inside, strict=True) if ok]
            for edge in kept:
                if edge not in edges:
                    edges[edge] = next(letters)
            names.append("".join(edges[edge] for edge in kept))
    rng = generator()
    return fn, tuple(uniform(rng, *([bond] * len(name)), high=0.5) for name in names)


def operand_order() -> Built:
    """Product of a wide matrix with a batch of matrices, contracted over the last dimension.

    After jax-ml/jax#19327: on CPUs the order of the operands of the product matters much.
    """

    def fn(w: Any, a: Any) -> Any:
        contract = (((1,), (2,)), ((), ()))
        return jnp.moveaxis(lax.dot_general(w, a, contract), 0, -1) + 1.0

    rng = generator()
    return fn, (normal(rng, 150, 205), normal(rng, 8, 50, 205))


REPORTS: tuple[Reported, ...] = (
    Reported("process_moments", "jax-ml/jax#20326", process_moments, x64=True),
    Reported("matrix_exponentials", "jax-ml/jax#15195", matrix_exponentials),
    Reported("batched_orthogonalisation", "jax-ml/jax#15803", batched_orthogonalisation),
    Reported("krylov_solve", "jax-ml/jax#9259", krylov_solve, x64=True),
    Reported("newton_roots", "patrick-kidger/optimistix#17", newton_roots),
    Reported("celerite_factor", "dfm/tinygp#190", celerite_factor, x64=True),
    Reported("tensor_grid", "jax-ml/jax#7413", tensor_grid),
    Reported("operand_order", "jax-ml/jax#19327", operand_order),
)
"""The programs of this family."""
