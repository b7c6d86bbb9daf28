"""Solvers that stop when they are exact enough: quadratic programs, adaptive steps in time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.third_party.common import Builder, Program


def _kkt_solve(matrix: Any, factor: Any, s: Any, z: Any, residuals: Any) -> Any:
    dual, complementarity, primal = residuals
    right = dual - matrix.T @ ((complementarity - z * primal) / s)
    dx = jax.scipy.linalg.cho_solve(factor, right)
    ds = primal - matrix @ dx
    dz = (complementarity - z * ds) / s
    return dx, ds, dz


def _longest_step(v: jax.Array, dv: jax.Array) -> jax.Array:
    return jnp.minimum(1.0, 0.99 * jnp.min(jnp.where(dv < 0, -v / dv, jnp.inf)))


def _solve_qp(cost: Any, linear: Any, matrix: Any, bound: Any) -> Any:
    """Minimum of a quadratic cost under ``matrix @ x <= bound``, by a primal-dual interior point."""

    def residuals(x: Any, s: Any, z: Any) -> Any:
        dual = -(cost @ x + linear + matrix.T @ z)
        complementarity = -(s * z)
        primal = -(matrix @ x + s - bound)
        return dual, complementarity, primal

    def going(state: Any) -> Any:
        _, _, _, it, converged = state
        return (it < 30) & (~converged)

    def body(state: Any) -> Any:
        x, s, z, it, _ = state
        r1, r2, r3 = residuals(x, s, z)
        hessian = cost + matrix.T @ ((z / s)[:, None] * matrix)
        factor = jax.scipy.linalg.cho_factor(hessian)
        _, dsa, dza = _kkt_solve(matrix, factor, s, z, (r1, r2, r3))
        alpha = jnp.minimum(_longest_step(s, dsa), _longest_step(z, dza))
        mu = s @ z / matrix.shape[0]
        sigma = ((s + alpha * dsa) @ (z + alpha * dza) / (s @ z)) ** 3
        r2 = r2 + sigma * mu - dsa * dza
        dx, ds, dz = _kkt_solve(matrix, factor, s, z, (r1, r2, r3))
        alpha = jnp.minimum(_longest_step(s, ds), _longest_step(z, dz))
        x, s, z = x + alpha * dx, s + alpha * ds, z + alpha * dz
        r1, r2, r3 = (jnp.max(jnp.abs(r)) for r in residuals(x, s, z))
        error = jnp.maximum(r1, jnp.maximum(r2, r3))
        return x, s, z, it + 1, error < 1e-6

    x = -jnp.linalg.solve(cost, linear)
    s = jnp.maximum(bound - matrix @ x, 1.0)
    z = jnp.ones(matrix.shape[0])
    x, s, z, it, converged = lax.while_loop(going, body, (x, s, z, 0, False))
    return x, it, converged


def _barrier(position: jax.Array, obstacles: jax.Array) -> jax.Array:
    return jnp.sum((position - obstacles) ** 2, axis=1) - 0.3**2


def qp_interior_point() -> Program:
    """Control-barrier programs, as cbfpy has them, by vmap; https://github.com/jax-ml/jax/issues/26021."""
    n = 6

    def controller(state: jax.Array, wanted: jax.Array, obstacles: jax.Array) -> Any:
        position, velocity = state[:3], state[3:]
        jacobian = jax.jacfwd(_barrier)(position, obstacles)
        value = _barrier(position, obstacles)
        cost = jnp.diag(jnp.array([1.0, 1.0, 1.0, 0.1, 0.1, 0.1]))
        box = jnp.concatenate([jnp.eye(n), -jnp.eye(n)])
        barriers = -jnp.concatenate([jacobian, 0.1 * jacobian], axis=1)
        matrix = jnp.concatenate([barriers, box])
        bound = jnp.concatenate([2.0 * value + jacobian @ velocity, 2.0 * jnp.ones(2 * n)])
        return _solve_qp(cost, -cost @ wanted, matrix, bound)

    k1, k2 = jax.random.split(jax.random.PRNGKey(33))
    state = jax.random.uniform(k1, (96, 6), dtype=jnp.float64, minval=-1, maxval=1)
    wanted = 2.5 * jax.random.normal(k2, (96, n), dtype=jnp.float64)
    obstacles = jnp.array([[1.5, 1.5, 0.0], [-1.5, 0.5, 1.0]])
    return jax.vmap(controller, in_axes=(0, 0, None)), (state, wanted, obstacles)


# Tsitouras' method of order 5: stages, their times, the solution, and its error.
A: list[list[float]] = [
    [],
    [161 / 1000],
    [-0.008480655492356989, 0.335480655492357],
    [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
    [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
    [
        5.86145544294642, -12.92096931784711, 8.159367898576159,
        -0.071584973281401, -0.028269050394068383,
    ],
]  # fmt: skip
C = [0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0]
B = [
    0.09646076681806523, 0.01, 0.4798896504144996,
    1.379008574103742, -3.290069515436081, 2.324710524099774,
]  # fmt: skip
E = [
    -0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629,
    0.5823571654525552, -0.45808210592918697, 0.015151515151515152,
]  # fmt: skip

RATE_CONSTANTS = {
    "V1": 2.5, "Ki": 9.0, "K1": 10.0, "V2": 0.25, "KK2": 8.0, "k3": 0.025, "KK3": 15.0,
    "k4": 0.025, "KK4": 15.0, "V5": 0.75, "KK5": 15.0, "V6": 0.75, "KK6": 15.0, "k7": 0.025,
    "KK7": 15.0, "k8": 0.025, "KK8": 15.0, "V9": 0.5, "KK9": 15.0, "V10": 0.5, "KK10": 15.0,
}  # fmt: skip


def _stoichiometry() -> np.ndarray[Any, Any]:
    stoichiometry = np.zeros((8, 10))
    reactions = [(0, 1), (1, 0), (2, 3), (3, 4), (4, 3), (3, 2), (5, 6), (6, 7), (7, 6), (6, 5)]
    for reaction, (source, product) in enumerate(reactions):
        stoichiometry[source, reaction] -= 1
        stoichiometry[product, reaction] += 1
    return stoichiometry


STOICHIOMETRY = _stoichiometry()


def _assigned(y: jax.Array, w: jax.Array) -> jax.Array:
    w = w.at[0].set(y[7] / (y[5] + y[6] + y[7]))
    return w.at[1].set(y[4] / (y[2] + y[3] + y[4]))


def _reaction_rates(y: Any, w: jax.Array, c: Any) -> jax.Array:
    # No rate reads the assigned values; SBMLtoODEjax writes them for every model.
    mkkk, mkkk_p, mkk, mkk_p, mkk_pp, mk, mk_p, mk_pp = y
    rates = [
        c["V1"] * mkkk / ((1 + (mk_pp / c["Ki"])) * (c["K1"] + mkkk)),
        c["V2"] * mkkk_p / (c["KK2"] + mkkk_p),
        c["k3"] * mkkk_p * mkk / (c["KK3"] + mkk),
        c["k4"] * mkkk_p * mkk_p / (c["KK4"] + mkk_p),
        c["V5"] * mkk_pp / (c["KK5"] + mkk_pp),
        c["V6"] * mkk_p / (c["KK6"] + mkk_p),
        c["k7"] * mkk_pp * mk / (c["KK7"] + mk),
        c["k8"] * mkk_pp * mk_p / (c["KK8"] + mk_p),
        c["V9"] * mk_pp / (c["KK9"] + mk_pp),
        c["V10"] * mk_p / (c["KK10"] + mk_p),
    ]
    return jnp.array(rates)


def _vector_field(t: Any, y: jax.Array, args: Any) -> jax.Array:
    w, c = args
    w = _assigned(y, w)
    return jnp.asarray(STOICHIOMETRY) @ _reaction_rates(y, w, c)


def _tsit5(t: Any, y: Any, dt: Any, args: Any) -> Any:
    ks: list[Any] = []
    for row, time in zip(A, C, strict=True):
        stage = y
        for a, k in zip(row, ks, strict=True):
            stage = stage + dt * a * k
        ks.append(_vector_field(t + time * dt, stage, args))
    after = y
    for b, k in zip(B, ks, strict=True):
        after = after + dt * b * k
    ks.append(_vector_field(t + dt, after, args))
    return after, sum(dt * e * k for e, k in zip(E, ks, strict=True))


def _until(t_next: Any, args: Any, state: Any) -> Any:
    """Adaptive steps up to a time to save."""

    def going(state: Any) -> Any:
        t, _, _, n, _ = state
        return (t < t_next) & (n < 500)

    def body(state: Any) -> Any:
        t, y, dt, n, rejected = state
        h = jnp.minimum(dt, t_next - t)
        y1, error = _tsit5(t, y, h, args)
        scale = 1e-6 + 1e-6 * jnp.maximum(jnp.abs(y), jnp.abs(y1))
        e = jnp.sqrt(jnp.mean((error / scale) ** 2))
        keep = e < 1.0
        factor = jnp.clip(0.9 * jnp.maximum(e, 1e-10) ** -0.2, 0.2, 10.0)
        factor = jnp.where(keep, jnp.maximum(factor, 1.0), factor)
        t1 = jnp.where(h < dt, t_next, t + h)
        t = jnp.where(keep, t1, t)
        y = jnp.where(keep, y1, y)
        dt = jnp.where(keep & (h < dt), dt, h * factor)
        return t, y, dt, n + 1, rejected + ~keep

    return lax.while_loop(going, body, state)


def sbml_tsit5_adaptive() -> Program:
    """A cascade of kinases in adaptive steps, saved often; https://github.com/patrick-kidger/diffrax/issues/615."""

    def run(y0: jax.Array, w0: jax.Array, c: Any, ts: jax.Array) -> Any:
        def interval(carry: Any, t_next: jax.Array) -> Any:
            t, y, dt, rejected = carry
            t, y, dt, n, rejected = _until(t_next, (w0, c), (t, y, dt, 0, rejected))
            return (t, y, dt, rejected), (y, n)

        init = (ts[0], y0, jnp.asarray(2e-4, y0.dtype), 0)
        (_, _, _, rejected), (ys, steps) = lax.scan(interval, init, ts[1:])
        return ys, jnp.sum(steps), rejected

    constants = {name: jnp.float64(value) for name, value in RATE_CONSTANTS.items()}
    y0 = jnp.array([90.0, 10.0, 280.0, 10.0, 10.0, 280.0, 10.0, 10.0])
    return run, (y0, jnp.zeros(2), constants, jnp.linspace(0.0, 2000.0, 101))


WORKLOADS64: dict[str, Builder] = {
    "qp-interior-point": qp_interior_point,
    "sbml-tsit5-adaptive": sbml_tsit5_adaptive,
}
